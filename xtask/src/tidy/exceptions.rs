//! How long files and functions may be, and the list of what is excepted.
//!
//! The list may only shrink: a length has a number that must not be exceeded, and an entry that is
//! not needed any more is itself a violation.

use std::fs;
use std::path::Path;

use super::Violation;
use super::rust::Function;
use super::source::Source;

const LIST: &str = "xtask/tidy-exceptions.txt";
const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;

#[derive(Default)]
pub struct Exceptions {
    entries: Vec<Entry>,
}

struct Entry {
    line: usize,
    path: String,
    subject: Subject,
    needed: bool,
}

enum Subject {
    /// `file <path> <lines>`
    File(usize),
    /// `function <path> <name> <lines>`
    Function(String, usize),
    /// `lints <path>`: a manifest that does not inherit the workspace's lints.
    Lints,
}

impl Exceptions {
    pub fn load(root: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(root.join(LIST));
        Self::parse(&text.map_err(|error| format!("{LIST}: {error}"))?)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let entries = lines.map(|(at, line)| {
            Entry::parse(at + 1, line).ok_or_else(|| format!("{LIST}:{}: cannot be read", at + 1))
        });
        Ok(Self { entries: entries.collect::<Result<_, _>>()? })
    }

    pub fn file_length(&mut self, file: &Source) -> Option<Violation> {
        let count = file.text.lines().count();
        if count <= FILE_LINES {
            return None;
        }
        let excepted = |subject: &Subject| match subject {
            Subject::File(lines) => Some(*lines),
            _ => None,
        };
        let limit = self.find(&file.path, excepted).unwrap_or(FILE_LINES);
        let what = format!("{count} lines, the limit is {limit}");
        (count > limit).then(|| Violation::new(&file.path, 1, what))
    }

    pub fn function_lengths(&mut self, file: &Source, functions: &[Function]) -> Vec<Violation> {
        let too_long = |function: &&Function| function.length > FUNCTION_LINES;
        let violation = |function: &Function| {
            let Function { name, line, length } = function;
            let excepted = |subject: &Subject| match subject {
                Subject::Function(excepted, lines) if excepted == name => Some(*lines),
                _ => None,
            };
            let limit = self.find(&file.path, excepted).unwrap_or(FUNCTION_LINES);
            let what = format!("fn {name} has {length} lines, the limit is {limit}");
            (*length > limit).then(|| Violation::new(&file.path, *line, what))
        };
        functions.iter().filter(too_long).filter_map(violation).collect()
    }

    /// Entries that nothing needs. Valid after every file has been looked at.
    pub fn unused(&self) -> Vec<Violation> {
        let unused = self.entries.iter().filter(|entry| !entry.needed);
        let what = "this exception is not needed any more: remove it";
        unused.map(|entry| Violation::new(LIST, entry.line, what)).collect()
    }

    /// Whether this manifest may go without the workspace's lints.
    pub fn lints(&mut self, path: &str) -> bool {
        let lints = |subject: &Subject| matches!(subject, Subject::Lints).then_some(0);
        self.find(path, lints).is_some()
    }

    fn find(&mut self, path: &str, pick: impl Fn(&Subject) -> Option<usize>) -> Option<usize> {
        let mut entries = self.entries.iter_mut().filter(|entry| entry.path == path);
        entries.find_map(|entry| {
            let found = pick(&entry.subject);
            entry.needed |= found.is_some();
            found
        })
    }
}

impl Entry {
    fn parse(line: usize, text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (path, subject) = match words[..] {
            ["file", path, lines] => (path, Subject::File(lines.parse().ok()?)),
            ["function", path, name, lines] => {
                (path, Subject::Function(name.to_owned(), lines.parse().ok()?))
            }
            ["lints", path] => (path, Subject::Lints),
            _ => return None,
        };
        Some(Self { line, path: path.to_owned(), subject, needed: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: usize) -> Source {
        Source::new("a.rs", "x\n".repeat(lines))
    }

    fn function(length: usize) -> [Function; 1] {
        [Function { name: "f".into(), line: 3, length }]
    }

    #[test]
    fn long_files_need_an_entry() {
        let mut none = Exceptions::default();
        assert!(none.file_length(&file(500)).is_none());
        let violation = none.file_length(&file(501)).unwrap();
        assert_eq!(violation.to_string(), "a.rs:1: 501 lines, the limit is 500");
        let mut one = Exceptions::parse("# why\nfile a.rs 600\n").unwrap();
        assert!(one.file_length(&file(600)).is_none());
        assert!(one.file_length(&file(601)).is_some());
    }

    #[test]
    fn long_functions_need_an_entry() {
        let mut none = Exceptions::default();
        assert!(none.function_lengths(&file(1), &function(70)).is_empty());
        let violations = none.function_lengths(&file(1), &function(71));
        assert_eq!(violations[0].to_string(), "a.rs:3: fn f has 71 lines, the limit is 70");
        let mut one = Exceptions::parse("function a.rs f 80").unwrap();
        assert!(one.function_lengths(&file(1), &function(80)).is_empty());
        assert!(!one.function_lengths(&file(1), &function(81)).is_empty());
    }

    #[test]
    fn the_list_only_shrinks() {
        let mut list = Exceptions::parse("file a.rs 600\nfunction a.rs f 80\n").unwrap();
        assert_eq!(list.unused().len(), 2);
        assert!(list.file_length(&file(550)).is_none());
        assert_eq!(list.unused()[0].line, 2);
        assert!(list.function_lengths(&file(1), &function(75)).is_empty());
        assert!(list.unused().is_empty());
        assert!(Exceptions::parse("folder a 1").is_err());
    }

    #[test]
    fn manifests_without_lints_need_an_entry() {
        let mut list = Exceptions::parse("lints a/Cargo.toml").unwrap();
        assert!(!list.lints("b/Cargo.toml"));
        assert_eq!(list.unused().len(), 1);
        assert!(list.lints("a/Cargo.toml"));
        assert!(list.unused().is_empty());
    }
}
