//! An operator, or a lease holder that shows its fence, ends an execution.

use super::ending;
use super::finish::{AttemptEnding, Ending, finish};
use crate::contracts::{CancelExecutionArgs, CancelExecutionResult};
use crate::engine_error::{EngineError, StateKind};
use crate::operations::Operation;
use crate::rows::{AttemptRow, ExecutionRow};
use crate::state::{AttemptOutcome, PublicState, TerminalOutcome};
use crate::store::{Change, Needs, World};
use crate::types::{CancelSource, TimestampMs};

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
        let attempt = world.leased_attempt(row);
        let fenced = !row.is_finished() && args.source != CancelSource::OperatorOverride;
        if let Some(attempt) = attempt.filter(|_| fenced) {
            check_fence(args, attempt)?;
        }
        cancel(world, &mut change, row, &args.reason, args.source.as_str(), args.now)?;
        Ok((reply, change))
    }
}

/// Ends an execution that has not ended. Says whether anything changed.
pub(crate) fn cancel(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    reason: &str,
    by: &str,
    at: TimestampMs,
) -> Result<bool, EngineError> {
    if row.is_finished() {
        if row.public_state == PublicState::Cancelled {
            return Ok(false);
        }
        let state = row.public_state.as_str();
        let detail = format!("{} has already ended as {state}", row.key.execution_id());
        return Err(EngineError::invalid(detail));
    }
    let ending = Ending {
        reason: Some(reason.into()),
        by: Some(by.into()),
        asked_at: Some(at),
        ..Ending::new(
            TerminalOutcome::Cancelled,
            at,
            AttemptEnding::FromOutside(AttemptOutcome::Cancelled),
        )
    };
    finish(world, change, row, ending, |after| {
        after.set_raw("last_mutation_at", at.0.to_string().into());
    });
    Ok(true)
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
