//! An operator moves waiting work forward or back.

use serde_json::json;

use super::transition;
use crate::contracts::{ChangePriorityArgs, ChangePriorityResult, EventType};
use crate::engine_error::{ContentionKind, EngineError};
use crate::limits;
use crate::operations::Operation;
use crate::rows::ExecutionRow;
use crate::state::{EligibilityState, LifecyclePhase};
use crate::store::{Change, Needs, World};
use crate::types::TimestampMs;

#[derive(Debug)]
pub struct ChangePriority {
    pub args: ChangePriorityArgs,
}

impl Operation for ChangePriority {
    type Reply = ChangePriorityResult;

    const NAME: &'static str = "change_priority";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(self.args.execution_id.key());
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let args = &self.args;
        let mut change = Change::default();
        let row = world.existing(args.execution_id.key())?;
        reprioritise(world, &mut change, row, args.new_priority, args.now)?;
        let execution_id = args.execution_id.clone();
        Ok((ChangePriorityResult::Changed { execution_id }, change))
    }
}

/// Gives waiting work another priority.
pub(crate) fn reprioritise(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    priority: i32,
    at: TimestampMs,
) -> Result<(), EngineError> {
    let waiting =
        row.phase == LifecyclePhase::Runnable && row.eligibility == EligibilityState::EligibleNow;
    if !waiting {
        return Err(EngineError::Contention(ContentionKind::ExecutionNotEligible));
    }
    let mut after = row.clone();
    after.priority = priority.clamp(limits::PRIORITY_MIN, limits::PRIORITY_MAX);
    after.set_raw("last_mutation_at", at.0.to_string().into());
    let details = json!({ "old_priority": row.priority, "new_priority": after.priority });
    transition(change, row, after, EventType::PriorityChanged, world.now, |event| {
        event.details(&details).asked_at(Some(at))
    });
    Ok(())
}
