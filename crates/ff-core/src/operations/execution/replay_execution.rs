//! An operator runs a finished execution again, in place.

use serde_json::json;

use super::replay::{block, check_replays, rewind};
use super::transition;
use super::unique_key::needs_key;
use crate::contracts::{EventType, ReplayExecutionArgs, ReplayExecutionResult};
use crate::engine_error::{EngineError, StateKind};
use crate::operations::flow::drafts::latest;
use crate::operations::{Operation, flow};
use crate::rows::{EdgeGroupKey, EdgeGroupRow, EdgeRow, ExecutionRow, FlowKey};
use crate::state::{AttemptOutcome, LifecyclePhase, PublicState};
use crate::store::{Change, Needs, Scan, World};
use crate::types::TimestampMs;

#[derive(Debug)]
pub struct ReplayExecution {
    pub args: ReplayExecutionArgs,
}

impl Operation for ReplayExecution {
    type Reply = ReplayExecutionResult;

    const NAME: &'static str = "replay_execution";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(self.args.execution_id.key());
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        let Some(row) = world.execution(self.args.execution_id.key()) else { return };
        replay_more(world, needs, row);
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let args = &self.args;
        let mut change = Change::default();
        let row = world.existing(args.execution_id.key())?;
        let public_state = replay(world, &mut change, row, args.now)?;
        Ok((ReplayExecutionResult::Replayed { public_state }, change))
    }
}

/// What [`replay`] will look at.
pub(crate) fn replay_more(world: &World, needs: &mut Needs, row: &ExecutionRow) {
    needs_key(needs, row);
    flow::replay::more(world, needs, row);
    for key in groups_of(row) {
        needs.record::<EdgeGroupRow>(&key);
        needs.scan(&an_edge_into(&key));
    }
}

/// Runs a finished execution again. `at` is when its caller says that it did so. A refusal writes
/// nothing.
pub(crate) fn replay(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    at: TimestampMs,
) -> Result<PublicState, EngineError> {
    if row.phase != LifecyclePhase::Terminal {
        return Err(EngineError::State(StateKind::ExecutionNotTerminal));
    }
    check_replays(row)?;
    flow::replay::check_told(world, row)?;
    let outcome = world.current_attempt(row).and_then(|attempt| attempt.outcome);
    let skipped_member = row.flow_id.is_some()
        && (outcome == Some(AttemptOutcome::Skipped) || row.public_state == PublicState::Skipped);
    let mut after = rewind(world, change, row)?;
    flow::replay::reopen(world, change, row);
    after.set_raw("last_mutation_at", at.0.to_string().into());
    let details = if skipped_member {
        block(&mut after);
        let groups = reset_groups(world, change, row);
        json!({ "branch": "skipped_flow_member", "groups_reset": groups })
    } else {
        json!({ "branch": "normal" })
    };
    let public_state = after.public_state;
    transition(change, row, after, EventType::Replayed, world.now, |event| {
        event.details(&details).asked_at(Some(at))
    });
    Ok(public_state)
}

/// The groups that may gate an execution; a store without partitions has them all at 0.
fn groups_of(row: &ExecutionRow) -> Vec<EdgeGroupKey> {
    let Some(id) = row.flow_id else { return Vec::new() };
    let mut partitions = vec![row.key.partition, 0];
    partitions.dedup();
    let flows = partitions.into_iter().map(|partition| FlowKey { partition, id });
    flows.map(|flow| EdgeGroupKey { flow, downstream: row.key.id }).collect()
}

fn an_edge_into(key: &EdgeGroupKey) -> Scan {
    flow::cascade::edges_into(key.flow, key.downstream, None).limit(1)
}

/// Successes stay counted; everything else is open again.
fn reset_groups(world: &World, change: &mut Change, row: &ExecutionRow) -> usize {
    let mut reset = 0;
    for key in groups_of(row) {
        let edges: Vec<EdgeRow> = world.scan(&an_edge_into(&key));
        let group = latest::<EdgeGroupRow>(world, change, &key).filter(|_| !edges.is_empty());
        if let Some(group) = group {
            change.update(&flow::replay::reset_group(&group, world.now));
            reset += 1;
        }
    }
    reset
}
