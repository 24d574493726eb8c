//! The holder reports failure; the policy decides what follows.

use std::sync::Arc;

use super::requeue::{Failure, fail_attempt};
use super::{ending, fence};
use crate::backend::Handle;
use crate::contracts::{FailOutcome, FailureClass};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::state::{AttemptOutcome, TerminalOutcome};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct Fail {
    pub handle: Handle,
    pub reason: Arc<str>,
    pub category: Arc<str>,
    pub class: FailureClass,
    /// Any 64 random bits, for the jitter of the back-off.
    pub entropy: u64,
}

impl Operation for Fail {
    type Reply = FailOutcome;

    const NAME: &'static str = "fail";

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        ending::more(world, needs, self.handle.key());
    }

    fn decide(&self, world: &World) -> Result<(FailOutcome, Change), EngineError> {
        let mut change = Change::default();
        if let Some(ended) = fence::ended_under(world, &self.handle) {
            match (ended.outcome, ended.retry_at) {
                (Some(AttemptOutcome::Failed), _) => {
                    return Ok((FailOutcome::TerminalFailed, change));
                }
                (Some(AttemptOutcome::Retry), Some(delay_until)) => {
                    return Ok((FailOutcome::RetryScheduled { delay_until }, change));
                }
                _ => {}
            }
        }
        let held = fence::held(world, &self.handle)?;
        let failure = Failure {
            reason: self.reason.clone(),
            category: self.category.clone(),
            class: self.class,
            retried: AttemptOutcome::Retry,
            exhausted: (TerminalOutcome::Failed, AttemptOutcome::Failed),
            by: held.attempt.worker_instance_id.clone(),
            entropy: self.entropy,
            by_holder: true,
        };
        let outcome = fail_attempt(world, &mut change, held.row, held.attempt, failure);
        Ok((outcome, change))
    }
}
