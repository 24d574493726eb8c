//! The holder says how far it is. Not a transition: the attempt changes, the execution does not.

use std::sync::Arc;

use super::fence;
use crate::backend::Handle;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct Progress {
    pub handle: Handle,
    pub percent: Option<u8>,
    pub message: Option<Arc<str>>,
}

impl Operation for Progress {
    type Reply = ();

    const NAME: &'static str = "progress";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        fence::needs_unwritten(needs, &self.handle);
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let held = fence::held(world, &self.handle)?;
        let mut attempt = held.attempt.clone();
        attempt.progress_percent = self.percent.or(attempt.progress_percent);
        attempt.progress_message = self.message.clone().or(attempt.progress_message);
        Ok(((), Change { attempts: vec![Write::Update(attempt)], ..Change::default() }))
    }
}
