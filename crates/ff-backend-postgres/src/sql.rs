//! The statements that write, one for all rows of a table: an array for each column comes in.
//!
//! The arrays are unnested in the list of a SELECT and not behind its FROM: there each of them
//! would be copied into a store of its own first, which costs more than writing the rows.

use std::fmt::Write as _;

use ff_core::rows::RECORDS;

use crate::hanging::Other;
use crate::texts::Texts;
use crate::together::Shape;

/// The texts, put together once.
pub(crate) struct Writes {
    pub texts: Texts<(Shape, Vec<Other>)>,
    pub delete_attempts: String,
    pub insert_idempotency: String,
    pub update_idempotency: String,
    pub delete_idempotency: String,
    pub insert_lanes: String,
    pub update_lanes: String,
    pub purge: Vec<String>,
}

/// Columns and the types of their arrays. `json` arrives as text.
pub(crate) type Columns = &'static [(&'static str, &'static str)];

const KEY: Columns = &[("partition_key", "int2"), ("execution_id", "uuid")];

const ATTEMPT_KEY: Columns =
    &[("partition_key", "int2"), ("execution_id", "uuid"), ("attempt_index", "int4")];

pub(crate) const TIMER_KEY: Columns =
    &[("due_at_ms", "int8"), ("kind", "text"), ("subject", "uuid")];

const WORD_KEY: Columns = &[("namespace", "text"), ("idempotency_key", "text")];

const IDEMPOTENCY: Columns = &[
    ("partition_key", "int2"),
    ("execution_id", "uuid"),
    ("fingerprint", "bytea"),
    ("expires_at_ms", "int8"),
];

const LANE: Columns = &[
    ("lane_state", "text"),
    ("paused_reason", "text"),
    ("paused_by", "text"),
    ("paused_at_ms", "int8"),
    ("limited", "bool"),
];

pub(crate) const FLOW_KEY: Columns = &[("partition_key", "int2"), ("flow_id", "uuid")];

pub(crate) const FLOW: Columns = &[
    ("namespace", "text"),
    ("flow_kind", "text"),
    ("graph_revision", "int8"),
    ("public_flow_state", "text"),
    ("created_at_ms", "int8"),
    ("terminal_at_ms", "int8"),
    ("node_count", "int8"),
    ("edge_count", "int8"),
    ("completed_count", "int8"),
    ("failed_count", "int8"),
    ("cancelled_count", "int8"),
    ("expired_count", "int8"),
    ("skipped_count", "int8"),
    ("spared_count", "int8"),
    ("raw_fields", "json"),
];

impl Default for Writes {
    fn default() -> Self {
        let lane_key = &[("lane_id", "text")];
        let owned = RECORDS.iter().filter(|spec| spec.owned).map(|spec| spec.table);
        let known = ["ff_event", "ff_attempt", "ff_exec_core"];
        Self {
            texts: Texts::default(),
            delete_attempts: delete(1, "ff_attempt", ATTEMPT_KEY, Many::Arrays),
            insert_idempotency: insert(1, "ff_idempotency", &[WORD_KEY, IDEMPOTENCY], Many::Arrays),
            update_idempotency: update(1, "ff_idempotency", WORD_KEY, IDEMPOTENCY, Many::Arrays),
            delete_idempotency: delete(1, "ff_idempotency", WORD_KEY, Many::Arrays),
            insert_lanes: insert(1, "ff_lane", &[lane_key, LANE], Many::Arrays),
            update_lanes: update(1, "ff_lane", lane_key, LANE, Many::Arrays),
            purge: owned.chain(known).map(|table| delete(1, table, KEY, Many::Arrays)).collect(),
        }
    }
}

/// How many rows come in: with one, its values come as they are, which is planned and run faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Many {
    One,
    Arrays,
}

impl Many {
    pub fn of(rows: usize) -> Self {
        if rows == 1 { Self::One } else { Self::Arrays }
    }
}

/// What comes in as a table `u`, its first column being this parameter.
pub(crate) fn rows(first: usize, columns: &[(&str, &str)], many: Many) -> String {
    let mut list = String::new();
    for (place, (name, kind)) in columns.iter().enumerate() {
        let kind = if *kind == "json" { "text" } else { kind };
        let comma = if place == 0 { "" } else { ", " };
        let place = first + place;
        let _ = match many {
            Many::One => write!(list, "{comma}${place}::{kind} AS {name}"),
            Many::Arrays => write!(list, "{comma}unnest(${place}::{kind}[]) AS {name}"),
        };
    }
    format!("(SELECT {list}) AS u")
}

fn value((name, kind): &(&str, &str)) -> String {
    if *kind == "json" { format!("u.{name}::jsonb") } else { format!("u.{name}") }
}

fn names(columns: &[(&str, &str)]) -> String {
    columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

pub(crate) fn matching(table: &str, key: &[(&str, &str)]) -> String {
    let same = |(name, _): &(&str, &str)| format!("{table}.{name} = u.{name}");
    key.iter().map(same).collect::<Vec<_>>().join(" AND ")
}

pub(crate) fn insert(first: usize, table: &str, columns: &[&[(&str, &str)]], many: Many) -> String {
    let columns = columns.concat();
    let values: Vec<_> = columns.iter().map(value).collect();
    let (names, values, rows) = (names(&columns), values.join(", "), rows(first, &columns, many));
    format!("INSERT INTO {table} ({names}) SELECT {values} FROM {rows}")
}

pub(crate) fn update(
    first: usize,
    table: &str,
    key: &[(&str, &str)],
    columns: &[(&str, &str)],
    many: Many,
) -> String {
    let set: Vec<_> =
        columns.iter().map(|column| format!("{} = {}", column.0, value(column))).collect();
    let rows = rows(first, &[key, columns].concat(), many);
    format!("UPDATE {table} SET {} FROM {rows} WHERE {}", set.join(", "), matching(table, key))
}

/// The same for rows that get the same values; those follow the arrays of the key.
pub(crate) fn update_alike(
    first: usize,
    table: &str,
    key: &[(&str, &str)],
    columns: &[(&str, &str)],
) -> String {
    let set = columns.iter().enumerate().map(|(at, (name, kind))| {
        let place = first + key.len() + at;
        match *kind {
            "json" => format!("{name} = ${place}::text::jsonb"),
            kind => format!("{name} = ${place}::{kind}"),
        }
    });
    let set = set.collect::<Vec<_>>().join(", ");
    let rows = rows(first, key, Many::Arrays);
    format!("UPDATE {table} SET {set} FROM {rows} WHERE {}", matching(table, key))
}

pub(crate) fn delete(first: usize, table: &str, key: &[(&str, &str)], many: Many) -> String {
    let rows = rows(first, key, many);
    format!("DELETE FROM {table} USING {rows} WHERE {}", matching(table, key))
}

pub(crate) const LOCK_SHARDS: &str =
    "SELECT shard FROM ff_event_shard WHERE shard = ANY($1) ORDER BY shard FOR UPDATE";

/// Below the floor only the histories of living executions remain.
pub(crate) const TRIM_EVENTS: &str = "DELETE FROM ff_event AS e USING ff_event_shard AS s \
    WHERE s.shard = $1 AND e.shard = s.shard AND e.seq >= s.floor AND e.seq < $2 \
    AND e.execution_id IS NULL";

pub(crate) const RAISE_FLOOR: &str =
    "UPDATE ff_event_shard SET floor = $2, floor_mark = $3 WHERE shard = $1 AND floor < $2";
