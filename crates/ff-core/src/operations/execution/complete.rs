//! The holder reports success. Repeating the call under the same fence changes nothing.

use std::sync::Arc;

use super::finish::{AttemptEnding, Ending, finish};
use super::{ending, fence};
use crate::backend::Handle;
use crate::engine_error::{ConflictKind, EngineError};
use crate::operations::Operation;
use crate::rows::Blob;
use crate::state::{AttemptOutcome, PublicState, TerminalOutcome};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct Complete {
    pub handle: Handle,
    pub result: Option<Arc<[u8]>>,
}

impl Operation for Complete {
    type Reply = ();

    const NAME: &'static str = "complete";

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
        needs.behind.insert(self.handle.key());
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        ending::more(world, needs, self.handle.key());
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        if let Some(answer) = self.answer_to_repeat(world) {
            return answer.map(|()| ((), change));
        }
        let held = fence::held(world, &self.handle)?;
        let ending = Ending {
            result: self.result.clone(),
            by: held.attempt.worker_instance_id.clone(),
            ..Ending::new(
                TerminalOutcome::Success,
                world.now,
                AttemptEnding::ByHolder(AttemptOutcome::Success),
            )
        };
        finish(world, &mut change, held.row, ending, |_| {});
        Ok(((), change))
    }
}

impl Complete {
    /// The first call may have been committed without its answer arriving.
    fn answer_to_repeat(&self, world: &World) -> Option<Result<(), EngineError>> {
        let ended = fence::ended_under(world, &self.handle)?;
        let row = world.execution(self.handle.key())?;
        let done = ended.outcome == Some(AttemptOutcome::Success)
            && row.public_state == PublicState::Completed
            && row.attempt_index == self.handle.attempt_index();
        if !done {
            return None;
        }
        let same_result = match (&row.result, &self.result) {
            (Blob::Absent, None) => true,
            (Blob::Here(stored), Some(given)) => stored == given,
            _ => false,
        };
        Some(if same_result {
            Ok(())
        } else {
            Err(EngineError::Conflict(ConflictKind::ResultAlreadyRecorded))
        })
    }
}
