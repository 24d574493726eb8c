//! One action on every execution that a filter names, some at a time.
//!
//! A bulk operation remembers the last execution that it has looked at. The sweeper takes it up
//! where it stopped: what it changes, what it counts and how far it has come are written in one
//! transaction, so that a kill neither repeats nor skips anything. It only reaches executions that
//! were there when it was started, so that it ends.

mod action;
mod cancel_bulk;
pub(crate) mod due;
mod start_bulk;

pub use cancel_bulk::CancelBulk;
pub use start_bulk::StartBulk;

use serde_json::{Value, json};

use crate::contracts::{BulkFilter, EventType, ListOrder};
use crate::engine_error::EngineError;
use crate::rows::{BulkKey, BulkRow, EventRow, TimerKey, TimerKind};
use crate::store::{ListQuery, World};
use crate::types::TimestampMs;

/// How long a bulk operation is kept after its end.
pub(crate) const KEPT_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// A filter as the stores understand it, oldest first.
pub(crate) fn list_query(filter: &BulkFilter) -> ListQuery {
    ListQuery {
        namespace: filter.namespace.as_ref().map(|namespace| namespace.as_str().into()),
        lane: filter.lane_id.as_ref().map(|lane| lane.as_str().into()),
        states: filter.states.clone(),
        kind: filter.execution_kind.as_deref().map(Into::into),
        flow_id: filter.flow_id.map(|flow| flow.0),
        tag: filter.tag.clone(),
        created_from: filter.created_from,
        created_before: filter.created_before,
        order: ListOrder::OldestFirst,
        ..ListQuery::default()
    }
}

/// What a bulk operation may reach: nothing that was created after it.
fn reach(row: &BulkRow) -> ListQuery {
    let filter = list_query(&row.definition.0.args.filter);
    let started = row.created_at.after_ms(1);
    let before = filter.created_before.map_or(started, |before| before.min(started));
    ListQuery { created_before: Some(before), ..filter }
}

/// The bulk operation, or the refusal that there is none.
fn existing(world: &World, key: &BulkKey) -> Result<BulkRow, EngineError> {
    let visible = |row: &BulkRow| {
        world.scope().is_none_or(|own| row.namespace.as_deref() == Some(own.as_str()))
    };
    let found = world.record::<BulkRow>(key).filter(visible);
    found.ok_or(EngineError::NotFound { entity: "bulk operation" })
}

fn timer_key(row: &BulkRow, due_at: TimestampMs) -> TimerKey {
    TimerKey { due_at, kind: TimerKind::Bulk, subject: row.key.id }
}

fn event(row: &BulkRow, event_type: EventType, at: TimestampMs, more: Value) -> EventRow {
    let mut details = json!({ "bulk_id": row.key.id, "action": row.definition.0.args.action });
    if let (Value::Object(details), Value::Object(more)) = (&mut details, more) {
        details.extend(more);
    }
    let by = Some(row.definition.0.args.by.as_str()).filter(|by| !by.is_empty());
    let namespace = row.namespace.clone().unwrap_or_default();
    EventRow::bare(event_type, namespace, at).by(by.map(Into::into)).details(&details)
}

fn counts(row: &BulkRow) -> Value {
    json!({ "changed": row.changed, "skipped": row.skipped, "failed": row.failed })
}
