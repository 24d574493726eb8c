//! The statements that write, one for all rows of a table: an array for each column comes in.
//!
//! The arrays are unnested in the list of a SELECT and not behind its FROM: there each of them
//! would be copied into a store of its own first, which costs more than writing the rows.

use std::fmt::Write as _;

use ff_core::rows::RECORDS;

/// The texts, put together once.
pub(crate) struct Writes {
    pub insert_executions: String,
    /// What most transactions write, in one statement for each combination of `PARTS`.
    pub together: [String; 1 << PARTS],
    pub delete_attempts: String,
    pub delete_timers: String,
    pub insert_idempotency: String,
    pub update_idempotency: String,
    pub delete_idempotency: String,
    pub insert_lanes: String,
    pub update_lanes: String,
    pub update_edge_groups: String,
    pub purge: Vec<String>,
    pub append_events: String,
}

/// The statements that are sent together: executions moved and rewritten, attempts inserted and
/// updated, timers put. None of them touches a row of another.
pub(crate) const PARTS: usize = 5;

/// A column and the type of its array. `json` arrives as text.
type Columns = &'static [(&'static str, &'static str)];

const KEY: Columns = &[("partition_key", "int2"), ("execution_id", "uuid")];

const NEW: Columns = &[
    ("flow_id", "uuid"),
    ("namespace", "text"),
    ("lane_id", "text"),
    ("execution_kind", "text"),
    ("payload", "bytea"),
    ("payload_encoding", "text"),
    ("creator_identity", "text"),
    ("idempotency_key", "text"),
    ("policy", "text"),
    ("required_capabilities", "text"),
    ("created_at_ms", "int8"),
    ("priority", "int4"),
    ("tags", "json"),
    ("lifecycle_phase", "text"),
    ("eligibility_state", "text"),
    ("public_state", "text"),
    ("blocking_reason", "text"),
    ("not_before_ms", "int8"),
    ("deadline_at_ms", "int8"),
    ("holds_key", "bool"),
    ("version", "int8"),
];

/// What every transition moves.
const MOVED: Columns = &[
    ("lifecycle_phase", "text"),
    ("ownership_state", "text"),
    ("eligibility_state", "text"),
    ("public_state", "text"),
    ("attempt_state", "text"),
    ("blocking_reason", "text"),
    ("started_at_ms", "int8"),
    ("terminal_at_ms", "int8"),
    ("result", "bytea"),
    ("lease_epoch", "int8"),
    ("version", "int8"),
];

/// What only some of them change.
const REWRITTEN: Columns = &[
    ("priority", "int4"),
    ("tags", "json"),
    ("attempt_index", "int4"),
    ("not_before_ms", "int8"),
    ("deadline_at_ms", "int8"),
    ("failure_reason", "text"),
    ("failure_category", "text"),
    ("cancellation_reason", "text"),
    ("cancelled_by", "text"),
    ("retry_count", "int4"),
    ("reclaim_count", "int4"),
    ("holds_key", "bool"),
    ("raw_fields", "json"),
];

const ATTEMPT_KEY: Columns =
    &[("partition_key", "int2"), ("execution_id", "uuid"), ("attempt_index", "int4")];

const ATTEMPT: Columns = &[
    ("attempt_type", "text"),
    ("lease_epoch", "int8"),
    ("worker_id", "text"),
    ("worker_instance_id", "text"),
    ("lease_expires_at_ms", "int8"),
    ("started_at_ms", "int8"),
    ("terminal_at_ms", "int8"),
    ("outcome", "text"),
    ("failure_reason", "text"),
    ("failure_category", "text"),
    ("retry_at_ms", "int8"),
    ("progress_pct", "int4"),
    ("progress_message", "text"),
];

const TIMER_KEY: Columns = &[("due_at_ms", "int8"), ("kind", "text"), ("subject", "uuid")];

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
];

const GROUP_KEY: Columns =
    &[("partition_key", "int2"), ("flow_id", "uuid"), ("downstream_eid", "uuid")];

const GROUP: Columns = &[
    ("success_count", "int4"),
    ("fail_count", "int4"),
    ("skip_count", "int4"),
    ("running_count", "int4"),
];

const EVENT: Columns = &[
    ("shard", "int2"),
    ("seq", "int8"),
    ("at_ms", "int8"),
    ("event_type", "text"),
    ("namespace", "text"),
    ("lane_id", "text"),
    ("execution_kind", "text"),
    ("execution_id", "uuid"),
    ("partition_key", "int2"),
    ("flow_id", "uuid"),
    ("from_state", "text"),
    ("to_state", "text"),
    ("version", "int8"),
    ("attempt_index", "int4"),
    ("lease_epoch", "int8"),
    ("lease_ended", "bool"),
    ("by_whom", "text"),
    ("details", "json"),
];

impl Default for Writes {
    fn default() -> Self {
        let lane_key = &[("lane_id", "text")];
        let owned = RECORDS.iter().filter(|spec| spec.owned).map(|spec| spec.table);
        let known = ["ff_event", "ff_attempt", "ff_exec_core"];
        Self {
            insert_executions: insert_executions(),
            together: std::array::from_fn(together),
            delete_attempts: delete("ff_attempt", ATTEMPT_KEY),
            delete_timers: delete("ff_timer", TIMER_KEY),
            insert_idempotency: insert(1, "ff_idempotency", &[WORD_KEY, IDEMPOTENCY]),
            update_idempotency: update(1, "ff_idempotency", WORD_KEY, &[IDEMPOTENCY]),
            delete_idempotency: delete("ff_idempotency", WORD_KEY),
            insert_lanes: insert(1, "ff_lane", &[lane_key, LANE]),
            update_lanes: update(1, "ff_lane", lane_key, &[LANE]),
            update_edge_groups: update(1, "ff_edge_group", GROUP_KEY, &[GROUP]),
            purge: owned.chain(known).map(|table| delete(table, KEY)).collect(),
            append_events: append_events(),
        }
    }
}

/// The arrays as a table `u`, the first of them being this parameter.
pub(crate) fn rows(first: usize, columns: &[(&str, &str)]) -> String {
    let mut list = String::new();
    for (place, (name, kind)) in columns.iter().enumerate() {
        let kind = if *kind == "json" { "text" } else { kind };
        let comma = if place == 0 { "" } else { ", " };
        let _ = write!(list, "{comma}unnest(${}::{kind}[]) AS {name}", first + place);
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

pub(crate) fn insert(first: usize, table: &str, columns: &[&[(&str, &str)]]) -> String {
    let columns = columns.concat();
    let values: Vec<_> = columns.iter().map(value).collect();
    let (names, values, rows) = (names(&columns), values.join(", "), rows(first, &columns));
    format!("INSERT INTO {table} ({names}) SELECT {values} FROM {rows}")
}

pub(crate) fn update(
    first: usize,
    table: &str,
    key: &[(&str, &str)],
    columns: &[&[(&str, &str)]],
) -> String {
    let changed = columns.concat();
    let set: Vec<_> =
        changed.iter().map(|column| format!("{} = {}", column.0, value(column))).collect();
    let rows = rows(first, &[key, &changed].concat());
    format!("UPDATE {table} SET {} FROM {rows} WHERE {}", set.join(", "), matching(table, key))
}

/// Only what another transaction than the engine's own brings is left to be announced.
fn insert_executions() -> String {
    let insert = insert(1, "ff_exec_core", &[KEY, NEW]);
    insert.replacen("(", "(announced, ", 1).replacen("SELECT ", "SELECT u.version > 0, ", 1)
}

/// Whatever the engine writes has its event.
fn update_executions(first: usize, columns: &[Columns]) -> String {
    let update = update_unread(first, "ff_exec_core", KEY, columns);
    update.replacen(" SET ", " SET announced = true, ", 1)
}

/// An update of rows of which some were not read: those must be as one transaction left them.
fn update_unread(first: usize, table: &str, key: Columns, columns: &[Columns]) -> String {
    let place = first + key.len() + columns.iter().map(|columns| columns.len()).sum::<usize>();
    let update = update(first, table, key, columns);
    let update = update.replace(") AS u", &format!(", unnest(${place}::text[]) AS writer) AS u"));
    format!("{update} AND (u.writer IS NULL OR {table}.xmin = u.writer::xid)")
}

/// One statement for the parts whose bits are set; it answers with the number of rows of each.
fn together(parts: usize) -> String {
    let mut first = 1;
    let (mut sql, mut counts) = (String::new(), String::new());
    for part in (0..PARTS).filter(|part| parts & (1 << part) != 0) {
        let (text, width) = match part {
            0 => (update_executions(first, &[MOVED]), 3 + MOVED.len()),
            1 => {
                let columns = &[MOVED, REWRITTEN];
                let width = 3 + MOVED.len() + REWRITTEN.len();
                (update_executions(first, columns), width)
            }
            2 => (insert(first, "ff_attempt", &[ATTEMPT_KEY, ATTEMPT]), 3 + ATTEMPT.len()),
            3 => (update_unread(first, "ff_attempt", ATTEMPT_KEY, &[ATTEMPT]), 4 + ATTEMPT.len()),
            _ => (put_timers(first), 1 + TIMER_KEY.len()),
        };
        let separator = if first == 1 { "" } else { ", " };
        let _ = write!(sql, "{separator}p{part} AS ({text} RETURNING 1)");
        let _ = write!(counts, "{separator}(SELECT count(*) FROM p{part})");
        first += width;
    }
    format!("WITH {sql} SELECT {counts}")
}

fn put_timers(first: usize) -> String {
    let put = insert(first, "ff_timer", &[TIMER_KEY, &[("members", "bytea")]]);
    format!("{put} ON CONFLICT (due_at_ms, kind, subject) DO UPDATE SET members = excluded.members")
}

pub(crate) fn delete(table: &str, key: &[(&str, &str)]) -> String {
    format!("DELETE FROM {table} USING {} WHERE {}", rows(1, key), matching(table, key))
}

/// The counters of the touched shards go up, and the events take the places between.
fn append_events() -> String {
    let mut values: Vec<_> = EVENT.iter().map(value).collect();
    values[1] = "place.base + u.seq".to_owned();
    format!(
        "WITH place AS ( \
           UPDATE ff_event_shard AS s SET head = s.head + n.many \
           FROM unnest($1::int2[], $2::int8[]) AS n(shard, many) WHERE s.shard = n.shard \
           RETURNING s.shard, s.head - n.many AS base \
         ), written AS ( \
           INSERT INTO ff_event ({}) SELECT {} FROM {} JOIN place ON place.shard = u.shard \
         ) SELECT shard, base, pg_current_xact_id()::xid::text FROM place",
        names(EVENT),
        values.join(", "),
        rows(3, EVENT)
    )
}

pub(crate) const INSERT_FLOW: &str = "INSERT INTO ff_flow_core (partition_key, flow_id, namespace, \
    graph_revision, public_flow_state, created_at_ms, terminal_at_ms, raw_fields) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb)";

/// Namespace and creation stay as they are; they are named so that both statements take the same.
pub(crate) const UPDATE_FLOW: &str = "UPDATE ff_flow_core SET namespace = $3, graph_revision = $4, \
    public_flow_state = $5, created_at_ms = $6, terminal_at_ms = $7, raw_fields = $8::text::jsonb \
    WHERE partition_key = $1 AND flow_id = $2";

pub(crate) const LOCK_SHARDS: &str =
    "SELECT shard FROM ff_event_shard WHERE shard = ANY($1) ORDER BY shard FOR UPDATE";

/// Below the floor only the histories of living executions remain.
pub(crate) const TRIM_EVENTS: &str = "DELETE FROM ff_event AS e USING ff_event_shard AS s \
    WHERE s.shard = $1 AND e.shard = s.shard AND e.seq >= s.floor AND e.seq < $2 \
    AND e.execution_id IS NULL";

pub(crate) const RAISE_FLOOR: &str =
    "UPDATE ff_event_shard SET floor = greatest(floor, $2) WHERE shard = $1";
