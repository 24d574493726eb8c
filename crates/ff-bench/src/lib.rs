//! Measures the engine against the floors of the machine it runs on.
//!
//! A rate alone says more about the disk than about the engine, so every line is also a ratio to
//! what a hand-written loop reaches on the same disk, with the same settings, in the same run.

#![forbid(unsafe_code)]

mod domain;
mod http;
mod measure;
mod postgres;
mod postgres_floor;
mod postgres_server;
mod report;
mod scale;
mod sdk;
mod sqlite;
mod sqlite_floor;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const USAGE: &str = "ff-bench sqlite|postgres [--quick] [--check] [--only PART] [--json PATH]";

/// The parts of a run in their order, for whoever works on one of them.
const PARTS: [&str; 10] =
    ["submit", "batches", "sixteen", "drain", "sdk", "http", "end", "idle", "domain", "backlog"];

/// Runs only if it is asked for.
const SCALE: &str = "scale";

/// The parts that were asked for.
fn parts(only: Option<&str>) -> impl Iterator<Item = &'static str> {
    let asked = move |part: &&str| only.map_or(*part != SCALE, |only| only == *part);
    PARTS.into_iter().chain([SCALE]).filter(asked)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Sqlite,
    Postgres,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    store: Store,
    quick: bool,
    check: bool,
    only: Option<String>,
    json: Option<PathBuf>,
}

/// Runs the benchmark. False means that bars were missed and the caller asked to be told.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<bool> {
    let options = parse(arguments)?;
    let target = target_folder()?;
    let only = options.only.as_deref();
    let (name, report) = match options.store {
        Store::Sqlite => ("sqlite", sqlite::measure(&target, options.quick, only)?),
        Store::Postgres => ("postgres", postgres::measure(&target, options.quick, only)?),
    };
    let json = options.json.unwrap_or_else(|| target.join(format!("bench/{name}.json")));
    print!("{}", report.table());
    write_json(&json, &report.json())?;
    eprintln!("written to {}", json.display());
    let missed = report.missed();
    if options.check && !missed.is_empty() {
        eprintln!("missed bars:");
        for line in &missed {
            eprintln!("  {line}");
        }
        return Ok(false);
    }
    Ok(true)
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let store = match arguments.next().as_deref() {
        Some("sqlite") => Store::Sqlite,
        Some("postgres") => Store::Postgres,
        Some(other) => bail!("no benchmark is called {other:?}\nusage: {USAGE}"),
        None => bail!("usage: {USAGE}"),
    };
    let mut options = Options { store, quick: false, check: false, only: None, json: None };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--check" => options.check = true,
            "--only" => {
                let part = arguments.next().unwrap_or_default();
                if part != SCALE && !PARTS.contains(&part.as_str()) {
                    bail!("--only needs one of {}, {SCALE}", PARTS.join(", "));
                }
                options.only = Some(part);
            }
            "--json" => {
                let path = arguments.next().context("--json needs a path")?;
                options.json = Some(PathBuf::from(path));
            }
            other => bail!("unknown argument {other:?}\nusage: {USAGE}"),
        }
    }
    Ok(options)
}

/// The folder that the build writes to. It is on the disk that the user works on, which `/tmp`
/// often is not.
fn target_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where is this program?")?;
    let target = program.ancestors().nth(2).context("this program is not in a target folder")?;
    Ok(target.to_owned())
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Options> {
        parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments() {
        let all = parsed("sqlite --quick --check --only drain --json a/b.json").unwrap();
        let (only, json) = (Some("drain".to_owned()), Some("a/b.json".into()));
        let store = Store::Sqlite;
        assert_eq!(all, Options { store, quick: true, check: true, only, json });
        let none = parsed("postgres").unwrap();
        let store = Store::Postgres;
        assert_eq!(none, Options { store, quick: false, check: false, only: None, json: None });
        for bad in ["", "oracle", "sqlite --fast", "sqlite --json", "sqlite --only disk"] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
