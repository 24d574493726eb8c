//! The files of the tree, and Rust text split into code and comments.

use std::fs;
use std::path::Path;

/// One text file. `path` is relative to the root, with forward slashes.
pub struct Source {
    pub path: String,
    pub text: String,
}

/// Rust text in two layers, line by line the same as the original. What belongs to the other layer
/// is blank in each, and so is the inside of every string and character.
pub struct Layers {
    pub code: String,
    pub comments: String,
}

/// Folders that hold nothing written by hand.
const SKIPPED: [&str; 4] = [".git", "target", "node_modules", "quickstart-data"];

impl Source {
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whole files of tests; tests inside other files are found by `test_lines`. The conformance
    /// suite is a library only so that every store can run it.
    pub fn is_test_file(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.starts_with("crates/ff-conformance/")
    }

    /// Acceptance suites that others wrote sit directly in a backend's `tests/` and are compiled as
    /// they are; our own tests are in `tests/it/`.
    pub fn is_outside_suite(&self) -> bool {
        let suite = self.path.strip_prefix("crates/ff-backend-");
        let suite = suite.and_then(|path| path.split_once("/tests/"));
        suite.is_some_and(|(_, name)| !name.contains('/'))
    }

    pub fn layers(&self) -> Layers {
        split(&self.text)
    }
}

/// Every text file of the tree. It walks instead of asking git, which a fresh machine may not have.
pub fn all_files(root: &Path) -> Result<Vec<Source>, String> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

pub fn rust_files(root: &Path) -> Result<Vec<Source>, String> {
    let mut files = if root.exists() { all_files(root)? } else { Vec::new() };
    files.retain(Source::is_rust);
    Ok(files)
}

fn walk(root: &Path, below: &str, files: &mut Vec<Source>) -> Result<(), String> {
    let folder = root.join(below);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                walk(root, &path, files)?;
            }
        } else if kind.is_file()
            && let Ok(bytes) = fs::read(entry.path())
            && let Ok(text) = String::from_utf8(bytes)
            && !text.contains('\0')
        {
            files.push(Source::new(path, text));
        }
    }
    Ok(())
}

/// Marks the lines that belong to `#[cfg(test)]` items, by counting braces.
pub fn test_lines(code: &str) -> Vec<bool> {
    let mut marks = Vec::new();
    let (mut depth, mut pending, mut open_at) = (0usize, false, None);
    for line in code.lines() {
        pending |= line.contains("#[cfg(test)]");
        let mut inside = pending || open_at.is_some();
        for c in line.chars() {
            match c {
                '{' => {
                    if pending {
                        (pending, open_at) = (false, Some(depth));
                    }
                    depth += 1;
                }
                '}' => {
                    depth = depth.saturating_sub(1);
                    if open_at == Some(depth) {
                        open_at = None;
                    }
                }
                // An item without a body, such as `mod tests;`.
                ';' if pending => pending = false,
                _ => {}
            }
            inside |= pending || open_at.is_some();
        }
        marks.push(inside);
    }
    marks
}

/// Splits by a small scanner that knows strings, raw strings, characters and nested comments.
fn split(text: &str) -> Layers {
    let chars: Vec<char> = text.chars().collect();
    let mut layers = Layers { code: String::new(), comments: String::new() };
    let mut at = 0;
    while at < chars.len() {
        let (kind, end) = token(&chars, at);
        for &c in &chars[at..end] {
            let blank = if c == '\n' { '\n' } else { ' ' };
            layers.code.push(if kind == Kind::Code { c } else { blank });
            layers.comments.push(if kind == Kind::Comment { c } else { blank });
        }
        at = end;
    }
    layers
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Text,
}

fn token(chars: &[char], at: usize) -> (Kind, usize) {
    let next = chars.get(at + 1).copied();
    let after_word = at > 0 && is_word(chars[at - 1]);
    match chars[at] {
        '/' if next == Some('/') => {
            let len = chars[at..].iter().position(|c| *c == '\n');
            (Kind::Comment, len.map_or(chars.len(), |len| at + len))
        }
        '/' if next == Some('*') => (Kind::Comment, block_comment_end(chars, at)),
        'r' if !after_word => match raw_string_end(chars, at) {
            Some(end) => (Kind::Text, end),
            None => (Kind::Code, at + 1),
        },
        '"' => (Kind::Text, quoted_end(chars, at, '"')),
        // A lifetime is a quote too, but no quote follows its first character.
        '\'' if next == Some('\\') || chars.get(at + 2) == Some(&'\'') => {
            (Kind::Text, quoted_end(chars, at, '\''))
        }
        _ => (Kind::Code, at + 1),
    }
}

fn quoted_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn raw_string_end(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |at: &usize| {
        chars[*at] == '"' && chars[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes
    };
    let close = (open + 1..chars.len()).find(closes);
    Some(close.map_or(chars.len(), |at| at + 1 + hashes))
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start + 2, 1);
    while at < chars.len() && depth > 0 {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    at.min(chars.len())
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_told_apart() {
        let text = "let a = \"// {\"; // b {\nlet c = '\"'; /* d /* e */ f */ g(r#\"h\"i\"#, 'x');";
        let layers = split(text);
        assert_eq!(
            layers.code.lines().map(str::trim_end).collect::<Vec<_>>(),
            ["let a =       ;", "let c =    ;                   g(        ,    );"]
        );
        assert_eq!(layers.comments.lines().next().unwrap().trim(), "// b {");
        assert_eq!(layers.comments.lines().nth(1).unwrap().trim(), "/* d /* e */ f */");
    }

    #[test]
    fn outside_suites_are_told_from_our_own() {
        let outside = |path: &str| Source::new(path, "").is_outside_suite();
        assert!(outside("crates/ff-backend-sqlite/tests/operator_control.rs"));
        assert!(!outside("crates/ff-backend-sqlite/tests/it/main.rs"));
        assert!(!outside("crates/ff-core/tests/a.rs"));
    }

    #[test]
    fn lifetimes_are_code() {
        assert_eq!(split("fn f<'a>(x: &'a str) {}").code, "fn f<'a>(x: &'a str) {}");
    }

    #[test]
    fn test_modules_are_marked() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(test_lines(code), [false, true, true, true, true, false]);
        let code = "#[cfg(test)]\nmod tests;\nfn c() {}\n";
        assert_eq!(test_lines(code), [true, true, false]);
    }
}
