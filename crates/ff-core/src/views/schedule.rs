//! Schedules as users see them.

use std::sync::Arc;

use crate::contracts::{SchedulePage, SchedulePause, ScheduleSnapshot, UnreadableRecord};
use crate::engine_error::{EngineError, ValidationKind};
use crate::operations::schedule::Calendar;
use crate::rows::ScheduleRow;
use crate::types::{ExecutionId, TimestampMs};

/// A schedule with the next so many instants at which it is due.
pub fn schedule(row: &ScheduleRow, upcoming: usize, now: TimestampMs) -> ScheduleSnapshot {
    let mut definition = row.definition.0.clone();
    definition.template.input_payload = row.payload.to_vec();
    let calendar = Calendar::of(&definition, row.key.id, row.created_at).ok();
    let after = row.looked_until.max(now);
    let upcoming = calendar.filter(|_| !row.is_paused()).map(|own| own.upcoming(after, upcoming));
    let text = |part: &Option<Arc<str>>| part.as_deref().unwrap_or_default().to_owned();
    let paused = row.paused_at.map(|at| SchedulePause {
        reason: text(&row.paused_reason),
        by: text(&row.paused_by),
        at,
    });
    let last = row.last_execution.as_deref().and_then(|id| ExecutionId::parse(id).ok());
    ScheduleSnapshot {
        definition,
        generation: row.generation,
        created_at: row.created_at,
        updated_at: row.updated_at,
        paused,
        upcoming: upcoming.unwrap_or_default(),
        next_start_at: row.next_start,
        last_due: row.last_due,
        last_execution_id: last,
        running: row.runs.0.running.clone(),
        buffered: row.runs.0.buffered,
        backfills: row.runs.0.backfills.clone(),
        started: row.started,
        overlapped: row.overlapped,
        refused: row.runs.0.refused,
    }
}

/// A page of schedules, each with its next due time.
pub fn schedule_page(
    rows: &[ScheduleRow],
    more: bool,
    now: TimestampMs,
    unreadable: Vec<UnreadableRecord>,
) -> SchedulePage {
    let cursor = |row: &ScheduleRow| serde_json::json!([&*row.namespace, &*row.name]).to_string();
    SchedulePage {
        schedules: rows.iter().map(|row| schedule(row, 1, now)).collect(),
        next_cursor: rows.last().filter(|_| more).map(cursor),
        unreadable,
    }
}

/// The namespace and the name of the last schedule of the page before.
pub fn parse_schedule_cursor(text: &str) -> Result<(Arc<str>, Arc<str>), EngineError> {
    let place: Result<(String, String), _> = serde_json::from_str(text);
    let place = place.map(|(namespace, name)| (namespace.into(), name.into()));
    place.map_err(|_| {
        EngineError::validation(ValidationKind::InvalidCursor, "the page cursor cannot be read")
    })
}
