//! An operator moves waiting work forward or back.

use serde_json::json;

use super::transition;
use crate::contracts::{ChangePriorityArgs, ChangePriorityResult, EventType};
use crate::engine_error::{ContentionKind, EngineError};
use crate::limits;
use crate::operations::Operation;
use crate::state::{EligibilityState, LifecyclePhase};
use crate::store::{Change, Needs, World};

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
        let waiting = row.phase == LifecyclePhase::Runnable
            && row.eligibility == EligibilityState::EligibleNow;
        if !waiting {
            return Err(EngineError::Contention(ContentionKind::ExecutionNotEligible));
        }
        let mut after = row.clone();
        after.priority = args.new_priority.clamp(limits::PRIORITY_MIN, limits::PRIORITY_MAX);
        after.set_raw("last_mutation_at", args.now.0.to_string().into());
        let details = json!({ "old_priority": row.priority, "new_priority": after.priority });
        transition(&mut change, row, after, EventType::PriorityChanged, world.now, |event| {
            event.details(&details)
        });
        let execution_id = args.execution_id.clone();
        Ok((ChangePriorityResult::Changed { execution_id }, change))
    }
}
