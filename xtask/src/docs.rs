//! `cargo xtask docs`: the pages that are derived from the code, so that they cannot drift.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ff_core::engine_error::{EngineError, ErrorClass, ErrorEntry};

use crate::process::root;
use crate::tidy::source::{Source, rust_files};

const OPERATIONS: &str = "crates/ff-core/src/operations/";
const GENERATED: &str = "<!-- Written by `cargo xtask docs`; do not edit. -->";

pub fn run(args: &[String]) -> Result<(), String> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    match args[..] {
        [] => write_all(&root),
        ["--check"] => match stale(&root)?.as_slice() {
            [] => Ok(()),
            pages => Err(format!("{}: run `cargo xtask docs`", pages.join(", "))),
        },
        _ => Err("usage: cargo xtask docs [--check]".into()),
    }
}

/// The pages that differ from what the code says.
pub fn stale(root: &Path) -> Result<Vec<&'static str>, String> {
    let mut stale = Vec::new();
    for (path, text) in pages(root)? {
        if fs::read_to_string(root.join(path)).unwrap_or_default() != text {
            stale.push(path);
        }
    }
    Ok(stale)
}

fn write_all(root: &Path) -> Result<(), String> {
    for (path, text) in pages(root)? {
        fs::write(root.join(path), text).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

fn pages(root: &Path) -> Result<[(&'static str, String); 2], String> {
    let operations: Vec<Source> = rust_files(root)?
        .into_iter()
        .filter(|source| source.path.starts_with(OPERATIONS))
        .collect();
    Ok([
        ("docs/errors.md", errors_page(&EngineError::table())?),
        ("docs/operations.md", operations_page(&operations)),
    ])
}

/// Refuses an error that does not say what it means and what to do about it.
fn errors_page(table: &[ErrorEntry]) -> Result<String, String> {
    let mut page = format!(
        "# Errors\n\n{GENERATED}\n\n\
         Every error has a stable code. A retryable error means that the same request may succeed \
         later;\nany other will be refused again as long as the request and the state stay as they \
         are.\n\n\
         A `Validation` error says in its detail which argument is wrong.\n\n\
         | code | `EngineError` | retry | meaning | what to do |\n|---|---|---|---|---|\n"
    );
    for entry in table {
        let ErrorEntry { code, variant, meaning, remedy, .. } = entry;
        if meaning.is_empty() || remedy.is_empty() {
            return Err(format!("the error `{code}` lacks a meaning or what to do about it"));
        }
        let retry = if entry.class == ErrorClass::Retryable { "yes" } else { "no" };
        let _ = writeln!(page, "| `{code}` | `{variant}` | {retry} | {meaning} | {remedy} |");
    }
    Ok(page)
}

fn operations_page(files: &[Source]) -> String {
    let mut page = format!(
        "# Operations\n\n{GENERATED}\n\n\
         Everything that may change a row. Each operation is one file under\n\
         `crates/ff-core/src/operations/`, two pure functions, and one transaction.\n\n\
         | operation | file | what it does |\n|---|---|---|\n"
    );
    let mut rows: Vec<(String, &str, String)> = Vec::new();
    for file in files {
        let short = file.path.strip_prefix(OPERATIONS).unwrap_or(&file.path);
        let opening = first_paragraph(&file.text);
        rows.extend(names(&file.text).map(|name| (name.to_owned(), short, opening.clone())));
    }
    rows.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    for (name, file, what) in rows {
        let _ = writeln!(page, "| `{name}` | `{file}` | {what} |");
    }
    page
}

/// The values of `const NAME` in one file.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let value = line.trim().strip_prefix("const NAME: &'static str = \"")?;
        value.strip_suffix("\";")
    })
}

/// The first paragraph of the file's own documentation, on one line.
fn first_paragraph(text: &str) -> String {
    let docs = text.lines().map_while(|line| line.strip_prefix("//!"));
    let lines: Vec<&str> = docs.map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
//! Takes it
//! back.
//!
//! More.

impl Operation for Revoke {
    const NAME: &'static str = \"revoke\";
}
";

    #[test]
    fn operations_come_from_their_files() {
        let file = Source::new("crates/ff-core/src/operations/x/revoke.rs", SAMPLE);
        let page = operations_page(&[file]);
        assert!(page.ends_with("| `revoke` | `x/revoke.rs` | Takes it back. |\n"), "{page}");
    }

    #[test]
    fn every_error_is_listed() {
        let page = errors_page(&EngineError::table()).unwrap();
        assert!(page.contains("| `busy` | `ResourceExhausted` | yes |"), "{page}");
        assert!(page.contains("| `stale_lease` | `State` | no |"), "{page}");
    }

    #[test]
    fn an_error_without_a_meaning_is_refused() {
        let mut table = EngineError::table();
        table[3].meaning = "";
        let code = format!("`{}`", table[3].code);
        assert!(errors_page(&table).unwrap_err().contains(&code));
        table[3].meaning = "something";
        table[3].remedy = "";
        assert!(errors_page(&table).is_err());
    }

    #[test]
    fn a_page_that_differs_is_stale() {
        let nowhere = std::env::temp_dir().join("flowfabric-no-such-tree");
        assert_eq!(stale(&nowhere).unwrap(), ["docs/errors.md", "docs/operations.md"]);
    }
}
