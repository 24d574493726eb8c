//! Putting work down until somebody says go on: suspensions, waitpoints, signals and the keys of
//! their tokens.
//!
//! The execution's own row decides who comes first: a signal, a time-out, a deadline or a
//! cancellation. Whoever finds it suspended ends the wait, and everybody after finds it ended.

mod create_waitpoint;
mod deliver_signal;
pub(crate) mod due;
mod end;
mod keys;
mod resume;
mod rotate_waitpoint_secret;
mod seed_waitpoint_secret;
mod suspend;

pub use create_waitpoint::CreateWaitpoint;
pub(crate) use deliver_signal::dedup;
pub use deliver_signal::{DeliverSignal, SignalAuthority};
pub(crate) use end::end_waits;
pub use keys::KnownKeys;
pub(crate) use keys::all_keys;
pub use resume::Resume;
pub use rotate_waitpoint_secret::RotateWaitpointSecret;
pub use seed_waitpoint_secret::SeedWaitpointSecret;
pub use suspend::{Suspend, Suspended};

use serde_json::Value;
use uuid::Uuid;

use crate::limits;
use crate::rows::{
    ExecutionRow, Record, SignalRow, SuspensionKey, SuspensionOutcomeKey, SuspensionOutcomeRow,
    SuspensionRow, WaitpointKey, WaitpointRow, values,
};
use crate::state::LifecyclePhase;
use crate::store::{Change, Needs, Scan, World, Write};
use crate::types::ExecutionKey;

/// Whether ending this execution may leave something open.
pub(crate) fn may_wait(row: &ExecutionRow) -> bool {
    // Only the name: stores write the rest of JSON as they please.
    row.phase == LifecyclePhase::Suspended || row.raw_fields.contains("\"waitpoints\"")
}

/// Leaves the mark in `raw_fields` that an execution may have waitpoints although it is not
/// suspended.
fn mark(row: &mut ExecutionRow) {
    if !may_wait(row) {
        row.set_raw("waitpoints", Value::Bool(true));
    }
}

/// What ending an execution must see, if it may have waits.
pub(crate) fn needs_to_end(needs: &mut Needs, row: &ExecutionRow) {
    if may_wait(row) {
        needs_of(needs, row.key);
    }
}

/// The suspension of an execution and its open waitpoints.
fn needs_of(needs: &mut Needs, execution: ExecutionKey) {
    needs.record::<SuspensionRow>(&SuspensionKey { execution });
    needs.scan(&open_waitpoints(execution));
}

/// The row of the execution is locked, and stands for those of its waitpoints.
fn open_waitpoints(execution: ExecutionKey) -> Scan {
    Scan::of::<WaitpointRow>(values![execution, true])
        .by(&WaitpointRow::OPEN)
        .limit(limits::WAITPOINTS + 1)
        .unlocked()
}

/// The signals that brought a suspension forward, in the order in which they came.
pub(crate) fn signals_of(execution: ExecutionKey, number: u32) -> Scan {
    Scan::of::<SignalRow>(values![execution, number])
        .by(&SignalRow::BY_SUSPENSION)
        .limit(limits::CONDITION_SIGNALS + 1)
        .unlocked()
}

/// What was signalled before anybody waited.
fn buffered(execution: ExecutionKey, waitpoint_id: Uuid) -> Scan {
    Scan::of::<SignalRow>(values![execution, waitpoint_id])
        .limit(limits::SIGNALS_BUFFERED as usize + 1)
        .unlocked()
}

fn suspension(world: &World, execution: ExecutionKey) -> Option<SuspensionRow> {
    world.record::<SuspensionRow>(&SuspensionKey { execution })
}

fn waitpoint(world: &World, execution: ExecutionKey, waitpoint_id: Uuid) -> Option<WaitpointRow> {
    world.record::<WaitpointRow>(&WaitpointKey { execution, waitpoint_id })
}

fn outcome_key(row: &SuspensionRow) -> Option<SuspensionOutcomeKey> {
    let execution = row.key.execution;
    let idempotency_key = row.idempotency_key.clone()?;
    Some(SuspensionOutcomeKey { execution, idempotency_key })
}

/// What resuming must see beyond the suspension itself.
fn more_to_resume(world: &World, needs: &mut Needs, execution: ExecutionKey) {
    if let Some(key) = suspension(world, execution).as_ref().and_then(outcome_key) {
        needs.record::<SuspensionOutcomeRow>(&key);
    }
}

/// Writes a row that may be there already.
fn put(change: &mut Change, row: &impl Record, known: bool) {
    match known {
        true => change.update(row),
        false => change.insert(row),
    }
}

/// The execution as a change leaves it, so that a second transition can follow the first.
fn last_written(change: &Change, row: &ExecutionRow) -> ExecutionRow {
    match change.executions.last() {
        Some(Write::Update(after)) if after.key == row.key => after.clone(),
        _ => row.clone(),
    }
}
