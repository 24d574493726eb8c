//! An operator runs a finished execution again, in place.

use serde_json::json;

use super::requeue::make_ready;
use super::transition;
use crate::contracts::{EventType, ReplayExecutionArgs, ReplayExecutionResult};
use crate::engine_error::{EngineError, StateKind};
use crate::operations::Operation;
use crate::rows::{AttemptRow, Blob, EdgeGroupRow, ExecutionRow, TimerKind, TimerRow};
use crate::state::{
    AttemptOutcome, AttemptState, BlockingReason, EligibilityState, LifecyclePhase, PublicState,
};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct ReplayExecution {
    pub args: ReplayExecutionArgs,
}

impl Operation for ReplayExecution {
    type Reply = ReplayExecutionResult;

    const NAME: &'static str = "replay_execution";

    fn needs(&self, needs: &mut Needs) {
        let key = self.args.execution_id.key();
        needs.execution(key);
        needs.edge_groups_into.insert(key);
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let args = &self.args;
        let mut change = Change::default();
        let row = world.existing(args.execution_id.key())?;
        if row.phase != LifecyclePhase::Terminal {
            return Err(EngineError::State(StateKind::ExecutionNotTerminal));
        }
        let replays = row.replay_count();
        if row.policy().max_replay_count.is_some_and(|max| replays >= max) {
            return Err(EngineError::State(StateKind::MaxReplaysExhausted));
        }
        let attempt = world.current_attempt(row);
        let skipped_member = row.flow_id.is_some()
            && attempt.is_some_and(|attempt| attempt.outcome == Some(AttemptOutcome::Skipped));

        let mut after = row.clone();
        reset(&mut after);
        after.set_raw("replay_count", json!(replays + 1));
        after.set_raw("last_mutation_at", args.now.0.to_string().into());
        if let Some(at) = after.deadline_at {
            let timer = TimerRow::single(TimerKind::Deadline, at, row.key, 0);
            // A deadline that has passed would end the replay before it began.
            match at > world.now {
                true => change.timers.push(Write::Insert(timer)),
                false => after.deadline_at = None,
            }
        }
        if let Some(attempt) = attempt {
            let fresh = reset_attempt(attempt);
            after.lease_epoch = after.lease_epoch.max(fresh.lease_epoch);
            change.attempts.push(Write::Update(fresh));
        }
        let details = if skipped_member {
            after.eligibility = EligibilityState::BlockedByDependencies;
            after.public_state = PublicState::WaitingChildren;
            after.blocking = BlockingReason::WaitingForChildren;
            let groups = reset_groups(world, &mut change, row);
            json!({ "branch": "skipped_flow_member", "groups_reset": groups })
        } else {
            json!({ "branch": "normal" })
        };
        let public_state = after.public_state;
        transition(&mut change, row, after, EventType::Replayed, world.now, |event| {
            event.details(&details)
        });
        Ok((ReplayExecutionResult::Replayed { public_state }, change))
    }
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

/// Successes stay counted; everything else is open again.
fn reset_groups(world: &World, change: &mut Change, row: &ExecutionRow) -> usize {
    let into = |group: &&EdgeGroupRow| group.key.downstream == row.key.id;
    let reset = |group: &EdgeGroupRow| EdgeGroupRow {
        fail_count: 0,
        skip_count: 0,
        running_count: 0,
        ..group.clone()
    };
    let before = change.edge_groups.len();
    let groups = world.edge_groups.rows().filter(into).map(reset).map(Write::Update);
    change.edge_groups.extend(groups);
    change.edge_groups.len() - before
}
