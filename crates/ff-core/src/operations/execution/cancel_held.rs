//! The holder gives up: its execution ends as cancelled.

use std::sync::Arc;

use super::finish::{AttemptEnding, Ending, finish};
use super::{ending, fence};
use crate::backend::Handle;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::state::{AttemptOutcome, TerminalOutcome};
use crate::store::{Change, Needs, World};
use crate::types::CancelSource;

#[derive(Debug)]
pub struct CancelHeld {
    pub handle: Handle,
    pub reason: Arc<str>,
}

impl Operation for CancelHeld {
    type Reply = ();

    const NAME: &'static str = "cancel_held";

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        ending::more(world, needs, self.handle.key());
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        let ended = fence::ended_under(world, &self.handle);
        if ended.is_some_and(|attempt| attempt.outcome == Some(AttemptOutcome::Cancelled)) {
            return Ok(((), change));
        }
        let held = fence::held(world, &self.handle)?;
        let ending = Ending {
            reason: Some(self.reason.clone()),
            by: Some(CancelSource::LeaseHolder.as_str().into()),
            ..Ending::new(
                TerminalOutcome::Cancelled,
                world.now,
                AttemptEnding::ByHolder(AttemptOutcome::Cancelled),
            )
        };
        finish(world, &mut change, held.row, ending, |_| {});
        Ok(((), change))
    }
}
