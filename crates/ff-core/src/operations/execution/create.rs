//! `create_execution`: one execution under a chosen identity, left in phase `submitted`.

use super::submit::{Accepted, PreparedSubmission, accept, needs_of};
use crate::contracts::{CreateExecutionResult, SubmitOutcome};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::store::{Change, Needs, World};
use crate::types::TimestampMs;

#[derive(Debug)]
pub struct CreateExecution {
    pub item: PreparedSubmission,
    /// Instants, because that is how this call's arguments are spelled.
    pub delay_until: Option<TimestampMs>,
    pub deadline_at: Option<TimestampMs>,
}

impl Operation for CreateExecution {
    type Reply = CreateExecutionResult;

    const NAME: &'static str = "create_execution";

    fn needs(&self, needs: &mut Needs) {
        needs_of(needs, &self.item);
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        // A deadline in the policy counts from now; one in the arguments is an instant and wins.
        let from_policy = self.item.deadline.map(|deadline| world.now.after(deadline));
        let deadline = self.deadline_at.or(from_policy);
        let mut accepted = Accepted::default();
        let until = self.delay_until;
        match accept(world, &mut change, &mut accepted, &self.item, until, deadline) {
            SubmitOutcome::Created { execution_id, public_state } => {
                Ok((CreateExecutionResult::Created { execution_id, public_state }, change))
            }
            SubmitOutcome::Duplicate { execution_id } => {
                Ok((CreateExecutionResult::Duplicate { execution_id }, change))
            }
            SubmitOutcome::Refused(error) => Err(error),
        }
    }
}
