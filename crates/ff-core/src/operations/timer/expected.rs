//! What must be looked at when its time comes, as the rows say: who waits for a time has a timer.
//!
//! Where the row of an execution does not say the time itself, it is looked at once, and that look
//! arms the timer again for the time that it finds.

use crate::contracts::BulkState;
use crate::operations::bulk::KEPT_MS;
use crate::rows::{
    AttemptRow, BulkRow, CascadeKind, CascadeRow, ExecutionRow, ScheduleRow, TimerKind, TimerRow,
    WaitpointRow, WorkerRow,
};
use crate::state::{EligibilityState, LifecyclePhase};
use crate::types::TimestampMs;

/// A timer for one execution that watches whatever lease it has. No lease is granted with it.
pub(crate) const ANY_EPOCH: u64 = 0;

/// The timers of an execution, as far as its own row says.
pub(crate) fn of_execution(row: &ExecutionRow, now: TimestampMs) -> Vec<TimerRow> {
    let mut timers = Vec::new();
    if row.is_finished() {
        return timers;
    }
    let mut watch = |kind, due_at| {
        timers.push(TimerRow::single(kind, due_at, row.key, ANY_EPOCH));
    };
    if let Some(at) = row.deadline_at {
        watch(TimerKind::Deadline, at);
    }
    match row.phase {
        LifecyclePhase::Submitted | LifecyclePhase::Runnable
            if row.eligibility == EligibilityState::NotEligibleUntilTime =>
        {
            watch(TimerKind::Ready, row.not_before.unwrap_or(now));
        }
        LifecyclePhase::Active => watch(TimerKind::Lease, now),
        LifecyclePhase::Suspended => watch(TimerKind::Suspension, now),
        _ => {}
    }
    timers
}

/// An attempt that is watched only from now on has its whole time from now on.
pub(crate) fn of_attempt(
    row: &ExecutionRow,
    attempt: &AttemptRow,
    now: TimestampMs,
) -> Option<TimerRow> {
    let running = row.phase == LifecyclePhase::Active && attempt.is_leased();
    let timeout_ms = row.policy().timeout_policy.attempt_timeout_ms.filter(|_| running)?;
    let (due_at, epoch) = (now.after_ms(timeout_ms), attempt.lease_epoch);
    Some(TimerRow::single(TimerKind::AttemptTimeout, due_at, row.key, epoch))
}

/// A waitpoint that no suspension has come for closes by itself.
pub(crate) fn of_waitpoint(waitpoint: &WaitpointRow) -> Option<TimerRow> {
    let due_at = waitpoint.expires_at.filter(|_| waitpoint.open && waitpoint.suspension == 0)?;
    let mut timer =
        TimerRow::single(TimerKind::Waitpoint, due_at, waitpoint.key.execution, ANY_EPOCH);
    timer.key.subject = waitpoint.key.waitpoint_id;
    Some(timer)
}

/// A schedule with a next start, or with times to make up for.
pub(crate) fn of_schedule(row: &ScheduleRow, now: TimestampMs) -> Option<TimerRow> {
    let due_at = match row.runs.0.backfills.is_empty() {
        true => row.next_start?,
        false => now,
    };
    Some(TimerRow::bare(TimerKind::Schedule, due_at, row.key.id))
}

/// A worker that may go silent.
pub(crate) fn of_worker(row: &WorkerRow) -> TimerRow {
    TimerRow::bare(TimerKind::Worker, row.expires_at, row.watch)
}

/// Work on a graph that is not done.
pub(crate) fn of_cascade(row: &CascadeRow, now: TimestampMs) -> TimerRow {
    let due_at = if row.key.kind.0 == CascadeKind::Backlog { row.at } else { now };
    TimerRow::bare(TimerKind::Cascade, due_at, row.key.subject)
}

/// A bulk operation that goes on, or is to be forgotten.
pub(crate) fn of_bulk(row: &BulkRow, now: TimestampMs) -> TimerRow {
    let kept = row.finished_at.filter(|_| row.state.0 != BulkState::Running);
    let due_at = kept.map_or(now, |at| at.after_ms(KEPT_MS));
    TimerRow::bare(TimerKind::Bulk, due_at, row.key.id)
}
