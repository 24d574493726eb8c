//! An operator lets a suspended execution go on, whatever it waits for.

use std::sync::Arc;

use super::end::{self, Resumption};
use super::{more_to_resume, needs_of, suspension};
use crate::contracts::WaitEnd;
use crate::engine_error::{EngineError, StateKind};
use crate::operations::Operation;
use crate::rows::SuspensionRow;
use crate::state::{LifecyclePhase, PublicState};
use crate::store::{Change, Needs, World};
use crate::types::ExecutionKey;

#[derive(Debug)]
pub struct Resume {
    pub execution: ExecutionKey,
    pub by: Arc<str>,
    pub reason: Arc<str>,
    pub delay_ms: u64,
}

impl Operation for Resume {
    type Reply = PublicState;

    const NAME: &'static str = "resume";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(self.execution);
        needs_of(needs, self.execution);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        more_to_resume(world, needs, self.execution);
    }

    fn decide(&self, world: &World) -> Result<(PublicState, Change), EngineError> {
        let mut change = Change::default();
        let row = world.existing(self.execution)?;
        let wait = suspension(world, self.execution).filter(SuspensionRow::is_open);
        let wait = wait.filter(|_| row.phase == LifecyclePhase::Suspended);
        let wait = wait.ok_or(EngineError::State(StateKind::ExecutionNotSuspended))?;
        let named = |text: &Arc<str>| Some(text.clone()).filter(|text| !text.is_empty());
        let how = Resumption {
            by: named(&self.by),
            reason: named(&self.reason),
            ..Resumption::new(WaitEnd::ResumedByOperator, self.delay_ms)
        };
        let after = end::resume(world, &mut change, row, wait, how);
        Ok((after.public_state, change))
    }
}
