//! Putting work back: after a failure, an expired lease or a time-out.

use std::sync::Arc;

use serde_json::json;

use super::finish::{AttemptEnding, Ending, finish};
use super::transition;
use crate::contracts::{EventType, FailOutcome, FailureClass};
use crate::rows::{AttemptRow, EventRow, ExecutionRow, TimerKind, TimerRow};
use crate::state::{
    AttemptOutcome, AttemptState, BlockingReason, EligibilityState, LifecyclePhase, OwnershipState,
    PublicState, TerminalOutcome,
};
use crate::store::{Change, World, Write};
use crate::types::TimestampMs;

/// A failed attempt, whoever says so.
pub(crate) struct Failure {
    pub reason: Arc<str>,
    pub category: Arc<str>,
    pub class: FailureClass,
    /// How the attempt ended if it is retried, and if it is not.
    pub retried: AttemptOutcome,
    pub exhausted: (TerminalOutcome, AttemptOutcome),
    pub by: Option<Arc<str>>,
    pub entropy: u64,
    /// Whether the holder itself reports it, so that its fence may stay.
    pub by_holder: bool,
}

/// Retries as the policy allows, or ends the execution.
pub(crate) fn fail_attempt(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    attempt: &AttemptRow,
    failure: Failure,
) -> FailOutcome {
    let retry = row.policy().retry_policy;
    let category_allowed = retry.retryable_categories.is_empty()
        || retry.retryable_categories.contains(&*failure.category);
    let retried = failure.class == FailureClass::Retryable
        && category_allowed
        && row.retry_count < retry.max_retries;
    if !retried {
        let (outcome, attempt_outcome) = failure.exhausted;
        let attempt_ending = if failure.by_holder {
            AttemptEnding::ByHolder(attempt_outcome)
        } else {
            AttemptEnding::FromOutside(attempt_outcome)
        };
        let ending = Ending {
            reason: Some(failure.reason),
            category: Some(failure.category),
            by: failure.by,
            ..Ending::new(outcome, world.now, attempt_ending)
        };
        finish(world, change, row, ending, |_| {});
        return FailOutcome::TerminalFailed;
    }

    let delay_ms = retry.backoff.delay_ms(row.retry_count, failure.entropy);
    let horizon = world.now.after(crate::limits::HORIZON);
    let delay_until = world.now.after_ms(delay_ms).min(horizon);
    let mut ended = attempt.clone();
    ended.outcome = Some(failure.retried);
    ended.ended_at = Some(world.now);
    ended.lease_expires_at = None;
    ended.failure_reason = Some(failure.reason.clone());
    ended.failure_category = Some(failure.category.clone());
    ended.retry_at = Some(delay_until);
    change.attempts.push(Write::Update(ended));

    let mut after = row.clone();
    after.attempt_index += 1;
    after.retry_count += 1;
    after.attempt_state = AttemptState::PendingRetryAttempt;
    after.failure_reason = Some(failure.reason.clone());
    after.failure_category = Some(failure.category.clone());
    wait_until(change, &mut after, delay_until, world.now, BlockingReason::WaitingForRetryBackoff);
    let details = json!({
        "reason": &*failure.reason,
        "category": &*failure.category,
        "delay_until": delay_until.0,
    });
    transition(change, row, after, EventType::RetryScheduled, world.now, |event| EventRow {
        lease_ended: true,
        attempt_index: row.attempt_index,
        ..event.by(failure.by).details(&details)
    });
    FailOutcome::RetryScheduled { delay_until }
}

/// A lease ran out: the next attempt starts, unless too many workers have died with this one.
pub(crate) fn expire_lease(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    attempt: &AttemptRow,
) {
    let max_reclaims = row.policy().max_reclaims();
    let by = attempt.worker_instance_id.clone();
    if row.reclaim_count >= max_reclaims {
        let mut ending = Ending::new(
            TerminalOutcome::Failed,
            world.now,
            AttemptEnding::FromOutside(AttemptOutcome::LeaseExpired),
        );
        ending.reason = Some("max_reclaims_exceeded".into());
        ending.category = Some("lease_expired".into());
        ending.by = by;
        finish(world, change, row, ending, |_| {});
        return;
    }
    let mut ended = attempt.clone();
    ended.outcome = Some(AttemptOutcome::LeaseExpired);
    ended.ended_at = Some(world.now);
    ended.lease_expires_at = None;
    change.attempts.push(Write::Update(ended));

    let mut after = row.clone();
    after.attempt_index += 1;
    after.reclaim_count += 1;
    after.attempt_state = AttemptState::AttemptInterrupted;
    make_ready(&mut after);
    transition(change, row, after, EventType::LeaseExpired, world.now, |event| EventRow {
        lease_ended: true,
        attempt_index: row.attempt_index,
        ..event.by(by)
    });
}

/// Claimable from now on.
pub(crate) fn make_ready(row: &mut ExecutionRow) {
    row.phase = LifecyclePhase::Runnable;
    row.ownership = OwnershipState::Unowned;
    row.eligibility = EligibilityState::EligibleNow;
    row.public_state = PublicState::Waiting;
    row.blocking = BlockingReason::WaitingForWorker;
    row.not_before = None;
}

/// Claimable once `until` has come, or at once if it has.
pub(crate) fn wait_until(
    change: &mut Change,
    row: &mut ExecutionRow,
    until: TimestampMs,
    now: TimestampMs,
    reason: BlockingReason,
) {
    make_ready(row);
    if until > now {
        row.eligibility = EligibilityState::NotEligibleUntilTime;
        row.public_state = PublicState::Delayed;
        row.blocking = reason;
        row.not_before = Some(until);
        change.timers.push(Write::Insert(TimerRow::single(TimerKind::Ready, until, row.key, 0)));
    }
}
