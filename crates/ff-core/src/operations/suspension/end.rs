//! The end of a wait. Every way out of a suspension goes through here.

use std::sync::Arc;

use serde_json::json;

use super::{may_wait, open_waitpoints, outcome_key, put, suspension};
use crate::contracts::{EventType, WaitEnd};
use crate::operations::execution::requeue::{make_ready, wait_until};
use crate::operations::execution::transition;
use crate::rows::{
    ExecutionRow, SuspensionOutcomeRow, SuspensionRow, TimerKey, TimerKind, TimerRow, WaitpointRow,
    Word,
};
use crate::state::BlockingReason;
use crate::store::{Change, World, Write};
use crate::types::TimestampMs;

/// Lets a suspended execution go on: in the same attempt, with another claim.
pub(super) fn resume(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    mut wait: SuspensionRow,
    how: Resumption,
) -> ExecutionRow {
    let Resumption { end, delay_ms, by, reason } = how;
    close(world, change, &mut wait, end);
    remember(world, change, &wait, end);
    close_waitpoints(world, change, row, Some(wait.number), end);
    let mut after = row.clone();
    if let Some(attempt) = world.current_attempt(row) {
        // Its last holder suspended it, and must not be taken for one who put it down for a while.
        let mut attempt = attempt.clone();
        attempt.lease_epoch += 1;
        after.lease_epoch = after.lease_epoch.max(attempt.lease_epoch);
        change.attempts.push(Write::Update(attempt));
    }
    let until = world.now.after_ms(delay_ms);
    match until > world.now {
        true => {
            let why = BlockingReason::WaitingForResumeDelay;
            wait_until(change, &mut after, until, world.now, why);
        }
        false => make_ready(&mut after),
    }
    let details = json!({
        "suspension_id": wait.suspension_id,
        "end": end,
        "reason": reason.as_deref(),
        "not_before": after.not_before.map(|at| at.0),
    });
    let resumed = after.clone();
    transition(change, row, after, EventType::Resumed, world.now, |event| {
        event.by(by).details(&details)
    });
    resumed
}

/// How a suspended execution goes on.
pub(super) struct Resumption {
    pub end: WaitEnd,
    pub delay_ms: u64,
    pub by: Option<Arc<str>>,
    pub reason: Option<Arc<str>>,
}

impl Resumption {
    pub fn new(end: WaitEnd, delay_ms: u64) -> Self {
        Self { end, delay_ms, by: None, reason: None }
    }
}

/// Closes whatever an execution that ends was waiting for, and all its waitpoints.
pub(crate) fn end_waits(world: &World, change: &mut Change, row: &ExecutionRow, end: WaitEnd) {
    if !may_wait(row) {
        return;
    }
    if !world.has_scanned(&open_waitpoints(row.key)) {
        // Whoever ends it did not know that it would be waiting: it is tidied up at once.
        change.timers.push(Write::Update(timer(row, world.now)));
        return;
    }
    if let Some(mut wait) = suspension(world, row.key).filter(SuspensionRow::is_open) {
        close(world, change, &mut wait, end);
    }
    close_waitpoints(world, change, row, None, end);
}

/// The timer that looks at an execution's suspension.
pub(super) fn timer(row: &ExecutionRow, due_at: TimestampMs) -> TimerRow {
    TimerRow::single(TimerKind::Suspension, due_at, row.key, row.lease_epoch)
}

fn close(world: &World, change: &mut Change, wait: &mut SuspensionRow, end: WaitEnd) {
    if let Some(due_at) = wait.timeout_at {
        let subject = wait.key.execution.id;
        let key = TimerKey { due_at, kind: TimerKind::Suspension, subject };
        change.timers.push(Write::Delete(key));
    }
    wait.closed_at = Some(world.now);
    wait.end = Some(Word(end));
    change.update(wait);
}

/// Keeps the outcome of a wait that has a name, for whoever asks for it again.
pub(super) fn remember(world: &World, change: &mut Change, wait: &SuspensionRow, end: WaitEnd) {
    let Some(key) = outcome_key(wait) else {
        return;
    };
    let known = world.record::<SuspensionOutcomeRow>(&key).is_some();
    let outcome = SuspensionOutcomeRow {
        key,
        suspension_id: wait.suspension_id,
        number: wait.number,
        generation: wait.generation,
        closed_at: world.now,
        end: Word(end),
    };
    put(change, &outcome, known);
}

/// Closes the open waitpoints of one suspension, or all of them.
fn close_waitpoints(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    number: Option<u32>,
    end: WaitEnd,
) {
    let open = world.scan::<WaitpointRow>(&open_waitpoints(row.key));
    for mut waitpoint in open.into_iter().filter(|one| number.is_none_or(|n| n == one.suspension)) {
        // What had lapsed by itself had done so before.
        let end = if waitpoint.is_alive(world.now) { end } else { WaitEnd::NeverUsed };
        close_waitpoint(change, &mut waitpoint, end, world.now);
    }
}

pub(super) fn close_waitpoint(
    change: &mut Change,
    waitpoint: &mut WaitpointRow,
    end: WaitEnd,
    now: TimestampMs,
) {
    waitpoint.open = false;
    waitpoint.closed_at = Some(now);
    waitpoint.end = Some(Word(end));
    change.update(waitpoint);
}
