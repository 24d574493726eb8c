//! Checks on `Cargo.toml` files.

use super::Violation;
use super::exceptions::Exceptions;
use super::rust::{backend_free_crate, backend_names};
use super::source::Source;

pub fn check(file: &Source, exceptions: &mut Exceptions) -> Vec<Violation> {
    let mut violations = foreign_backends(file);
    if has_line(file, "[package]") {
        violations.extend(inherited(file, exceptions));
    }
    violations
}

/// Every crate takes its lints and whether it is published from the workspace.
fn inherited(file: &Source, exceptions: &mut Exceptions) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !has_line(file, "publish.workspace = true") {
        violations.push(Violation::new(&file.path, 1, "lacks `publish.workspace = true`"));
    }
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let inherits = lines.windows(2).any(|pair| pair == ["[lints]", "workspace = true"]);
    if !inherits && !exceptions.lints(&file.path) {
        violations.push(Violation::new(&file.path, 1, "lacks `[lints] workspace = true`"));
    }
    violations
}

fn foreign_backends(file: &Source) -> Vec<Violation> {
    let Some(owner) = backend_free_crate(&file.path) else {
        return Vec::new();
    };
    let owner = owner.replace('_', "-");
    let mut violations = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let named = backend_names(line, "ff-backend-");
        for name in named.filter(|name| *name != owner) {
            let what = format!("names the backend `{name}`");
            violations.push(Violation::new(&file.path, at + 1, what));
        }
    }
    violations
}

fn has_line(file: &Source, wanted: &str) -> bool {
    file.text.lines().any(|line| line.trim() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"ff-core\"\npublish.workspace = true\n\n\
                        [lints]\nworkspace = true\n";

    fn violations(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text), &mut Exceptions::default())
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn crates_inherit() {
        let path = "crates/ff-core/Cargo.toml";
        assert!(violations(path, GOOD).is_empty());
        let published = GOOD.replace("publish.workspace = true", "publish = true");
        assert_eq!(violations(path, &published).len(), 1);
        let lax = GOOD.replace("[lints]\n", "[lints.rust]\n");
        assert_eq!(violations(path, &lax).len(), 1);
        assert!(violations("Cargo.toml", "[workspace]\n").is_empty());
    }

    #[test]
    fn core_and_backends_stay_apart() {
        let text = format!("{GOOD}ff-backend-sqlite.workspace = true\n");
        let found = violations("crates/ff-core/Cargo.toml", &text);
        assert_eq!(found, ["crates/ff-core/Cargo.toml:7: names the backend `ff-backend-sqlite`"]);
        assert!(violations("crates/ff-backend-sqlite/Cargo.toml", &text).is_empty());
        assert_eq!(violations("crates/ff-backend-postgres/Cargo.toml", &text).len(), 1);
        assert!(violations("crates/flowfabric/Cargo.toml", &text).is_empty());
    }
}
