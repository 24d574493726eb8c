//! Data goes to stdout in the form that was asked for; talk goes to stderr.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde_json::Value;

use crate::failure::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One value, indented.
    Json,
    /// One value on each line.
    Jsonl,
}

/// A column of a table: its head, and where its value is in the data.
pub struct Column {
    pub head: &'static str,
    pub path: &'static str,
}

pub const fn column(head: &'static str, path: &'static str) -> Column {
    Column { head, path }
}

#[derive(Clone, Copy)]
pub struct Output {
    pub format: Format,
}

impl Output {
    /// Many things of one kind, under the name that they have in the answer.
    pub fn list(self, answer: &Value, name: &str, columns: &[Column]) -> Result<(), Failure> {
        match self.format {
            Format::Json => line(&indented(answer)),
            Format::Jsonl => {
                for item in items(answer, name) {
                    line(&item.to_string())?;
                }
                Ok(())
            }
            Format::Table => {
                let items = items(answer, name);
                if items.is_empty() {
                    say(&format!("no {}", name.replace('_', " ")));
                    return Ok(());
                }
                line(&table(columns, items))
            }
        }
    }

    /// One thing with all that is known of it.
    pub fn one(self, answer: &Value) -> Result<(), Failure> {
        match self.format {
            Format::Json => line(&indented(answer)),
            Format::Jsonl => line(&answer.to_string()),
            Format::Table => line(&fields(answer)),
        }
    }

    /// One thing of many that come one by one.
    pub fn each(self, item: &Value, columns: &[Column]) -> Result<(), Failure> {
        match self.format {
            Format::Json | Format::Jsonl => line(&item.to_string()),
            Format::Table => {
                let cells: Vec<String> =
                    columns.iter().map(|column| cell(item, column.path)).collect();
                line(&cells.join("  "))
            }
        }
    }
}

/// Says something to the person at the terminal, or in the log of a server if that is JSON.
pub fn say(text: &str) {
    if crate::log::is_json() {
        tracing::info!("{text}");
    } else {
        // A reader that has gone needs no words, and there is no place to complain.
        let _ = writeln!(io::stderr(), "{text}");
    }
}

pub fn line(text: &str) -> Result<(), Failure> {
    write(format!("{text}\n").as_bytes())
}

/// Writes to stdout. Ends the process, without complaint, if its reader has gone: it has seen
/// enough.
pub fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => Ok(written?),
    }
}

fn items<'v>(answer: &'v Value, name: &str) -> &'v [Value] {
    answer[name].as_array().map_or(&[], |items| items.as_slice())
}

fn indented(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Identifiers are never cut: whoever reads one wants to use it.
fn table(columns: &[Column], items: &[Value]) -> String {
    let head = columns.iter().map(|column| column.head.to_owned()).collect();
    let row = |item: &Value| columns.iter().map(|column| cell(item, column.path)).collect();
    aligned(std::iter::once(head).chain(items.iter().map(row)).collect())
}

fn fields(value: &Value) -> String {
    let Some(object) = value.as_object() else { return plain(value) };
    let known = object.iter().filter(|(_, value)| !is_nothing(value));
    aligned(known.map(|(name, value)| vec![name.clone(), plain(value)]).collect())
}

/// Columns as wide as their widest cell; the last one as long as it is.
fn aligned(rows: Vec<Vec<String>>) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// The value at a path of names with dots between them.
fn cell(item: &Value, path: &str) -> String {
    let value = path.split('.').fold(item, |value, name| &value[name]);
    plain(value)
}

/// Control characters in somebody's text must not reach the terminal.
fn plain(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    };
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Asks for a yes, unless it was given on the command line.
pub fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{question} Nothing was done."))
            .hint("say --yes to do it without being asked"));
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::usage("nothing was done"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_show_paths_and_keep_identifiers_whole() {
        let id = "{fp:12}:0193b3c4-0000-7000-8000-000000000001";
        let items = [json!({"id": id, "lease": {"worker": "w-1"}}), json!({"id": "x"})];
        let text = table(&[column("ID", "id"), column("WORKER", "lease.worker")], &items);
        assert!(text.contains(id), "{text}");
        assert!(text.lines().nth(2).is_some_and(|line| line.ends_with('-')), "{text}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(plain(&json!("a\u{1b}[31mb")), "a\u{fffd}[31mb");
    }
}
