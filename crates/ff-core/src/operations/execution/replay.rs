//! A finished execution as it stands when it is to run again.

use serde_json::json;

use super::requeue::make_ready;
use super::unique_key::take_key;
use crate::engine_error::{EngineError, StateKind};
use crate::rows::{AttemptRow, Blob, ExecutionRow, TimerKind, TimerRow};
use crate::state::{AttemptState, BlockingReason, EligibilityState, PublicState};
use crate::store::{Change, World, Write};

/// Refuses what has been run again as often as its policy allows.
pub(crate) fn check_replays(row: &ExecutionRow) -> Result<(), EngineError> {
    match row.policy().max_replay_count.is_some_and(|max| row.replay_count() >= max) {
        true => Err(EngineError::State(StateKind::MaxReplaysExhausted)),
        false => Ok(()),
    }
}

/// The row as it will be, ready to be handed out; its key, its attempt and its timer are written
/// here. Writes nothing if another execution has its key.
pub(crate) fn rewind(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
) -> Result<ExecutionRow, EngineError> {
    take_key(world, change, row)?;
    let mut after = row.clone();
    reset(&mut after);
    after.set_raw("replay_count", json!(row.replay_count() + 1));
    if let Some(at) = after.deadline_at {
        let timer = TimerRow::single(TimerKind::Deadline, at, row.key, 0);
        // A deadline that has passed would end the replay before it began.
        match at > world.now {
            true => change.timers.push(Write::Insert(timer)),
            false => after.deadline_at = None,
        }
    }
    if let Some(attempt) = world.current_attempt(row) {
        let fresh = reset_attempt(attempt);
        after.lease_epoch = after.lease_epoch.max(fresh.lease_epoch);
        change.attempts.push(Write::Update(fresh));
    }
    Ok(after)
}

/// It waits for its parents.
pub(crate) fn block(row: &mut ExecutionRow) {
    row.eligibility = EligibilityState::BlockedByDependencies;
    row.public_state = PublicState::WaitingChildren;
    row.blocking = BlockingReason::WaitingForChildren;
}

fn reset(row: &mut ExecutionRow) {
    make_ready(row);
    row.attempt_state = AttemptState::PendingReplayAttempt;
    row.terminal_at = None;
    row.result = Blob::Absent;
    row.cancellation_reason = None;
    row.cancelled_by = None;
    row.failure_reason = None;
    row.failure_category = None;
    // A replay has all its retries before it.
    row.retry_count = 0;
    row.reclaim_count = 0;
}

/// The attempt is used again, under a fence that no old holder has.
fn reset_attempt(attempt: &AttemptRow) -> AttemptRow {
    AttemptRow {
        lease_epoch: attempt.lease_epoch + 1,
        lease_nonce: 0,
        outcome: None,
        ended_at: None,
        worker_id: None,
        worker_instance_id: None,
        lease_expires_at: None,
        failure_reason: None,
        failure_category: None,
        retry_at: None,
        progress_percent: None,
        progress_message: None,
        ..attempt.clone()
    }
}
