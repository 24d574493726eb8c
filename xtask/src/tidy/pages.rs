//! Checks on every text file, and on Markdown pages.

use std::path::Path;

use super::Violation;
use super::source::Source;

/// Where packages come from is the business of the machine that builds, not of the tree. The
/// pieces are joined so that this list does not find itself.
const REGISTRY_HOSTS: [&str; 7] = [
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("registry.", "npmjs.org"),
    concat!("registry.", "yarnpkg.com"),
    concat!("pypi", ".org"),
    concat!("files.", "pythonhosted.org"),
    concat!("art", "ifactory"),
];
/// What cargo itself writes into its lock file for every public package.
const LOCKED_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

pub fn trailing_space(file: &Source) -> Vec<Violation> {
    let lines = file.text.lines().enumerate();
    let ends_in_space = lines.filter(|(_, line)| line.ends_with([' ', '\t', '\r']));
    let what = "trailing white space";
    ends_in_space.map(|(at, _)| Violation::new(&file.path, at + 1, what)).collect()
}

pub fn registry_hosts(file: &Source) -> Vec<Violation> {
    let locked = file.path.ends_with("Cargo.lock");
    let names_one = |line: &str| {
        let foreign = locked && line.starts_with("source = \"registry") && line != LOCKED_SOURCE;
        foreign || REGISTRY_HOSTS.iter().any(|host| line.contains(host))
    };
    let lines = file.text.lines().enumerate().filter(|(_, line)| names_one(line));
    let what = "names the host of a package registry";
    lines.map(|(at, _)| Violation::new(&file.path, at + 1, what)).collect()
}

/// Links from a page to a file must lead somewhere.
pub fn links(file: &Source, root: &Path) -> Vec<Violation> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let mut violations = Vec::new();
    for (line, target) in link_targets(&file.text) {
        let path = target.split('#').next().unwrap_or_default();
        let elsewhere = target.contains("://") || target.starts_with("mailto:");
        if !elsewhere && !path.is_empty() && !root.join(folder).join(path).exists() {
            let what = format!("links to `{target}`, which does not exist");
            violations.push(Violation::new(&file.path, line, what));
        }
    }
    violations
}

/// Every `](target)` outside code blocks, with its line.
fn link_targets(text: &str) -> Vec<(usize, &str)> {
    let mut targets = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        for (start, _) in line.match_indices("](").filter(|_| !in_code) {
            let target = &line[start + 2..];
            if let Some(end) = target.find(')') {
                targets.push((at + 1, &target[..end]));
            }
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(violations: &[Violation]) -> Vec<usize> {
        violations.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn space_at_the_end_of_a_line() {
        let file = Source::new("a.md", "a\nb \n\nc\t\nd\r\n");
        assert_eq!(lines(&trailing_space(&file)), [2, 4]);
    }

    #[test]
    fn hosts_of_registries() {
        for host in REGISTRY_HOSTS {
            let file = Source::new(".cargo/config.toml", format!("[a]\nb = \"https://{host}/\"\n"));
            assert_eq!(lines(&registry_hosts(&file)), [2], "{host}");
        }
        let other = "source = \"registry+https://mirror.example/index\"";
        let lock = Source::new("Cargo.lock", format!("{LOCKED_SOURCE}\n{other}\n"));
        assert_eq!(lines(&registry_hosts(&lock)), [2]);
    }

    #[test]
    fn links_that_lead_nowhere() {
        let root = crate::process::root();
        let text = "[a](../Cargo.toml) [b](https://example.org) [c](#d)\n[e](no-such-page.md#f)\n\
                    ```\n[g](neither)\n```\n";
        let found = links(&Source::new("docs/a.md", text), &root);
        assert_eq!(lines(&found), [2]);
        assert!(links(&Source::new("docs/a.rs", text), &root).is_empty());
    }
}
