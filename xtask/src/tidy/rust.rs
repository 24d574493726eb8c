//! Checks on Rust files. Each is a function from a file to what is wrong with it.

use super::Violation;
use super::source::{Layers, Source, is_word, test_lines};

/// A function, where it begins and how many lines it takes.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub length: usize,
}

const COLUMNS: usize = 100;
const PURE: [&str; 2] = ["crates/ff-core/src/operations/", "crates/ff-core/src/rows/"];
const IMPURE: [&str; 13] = [
    "async",
    ".await",
    "SystemTime",
    "Instant",
    "TimestampMs::now",
    "fastrand",
    "rand",
    "Uuid::new_v4",
    "Uuid::now_v7",
    "std::fs",
    "std::net",
    "tokio",
    "tracing",
];

/// A file opens by saying what it is for.
pub fn opening(file: &Source) -> Option<Violation> {
    let opens = file.text.starts_with("//!");
    (!opens).then(|| Violation::new(&file.path, 1, "does not open with a `//!` line"))
}

pub fn columns(file: &Source) -> Vec<Violation> {
    lines_where(file, &file.text, |line| {
        let columns = line.chars().count();
        (columns > COLUMNS).then(|| format!("{columns} columns, the limit is {COLUMNS}"))
    })
}

/// Nothing is left for later in the code.
pub fn unfinished(file: &Source, layers: &Layers) -> Vec<Violation> {
    let mut found = lines_where(file, &layers.code, |line| {
        let macros = ["todo!", "dbg!", "unimplemented!"];
        macros.iter().find(|word| has_word(line, word)).map(|word| format!("`{word}`"))
    });
    found.extend(lines_where(file, &layers.comments, |line| {
        let words = ["TODO", "FIXME", "XXX"];
        words.iter().find(|word| has_word(line, word)).map(|word| format!("`{word}` in a comment"))
    }));
    found
}

/// A comment says why, not under which number somebody asked for it. A test may name what it pins.
pub fn tickets(file: &Source, layers: &Layers) -> Vec<Violation> {
    let tests = test_lines(&layers.code);
    let mut line_number = 0;
    lines_where(file, &layers.comments, |line| {
        line_number += 1;
        let in_test = file.is_test_file() || tests.get(line_number - 1) == Some(&true);
        (!in_test && has_ticket(line)).then(|| "a ticket number in a comment".into())
    })
}

/// Rules about state do no I/O, read no clock and draw no random number.
pub fn purity(file: &Source, layers: &Layers) -> Vec<Violation> {
    if !PURE.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    lines_where(file, &layers.code, |line| {
        let impure = IMPURE.iter().find(|word| has_word(line, word));
        impure.map(|word| format!("`{word}` in the pure part of the core"))
    })
}

/// A crate's own code handles its errors, or says with `expect` why there can be none.
pub fn unwraps(file: &Source, layers: &Layers) -> Vec<Violation> {
    if !file.path.starts_with("crates/") || !file.path.contains("/src/") || file.is_test_file() {
        return Vec::new();
    }
    let tests = test_lines(&layers.code);
    let mut line_number = 0;
    lines_where(file, &layers.code, |line| {
        line_number += 1;
        let in_test = tests.get(line_number - 1) == Some(&true);
        (!in_test && line.contains(".unwrap()")).then(|| "`.unwrap()` outside tests".into())
    })
}

/// The core names no backend, and backends do not name each other.
pub fn foreign_backends(file: &Source, layers: &Layers) -> Vec<Violation> {
    let Some(owner) = backend_free_crate(&file.path) else {
        return Vec::new();
    };
    lines_where(file, &layers.code, |line| {
        let named = backend_names(line, "ff_backend_").find(|name| *name != owner)?;
        Some(format!("names the backend `{named}`"))
    })
}

/// The crate, with underscores, if it must not name foreign backends.
pub fn backend_free_crate(path: &str) -> Option<String> {
    let name = path.strip_prefix("crates/")?.split('/').next()?.replace('-', "_");
    (name == "ff_core" || name.starts_with("ff_backend_")).then_some(name)
}

/// Every word in the line that begins with the prefix.
pub fn backend_names<'t>(line: &'t str, prefix: &'t str) -> impl Iterator<Item = &'t str> {
    line.match_indices(prefix).map(|(at, _)| {
        let end = line[at..].find(|c: char| !is_word(c) && c != '-');
        &line[at..end.map_or(line.len(), |end| at + end)]
    })
}

/// All functions with a body, nested ones included.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let before = code[..at].chars().next_back();
        let after = &code[at + 3..];
        let name: String = after.trim_start().chars().take_while(|c| is_word(*c)).collect();
        if before.is_some_and(is_word) || name.is_empty() {
            continue;
        }
        if let Some(len) = body_end(after) {
            let line = code[..at].lines().count().max(1);
            let line = if code[..at].ends_with('\n') { line + 1 } else { line };
            let length = after[..len].matches('\n').count() + 1;
            found.push(Function { name, line, length });
        }
    }
    found
}

/// Where the body that follows a signature ends; nothing if there is none.
fn body_end(signature: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0usize, 0usize);
    for (at, c) in signature.char_indices() {
        match c {
            '(' | '[' if braces == 0 => brackets += 1,
            ')' | ']' if braces == 0 => brackets = brackets.saturating_sub(1),
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' if braces <= 1 => return (braces == 1).then_some(at),
            '}' => braces -= 1,
            _ => {}
        }
    }
    None
}

fn lines_where(
    file: &Source,
    text: &str,
    mut what: impl FnMut(&str) -> Option<String>,
) -> Vec<Violation> {
    let lines = text.lines().enumerate();
    let found = lines.filter_map(|(at, line)| Some((at + 1, what(line)?)));
    found.map(|(line, what)| Violation::new(&file.path, line, what)).collect()
}

/// The word stands alone, not as part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().filter(|_| word.starts_with(is_word));
        let after = line[at + word.len()..].chars().next().filter(|_| word.ends_with(is_word));
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn has_ticket(line: &str) -> bool {
    line.match_indices('#').any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let number = line[at + 1..].starts_with(|c: char| c.is_ascii_digit());
        number && !before.is_some_and(|c| is_word(c) || c == '&')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "crates/ff-core/src/a.rs";
    const OPERATION: &str = "crates/ff-core/src/operations/a.rs";

    /// Runs one check over a sample and returns the lines that it names.
    fn lines<I: IntoIterator<Item = Violation>>(
        check: impl Fn(&Source, &Layers) -> I,
        path: &str,
        text: &str,
    ) -> Vec<usize> {
        let file = Source::new(path, text);
        check(&file, &file.layers()).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn files_open_with_their_purpose() {
        let check = |file: &Source, _: &Layers| opening(file);
        assert_eq!(lines(check, PLAIN, "use std::fmt;\n"), [1]);
        assert!(lines(check, PLAIN, "//! Formats.\n").is_empty());
    }

    #[test]
    fn long_lines() {
        let check = |file: &Source, _: &Layers| columns(file);
        let text = format!("{}\n{}\n", "é".repeat(100), "x".repeat(101));
        assert_eq!(lines(check, PLAIN, &text), [2]);
    }

    #[test]
    fn unfinished_work() {
        let text =
            "todo!();\nlet a = \"todo!\";\n// TODO: later\nunimplemented!()\ndbg!(x)\n// XXX";
        let mut found = lines(unfinished, PLAIN, text);
        found.sort_unstable();
        assert_eq!(found, [1, 3, 4, 5, 6]);
        assert!(lines(unfinished, PLAIN, "// XXXL\nmytodo!()").is_empty());
    }

    #[test]
    fn ticket_numbers() {
        let text = "// See #12.\n#[cfg(test)]\nmod tests {\n    // Pins #13.\n}\n// r#1 &#39;\n";
        assert_eq!(lines(tickets, PLAIN, text), [1]);
        assert!(lines(tickets, "crates/a/tests/it/b.rs", "// See #12.").is_empty());
    }

    #[test]
    fn impure_operations() {
        for word in IMPURE {
            assert_eq!(lines(purity, OPERATION, &format!("x{word} {word}();\n")), [1], "{word}");
        }
        assert!(lines(purity, OPERATION, "// async\nlet operand = asynchronous;").is_empty());
        assert!(lines(purity, PLAIN, "tokio::spawn(f())").is_empty());
    }

    #[test]
    fn unwraps_outside_tests() {
        let text = "fn a() {\n    b.unwrap();\n}\n#[cfg(test)]\nmod tests {\n    c.unwrap();\n}\n";
        assert_eq!(lines(unwraps, PLAIN, text), [2]);
        assert!(lines(unwraps, "xtask/src/a.rs", text).is_empty());
        assert!(lines(unwraps, "crates/a/src/tests.rs", text).is_empty());
        assert!(lines(unwraps, "crates/ff-conformance/src/a.rs", text).is_empty());
    }

    #[test]
    fn backends_that_name_each_other() {
        let text = "use ff_backend_sqlite::A;\nuse ff_core::B;\n";
        assert_eq!(lines(foreign_backends, PLAIN, text), [1]);
        assert_eq!(lines(foreign_backends, "crates/ff-backend-postgres/src/a.rs", text), [1]);
        assert!(lines(foreign_backends, "crates/ff-backend-sqlite/tests/a.rs", text).is_empty());
        assert!(lines(foreign_backends, "crates/flowfabric/src/lib.rs", text).is_empty());
    }

    #[test]
    fn functions_and_their_lengths() {
        let code = "trait T {\n    fn a(&self);\n    fn b(x: [u8; 2]) -> u8 {\n        1\n    }\n\
                    }\nfn c() {\n    if x { y }\n    fn d() {}\n}\ntype F = fn (u8);\n";
        let function = |name: &str, line, length| Function { name: name.into(), line, length };
        assert_eq!(
            functions(code),
            [function("b", 3, 3), function("c", 7, 4), function("d", 9, 1)]
        );
    }
}
