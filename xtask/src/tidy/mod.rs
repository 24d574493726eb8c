//! `cargo xtask tidy`: the style of the tree, checked like everything else. It also runs as a unit
//! test, so `cargo test` is enough to see a violation.

mod exceptions;
mod facts;
mod manifests;
mod pages;
mod rust;
pub mod source;

use std::fmt;
use std::path::Path;

use crate::docs;
use crate::process::{no_arguments, root};
use exceptions::Exceptions;
use source::Source;

/// One thing to put right.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    path: String,
    line: usize,
    what: String,
}

impl Violation {
    /// `line` counts from 1.
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

pub fn run(args: &[String]) -> Result<(), String> {
    no_arguments(args)?;
    let violations = check_tree(&root())?;
    for violation in &violations {
        eprintln!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        count => Err(format!("{count} violations")),
    }
}

fn check_tree(root: &Path) -> Result<Vec<Violation>, String> {
    let files = source::all_files(root)?;
    let mut exceptions = Exceptions::load(root)?;
    let mut violations = Vec::new();
    for file in &files {
        check_file(file, &mut exceptions, &mut violations);
        violations.extend(pages::links(file, root));
    }
    violations.extend(exceptions.unused());
    for page in docs::stale(root)? {
        violations.push(Violation::new(page, 1, "differs from the code: run `cargo xtask docs`"));
    }
    violations.extend(facts::missing(root)?);
    violations.sort();
    Ok(violations)
}

fn check_file(file: &Source, exceptions: &mut Exceptions, violations: &mut Vec<Violation>) {
    violations.extend(pages::trailing_space(file));
    violations.extend(pages::registry_hosts(file));
    if file.path.ends_with("Cargo.toml") {
        violations.extend(manifests::check(file, exceptions));
    }
    if !file.is_rust() || file.is_outside_suite() {
        return;
    }
    let layers = file.layers();
    violations.extend(rust::opening(file));
    violations.extend(rust::columns(file));
    violations.extend(rust::unfinished(file, &layers));
    violations.extend(rust::tickets(file, &layers));
    violations.extend(rust::purity(file, &layers));
    violations.extend(rust::unwraps(file, &layers));
    violations.extend(rust::foreign_backends(file, &layers));
    violations.extend(exceptions.file_length(file));
    violations.extend(exceptions.function_lengths(file, &rust::functions(&layers.code)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let violations = check_tree(&root()).unwrap();
        let shown: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(shown.is_empty(), "{} violations\n{}", shown.len(), shown.join("\n"));
    }
}
