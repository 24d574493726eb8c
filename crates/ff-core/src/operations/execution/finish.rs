//! The end of an execution. Every path to an end goes through here.

use std::sync::Arc;

use serde_json::json;

use super::transition;
use super::unique_key::unique_key;
use crate::contracts::{EventType, WaitEnd};
use crate::operations::flow::cascade;
use crate::operations::schedule::wake;
use crate::operations::suspension::end_waits;
use crate::rows::{AttemptRow, Blob, EventRow, ExecutionRow, TimerKey, TimerKind};
use crate::state::{
    AttemptOutcome, AttemptState, BlockingReason, EligibilityState, LifecyclePhase, OwnershipState,
    TerminalOutcome,
};
use crate::store::{Change, World, Write};
use crate::types::TimestampMs;

/// How an execution ends.
pub(crate) struct Ending {
    pub outcome: TerminalOutcome,
    pub at: TimestampMs,
    /// When its caller says that it was asked for, if that is another time than the store's.
    pub asked_at: Option<TimestampMs>,
    pub attempt: AttemptEnding,
    pub result: Option<Arc<[u8]>>,
    pub reason: Option<Arc<str>>,
    pub category: Option<Arc<str>>,
    pub by: Option<Arc<str>>,
    /// How whatever it was waiting for ends with it.
    pub wait_end: WaitEnd,
}

/// What happens to the current attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnding {
    /// Its holder ends it: the fence stays, so that a repeated call is recognised.
    ByHolder(AttemptOutcome),
    /// Somebody else ends it, if it is leased: the fence moves and the holder is locked out.
    FromOutside(AttemptOutcome),
    /// As from outside, and whatever outcome it had is taken back.
    Erased,
    /// Left as it is.
    Untouched,
}

impl Ending {
    pub fn new(outcome: TerminalOutcome, at: TimestampMs, attempt: AttemptEnding) -> Self {
        Self {
            outcome,
            at,
            asked_at: None,
            attempt,
            result: None,
            reason: None,
            category: None,
            by: None,
            wait_end: WaitEnd::ExecutionEnded,
        }
    }
}

/// Ends the execution: lease, timers and idempotency key go, the event is written.
pub(crate) fn finish(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    ending: Ending,
    adjust: impl FnOnce(&mut ExecutionRow),
) {
    let attempt = world.current_attempt(row);
    let is_leased = world.leased_attempt(row).is_some();
    // An attempt that is left alone keeps its lease, as far as anything is recorded of it.
    let lease_ended = is_leased && ending.attempt != AttemptEnding::Untouched;
    disarm_timers(change, row);
    end_waits(world, change, row, ending.wait_end);
    wake(change, row, world.now);
    change.idempotency.extend(unique_key(row).map(Write::Delete));

    let mut after = row.clone();
    if let Some(attempt) = attempt
        && let Some(ended) = end_attempt(attempt, is_leased, &ending, world.now)
    {
        after.lease_epoch = after.lease_epoch.max(ended.lease_epoch);
        if change.attempts.capacity() == 0 {
            change.attempts.reserve_exact(1);
        }
        change.attempts.push(Write::Update(ended));
    }
    let cancelled = ending.outcome == TerminalOutcome::Cancelled;
    after.phase = if cancelled { LifecyclePhase::Cancelled } else { LifecyclePhase::Terminal };
    if ending.attempt != AttemptEnding::Untouched {
        after.ownership = OwnershipState::Unowned;
        after.attempt_state =
            if cancelled { AttemptState::Cancelled } else { AttemptState::AttemptTerminal };
    }
    after.eligibility = EligibilityState::NotApplicable;
    after.public_state = ending.outcome.public_state();
    after.blocking = BlockingReason::None;
    after.not_before = None;
    after.terminal_at = after.terminal_at.or(Some(ending.at));
    after.result = ending.result.map_or(Blob::Absent, Blob::Here);
    if cancelled {
        after.cancellation_reason = after.cancellation_reason.take().or(ending.reason);
        after.cancelled_by = after.cancelled_by.take().or(ending.by.clone());
    } else {
        after.failure_reason = ending.reason;
        after.failure_category = ending.category;
    }
    adjust(&mut after);
    let (outcome, spared) = (ending.outcome, is_spared(&after));
    // A cancelled execution may still carry the failure of an attempt before.
    let (reason, category) = match cancelled {
        true => (&after.cancellation_reason, None),
        false => (&after.failure_reason, after.failure_category.as_deref()),
    };
    let details =
        reason.as_ref().map(|reason| json!({ "reason": &**reason, "category": category }));
    transition(change, row, after, event_type(ending.outcome), world.now, |event| {
        let event = EventRow { lease_ended, ..event.by(ending.by) };
        let event = match &details {
            Some(details) => event.details(details),
            None => event,
        };
        event.asked_at(ending.asked_at)
    });
    cascade::advance(world, change, row, outcome, spared);
}

/// Whether it is cancelled only because its siblings were enough for whoever waited for them.
fn is_spared(row: &ExecutionRow) -> bool {
    row.phase == LifecyclePhase::Cancelled
        && row.cancellation_reason.as_deref() == Some(cascade::SPARED)
}

fn event_type(outcome: TerminalOutcome) -> EventType {
    match outcome {
        TerminalOutcome::Success => EventType::Completed,
        TerminalOutcome::Failed => EventType::Failed,
        TerminalOutcome::Cancelled => EventType::Cancelled,
        TerminalOutcome::Expired => EventType::Expired,
        TerminalOutcome::Skipped => EventType::Skipped,
    }
}

fn end_attempt(
    attempt: &AttemptRow,
    is_leased: bool,
    ending: &Ending,
    now: TimestampMs,
) -> Option<AttemptRow> {
    let mut ended = attempt.clone();
    match ending.attempt {
        AttemptEnding::Untouched => return None,
        AttemptEnding::ByHolder(outcome) => ended.outcome = Some(outcome),
        AttemptEnding::FromOutside(outcome) => {
            if !is_leased {
                return None;
            }
            ended.outcome = Some(outcome);
            ended.worker_instance_id = None;
            ended.lease_epoch += 1;
        }
        AttemptEnding::Erased => {
            ended.outcome = None;
            if is_leased {
                ended.worker_instance_id = None;
                ended.lease_epoch += 1;
            }
        }
    }
    if is_leased {
        ended.ended_at = ending.asked_at.or(Some(now));
    }
    ended.lease_expires_at = None;
    ended.failure_reason = ending.reason.clone();
    ended.failure_category = ending.category.clone();
    Some(ended)
}

/// Takes back the timers whose due time the row knows. A lease's timer is left to find nothing.
pub(crate) fn disarm_timers(change: &mut Change, row: &ExecutionRow) {
    disarm_ready(change, row);
    if let Some(due_at) = row.deadline_at {
        let key = TimerKey { due_at, kind: TimerKind::Deadline, subject: row.key.id };
        change.timers.push(Write::Delete(key));
    }
}

pub(crate) fn disarm_ready(change: &mut Change, row: &ExecutionRow) {
    if let (Some(due_at), EligibilityState::NotEligibleUntilTime) =
        (row.not_before, row.eligibility)
    {
        let key = TimerKey { due_at, kind: TimerKind::Ready, subject: row.key.id };
        change.timers.push(Write::Delete(key));
    }
}
