//! An operator, or a lease holder that shows its fence, ends an execution.

use super::ending;
use super::finish::{AttemptEnding, Ending, finish};
use crate::contracts::{CancelExecutionArgs, CancelExecutionResult};
use crate::engine_error::{EngineError, StateKind};
use crate::operations::Operation;
use crate::rows::AttemptRow;
use crate::state::{AttemptOutcome, PublicState, TerminalOutcome};
use crate::store::{Change, Needs, World};
use crate::types::CancelSource;

#[derive(Debug)]
pub struct CancelExecution {
    pub args: CancelExecutionArgs,
}

impl Operation for CancelExecution {
    type Reply = CancelExecutionResult;

    const NAME: &'static str = "cancel_execution";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(self.args.execution_id.key());
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        ending::more(world, needs, self.args.execution_id.key());
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let args = &self.args;
        let mut change = Change::default();
        let reply = CancelExecutionResult::Cancelled {
            execution_id: args.execution_id.clone(),
            public_state: PublicState::Cancelled,
        };
        let row = world.existing(args.execution_id.key())?;
        if row.is_finished() {
            if row.public_state == PublicState::Cancelled {
                return Ok((reply, change));
            }
            let state = row.public_state.as_str();
            let detail = format!("{} has already ended as {state}", args.execution_id);
            return Err(EngineError::invalid(detail));
        }
        let attempt = world.current_attempt(row).filter(|attempt| attempt.is_leased());
        if let Some(attempt) = attempt.filter(|_| args.source != CancelSource::OperatorOverride) {
            check_fence(args, attempt)?;
        }
        let ending = Ending {
            reason: Some(args.reason.as_str().into()),
            by: Some(args.source.as_str().into()),
            ..Ending::new(
                TerminalOutcome::Cancelled,
                args.now,
                AttemptEnding::FromOutside(AttemptOutcome::Cancelled),
            )
        };
        finish(world, &mut change, row, ending, |after| {
            after.set_raw("last_mutation_at", args.now.0.to_string().into());
        });
        Ok((reply, change))
    }
}

fn check_fence(args: &CancelExecutionArgs, attempt: &AttemptRow) -> Result<(), EngineError> {
    let Some(epoch) = args.lease_epoch else {
        return Err(EngineError::invalid("the execution is leased: its lease epoch must be given"));
    };
    if epoch.0.min(i64::MAX as u64) != attempt.lease_epoch {
        return Err(EngineError::State(StateKind::StaleLease));
    }
    Ok(())
}
