//! Work that is submitted by itself, when it is due.
//!
//! A schedule remembers up to which instant it has dealt with what was due. A look at it finds what
//! has come due since, starts runs and moves that instant on, all in one transaction. A run's
//! identity is made from the schedule, its generation and the due time, so that a run which is
//! there already is never made twice.

mod backfill_schedule;
mod calendar;
mod delete_schedule;
pub(crate) mod due;
mod pause_schedule;
mod put_schedule;
mod rules;
mod run;
mod trigger_schedule;

pub use backfill_schedule::BackfillSchedule;
pub(crate) use calendar::Calendar;
pub use delete_schedule::DeleteSchedule;
pub use pause_schedule::{PauseSchedule, ResumeSchedule};
pub use put_schedule::PutSchedule;
pub(crate) use run::wake;
pub use trigger_schedule::TriggerSchedule;

use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::contracts::{EventType, ScheduleId};
use crate::engine_error::EngineError;
use crate::rows::{EventRow, ScheduleKey, ScheduleRow, TimerKey, TimerKind, TimerRow};
use crate::store::{Change, World, Write};
use crate::types::TimestampMs;

/// The key of the schedule of this name.
pub(crate) fn key_of(id: &ScheduleId) -> ScheduleKey {
    ScheduleKey { id: identity(&["schedule", id.namespace.as_str(), &id.name]) }
}

/// An identity that is always the same for the same parts.
pub(crate) fn identity(parts: &[&str]) -> Uuid {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The schedule, or the refusal that there is none.
fn existing(world: &World, key: &ScheduleKey) -> Result<ScheduleRow, EngineError> {
    let visible =
        |row: &ScheduleRow| world.scope().is_none_or(|own| own.as_str() == &*row.namespace);
    let found = world.record::<ScheduleRow>(key).filter(visible);
    found.ok_or(EngineError::NotFound { entity: "schedule" })
}

fn calendar(row: &ScheduleRow) -> Result<Calendar, EngineError> {
    Calendar::of(&row.definition.0, row.key.id, row.created_at)
}

/// Says when the schedule is to be looked at next, and notes when it starts something.
fn next_look(row: &mut ScheduleRow, calendar: &Calendar, now: TimestampMs) -> Option<TimestampMs> {
    let next = calendar.next_after(row.looked_until).map(|due| calendar.start_of(due));
    row.next_start = next.filter(|_| !row.is_paused());
    if row.runs.0.backfills.is_empty() { row.next_start } else { Some(now) }
}

/// Sees to it that the schedule is looked at when it should be, and not when it should have been.
fn arm(change: &mut Change, row: &mut ScheduleRow, calendar: &Calendar, now: TimestampMs) {
    if let Some(at) = row.next_start {
        change.timers.push(Write::Delete(timer_key(row, at)));
    }
    if let Some(at) = next_look(row, calendar, now) {
        let timer = TimerRow { key: timer_key(row, at), members: Vec::new() };
        change.timers.push(Write::Update(timer));
    }
}

fn timer_key(row: &ScheduleRow, due_at: TimestampMs) -> TimerKey {
    TimerKey { due_at, kind: TimerKind::Schedule, subject: row.key.id }
}

fn event(row: &ScheduleRow, event_type: EventType, at: TimestampMs, details: Value) -> EventRow {
    let mut details = details;
    details["schedule"] = Value::from(&*row.name);
    EventRow::bare(event_type, row.namespace.clone(), at).details(&details)
}
