//! The command: `run` kills and judges, `child` is what it kills.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_chaos::checker::Report;
use ff_chaos::harness::{self, Plan};
use ff_chaos::victim::{EmbeddedProcess, UP};
use ff_chaos::workload;

const USAGE: &str = "usage:
  ff-chaos run --kills N --seed S [--dir DIR] [--min-ms A] [--max-ms B]
  ff-chaos child --db PATH --log DIR --seed N   (ends with its standard input)";

/// A report of everything would be as long as the history.
const SHOWN_VIOLATIONS: usize = 20;

fn main() -> ExitCode {
    match start() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ff-chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<bool> {
    let mut words = std::env::args().skip(1);
    let command = words.next().context(USAGE)?;
    let options = Options::parse(words)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match command.as_str() {
        "run" => run(&runtime, &options),
        "child" => runtime.block_on(child(&options)).map(|()| true),
        other => bail!("there is no command {other:?}\n{USAGE}"),
    }
}

async fn child(options: &Options) -> anyhow::Result<()> {
    let db: PathBuf = options.required("db")?;
    let log: PathBuf = options.required("log")?;
    let seed = options.required("seed")?;
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
    let backend = open(&db).await?;
    println!("{UP}");
    workload::run_until_killed(backend, &log, seed).await
}

fn run(runtime: &tokio::runtime::Runtime, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan {
        kills: options.or("kills", 100)?,
        seed: options.or("seed", 1)?,
        lifetime_ms: (options.or("min-ms", 20)?, options.or("max-ms", 400)?),
    };
    ensure!(plan.lifetime_ms.0 <= plan.lifetime_ms.1, "--min-ms is more than --max-ms");
    let parent = options.or("dir", std::env::temp_dir())?;
    std::fs::create_dir_all(&parent)?;
    let dir = tempfile::Builder::new().prefix("ff-chaos-").tempdir_in(parent)?;
    let outcome = kill_and_judge(runtime, dir.path(), plan);
    if outcome.as_ref().is_ok_and(Report::passed) {
        return Ok(true);
    }
    eprintln!("seed {}, everything is kept in {}", plan.seed, dir.keep().display());
    outcome.map(|_| false)
}

fn kill_and_judge(
    runtime: &tokio::runtime::Runtime,
    dir: &Path,
    plan: Plan,
) -> anyhow::Result<Report> {
    let db = dir.join("chaos.db");
    let program = std::env::current_exe()?;
    let mut victim = EmbeddedProcess::new(program, db.clone(), dir.to_owned());
    harness::kill_repeatedly(&mut victim, plan)?;
    let report = runtime.block_on(async {
        let backend = open(&db).await?;
        let report = harness::judge(backend.clone(), dir, plan).await;
        backend.close().await;
        report
    })?;
    for violation in report.violations.iter().take(SHOWN_VIOLATIONS) {
        eprintln!("{:?}: {}", violation.kind, violation.text);
    }
    print!("{report}");
    Ok(report)
}

async fn open(db: &Path) -> anyhow::Result<Arc<SqliteBackend>> {
    let path = db.to_str().context("the path is not UTF-8")?;
    let opened = SqliteBackend::open(SqliteOptions::new(path)).await;
    opened.with_context(|| format!("opening {path}"))
}

/// `--name value` pairs.
struct Options(HashMap<String, String>);

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = HashMap::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").with_context(|| format!("{word:?}?\n{USAGE}"))?;
            let value = words.next().with_context(|| format!("--{name} needs a value"))?;
            options.insert(name.to_owned(), value);
        }
        Ok(Self(options))
    }

    fn required<T: FromStr>(&self, name: &str) -> anyhow::Result<T> {
        let value = self.0.get(name).with_context(|| format!("--{name} is missing\n{USAGE}"))?;
        let parsed = value.parse().ok();
        parsed.with_context(|| format!("--{name} cannot be {value:?}"))
    }

    fn or<T: FromStr>(&self, name: &str, default: T) -> anyhow::Result<T> {
        if self.0.contains_key(name) { self.required(name) } else { Ok(default) }
    }
}
