//! The texts of what most transactions write, one for each shape that it comes in.
//!
//! The arrays are unnested in the list of a SELECT and not behind its FROM: there each of them
//! would be copied into a store of its own first, which costs more than writing the rows.

use std::fmt::Write as _;

use ff_core::rows::{AttemptRow, ExecutionRow, TimerRow};

use crate::binding::{Columns, Group};
use crate::config::SERVER_START;
use crate::groups::{
    Attempt, AttemptOwn, Detail, Documents, EventEach, EventHome, EventShared, Key, Moved,
    MovedOwn, NewEach, NewOptions, NewShared, Placed, Timer, Unsure,
};
use crate::hanging::Other;

/// What a statement consists of. No part touches a row of another.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Executions,
    Moved,
    Rewritten,
    NewAttempts,
    Attempts,
    Timers,
    Events,
}

/// The parts of a statement and which of their groups of columns are single values.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Shape(u32);

impl Shape {
    pub fn add(&mut self, part: Part, first_alike: bool, second_alike: bool) {
        let bits = 1 | u32::from(first_alike) << 1 | u32::from(second_alike) << 2;
        self.0 |= bits << (3 * part as u32);
    }

    /// The statement is a transaction of its own: it fails if it does not find all rows.
    pub fn be_alone(&mut self) {
        self.0 |= ALONE;
    }

    /// Rows are rewritten, with what is JSON or without; the rest may be the same for all of them.
    pub fn rewrite(&mut self, alike: bool, documents: bool) {
        self.0 |= if alike { DETAIL_ALIKE } else { 0 };
        self.0 |= if documents { DOCUMENTS } else { 0 };
    }

    fn get(self, part: Part) -> Option<(bool, bool)> {
        let bits = self.0 >> (3 * part as u32);
        (bits & 1 == 1).then_some((bits & 2 != 0, bits & 4 != 0))
    }
}

const ALONE: u32 = 1 << 31;
const DETAIL_ALIKE: u32 = 1 << 30;
const DOCUMENTS: u32 = 1 << 29;

/// A column and the parameter that brings it.
#[derive(Clone, Copy)]
struct Taken {
    name: &'static str,
    kind: &'static str,
    place: usize,
    alike: bool,
}

impl Taken {
    fn value(&self) -> String {
        let Self { name, kind, place, alike } = self;
        if *alike { format!("${place}::{kind}") } else { format!("u.{name}") }
    }
}

/// Numbers the parameters of a statement.
struct Parameters(usize);

impl Parameters {
    fn next(&mut self) -> usize {
        self.0 += 1;
        self.0
    }

    fn take(&mut self, groups: &[(Columns, bool)]) -> Vec<Taken> {
        let columns = groups
            .iter()
            .flat_map(|(columns, alike)| columns.iter().map(|(name, kind)| (*name, *kind, *alike)));
        columns.map(|(name, kind, alike)| Taken { name, kind, place: self.next(), alike }).collect()
    }
}

fn columns<'r, R: Copy, G: Group<'r, R>>(_: G) -> Columns {
    G::COLUMNS
}

/// The text of a statement that may have other parts, whose parameters come first.
pub(crate) fn text((shape, others): &(Shape, Vec<Other>)) -> String {
    let mut parameters = Parameters(others.iter().map(|other| other.parameters()).sum());
    if let Some((shared, options)) = shape.get(Part::Executions) {
        let each = columns::<&ExecutionRow, _>(NewEach);
        let groups = [(each, false), (columns(NewShared), shared), (columns(NewOptions), options)];
        return insert("ff_exec_core", &parameters.take(&groups));
    }
    let (mut with, mut counts) = (String::new(), Vec::new());
    let mut add = |part: String, compared: bool| {
        let place = counts.len();
        let comma = if place == 0 { "" } else { ", " };
        let _ = write!(with, "{comma}p{place} AS ({part} RETURNING 1)");
        counts.push((format!("(SELECT count(*) FROM p{place})"), compared));
    };
    // Executions come first, as with those who lock: whatever hangs on one waits for it.
    for part in [Part::Moved, Part::Rewritten, Part::NewAttempts, Part::Attempts, Part::Timers] {
        if let Some(alike) = shape.get(part) {
            add(part_text(part, *shape, alike, &mut parameters), true);
        }
    }
    let mut first = 1;
    for other in others {
        add(other.text(first), other.is_compared());
        first += other.parameters();
    }
    match shape.get(Part::Events) {
        Some(alike) => {
            let alone = shape.0 & ALONE != 0;
            if alone {
                counts.push((SERVER_START.to_owned(), true));
            }
            let answer = if alone { OR_FAIL } else { ANSWER };
            append(&with, &counts, alike, &mut parameters) + answer
        }
        None => {
            let compared = counts.into_iter().filter(|(_, compared)| *compared);
            let mut answer: Vec<String> = compared.map(|(count, _)| count).collect();
            answer.push("pg_current_xact_id()::xid::text".to_owned());
            format!("WITH {with} SELECT {}", answer.join(", "))
        }
    }
}

fn part_text(
    part: Part,
    shape: Shape,
    (first, second): (bool, bool),
    parameters: &mut Parameters,
) -> String {
    let execution = [
        (columns::<Unsure<'_, ExecutionRow>, _>(Key), false),
        (columns(Moved), first),
        (columns(MovedOwn), second),
        (columns(Detail), shape.0 & DETAIL_ALIKE != 0),
        (columns(Documents), false),
    ];
    let rewritten = if shape.0 & DOCUMENTS != 0 { 5 } else { 4 };
    let attempt = [
        (columns::<Unsure<'_, AttemptRow>, _>(Key), false),
        (columns(Attempt), first),
        (columns(AttemptOwn), second),
    ];
    let key = ["partition_key", "execution_id", "attempt_index"];
    match part {
        Part::Moved => update("ff_exec_core", &key[..2], &parameters.take(&execution[..3])),
        Part::Rewritten => {
            update("ff_exec_core", &key[..2], &parameters.take(&execution[..rewritten]))
        }
        Part::NewAttempts => insert("ff_attempt", &parameters.take(&attempt)),
        Part::Attempts => update("ff_attempt", &key, &parameters.take(&attempt)),
        Part::Timers | Part::Executions | Part::Events => {
            let timer = columns::<&TimerRow, _>(Timer);
            let put = insert("ff_timer", &parameters.take(&[(timer, false)]));
            format!(
                "{put} ON CONFLICT (due_at_ms, kind, subject) DO UPDATE SET members = \
                 excluded.members"
            )
        }
    }
}

/// Names the transaction that must have left a row that was not read; it is not a column.
const WRITER: &str = "writer";

fn rows(taken: &[Taken]) -> String {
    let array = |column: &Taken| {
        let Taken { name, kind, place, .. } = column;
        format!("unnest(${place}::{kind}[]) AS {name}")
    };
    let arrays: Vec<_> = taken.iter().filter(|column| !column.alike).map(array).collect();
    format!("(SELECT {}) AS u", arrays.join(", "))
}

fn insert(table: &str, taken: &[Taken]) -> String {
    let stored: Vec<_> = taken.iter().filter(|column| column.name != WRITER).collect();
    let names: Vec<_> = stored.iter().map(|column| column.name).collect();
    let values: Vec<_> = stored.iter().map(|column| column.value()).collect();
    let (names, values) = (names.join(", "), values.join(", "));
    format!("INSERT INTO {table} ({names}) SELECT {values} FROM {}", rows(taken))
}

/// An update of rows of which some were not read: those must be as one transaction left them.
fn update(table: &str, key: &[&str], taken: &[Taken]) -> String {
    let (mut set, mut found) = (Vec::new(), Vec::new());
    if table == "ff_exec_core" {
        // Whatever the engine writes has its event.
        set.push("announced = true".to_owned());
    }
    for column in taken {
        let (name, value) = (column.name, column.value());
        if key.contains(&name) {
            found.push(format!("{table}.{name} = {value}"));
        } else if name == WRITER {
            found.push(format!("({value} IS NULL OR {table}.xmin = {value}::xid)"));
        } else {
            set.push(format!("{name} = {value}"));
        }
    }
    let (set, found) = (set.join(", "), found.join(" AND "));
    format!("UPDATE {table} SET {set} FROM {} WHERE {found}", rows(taken))
}

/// Where the events are, and the name of the transaction.
const ANSWER: &str = " SELECT shard, base, pg_current_xact_id()::xid::text FROM place";

/// The same for the one shard that is touched. If there is none the division fails, and with it
/// everything that the statement wrote.
const OR_FAIL: &str = " SELECT max(shard), coalesce(max(base), 0) / count(*), \
    pg_current_xact_id()::xid::text FROM place";

/// The counters of the touched shards go up once the other parts have found their rows, and the
/// events take the places between. Nothing comes back if a part has missed one.
fn append(
    with: &str,
    counts: &[(String, bool)],
    (shared, home): (bool, bool),
    parameters: &mut Parameters,
) -> String {
    let each = columns::<Placed<'_>, _>(EventEach);
    let groups = [(each, false), (columns(EventShared), shared), (columns(EventHome), home)];
    let events = parameters.take(&groups);
    let (shards, many) = (parameters.next(), parameters.next());
    let mut complete = String::new();
    for (count, compared) in counts {
        // Whatever is not compared is still written before the counters are locked.
        let _ = match compared {
            true => write!(complete, " AND {count} = ${}::int8", parameters.next()),
            false => write!(complete, " AND {count} >= 0"),
        };
    }
    let shard = events.iter().find(|column| column.name == "shard").map(Taken::value);
    let comma = if with.is_empty() { "" } else { ", " };
    let write = insert("ff_event", &events).replacen("u.seq", "place.base + u.seq", 1);
    format!(
        "WITH {with}{comma}place AS ( \
           UPDATE ff_event_shard AS s SET head = s.head + n.many \
           FROM (SELECT unnest(${shards}::int2[]) AS shard, unnest(${many}::int8[]) AS many) AS n \
           WHERE s.shard = n.shard{complete} RETURNING s.shard, s.head - n.many AS base \
         ), written AS ({write} JOIN place ON place.shard = {})",
        shard.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agrees_is_one_value_and_what_does_not_is_an_array() {
        let mut shape = Shape::default();
        shape.add(Part::Executions, true, false);
        let text = text(&(shape, Vec::new()));
        assert!(text.contains("unnest($1::uuid[]) AS execution_id"), "{text}");
        assert!(text.contains("$5::text"), "{text}");
        assert!(!text.contains("AS lane_id"), "{text}");
        assert!(text.contains("unnest($17::text[]) AS idempotency_key"), "{text}");
    }

    #[test]
    fn rows_are_found_by_arrays_only() {
        for part in [Part::Moved, Part::Attempts] {
            let mut shape = Shape::default();
            shape.add(part, true, true);
            let text = text(&(shape, Vec::new()));
            assert!(text.contains(".partition_key = u.partition_key AND "), "{text}");
            assert!(text.contains(".execution_id = u.execution_id"), "{text}");
        }
    }

    #[test]
    fn the_log_is_counted_up_after_everything_else() {
        let mut shape = Shape::default();
        shape.add(Part::Moved, false, true);
        shape.add(Part::Events, true, true);
        let text = text(&(shape, Vec::new()));
        assert!(text.contains("AND (SELECT count(*) FROM p0) = $35::int8"), "{text}");
        assert!(text.contains("place.base + u.seq"), "{text}");
        assert!(text.contains("ff_exec_core.xmin = $14::text::xid"), "{text}");
    }
}
