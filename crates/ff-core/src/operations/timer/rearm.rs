//! Arms timers that are missing. Each look at a row arms its own timer again, so one is missing
//! only if rows were written by hand, or because of a fault here; what waits would wait for ever.

use super::expected;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::TimerRow;
use crate::store::{Change, Needs, World, Write};
use crate::types::ExecutionKey;

#[derive(Debug)]
pub struct Rearm {
    /// Everything that these executions wait for is looked at.
    pub executions: Vec<ExecutionKey>,
    /// Armed as they are: one that is not needed finds nothing to do.
    pub timers: Vec<TimerRow>,
}

impl Operation for Rearm {
    /// How many were armed.
    type Reply = usize;

    const NAME: &'static str = "rearm";
    const MAY_END_LEASES: bool = false;

    fn weight(&self) -> usize {
        self.executions.len() + self.timers.len()
    }

    fn needs(&self, needs: &mut Needs) {
        for key in &self.executions {
            needs.unwritten_execution(*key);
        }
    }

    fn decide(&self, world: &World) -> Result<(usize, Change), EngineError> {
        let mut timers = self.timers.clone();
        for row in self.executions.iter().filter_map(|key| world.executions.get(key)) {
            timers.extend(expected::of_execution(row, world.now));
            let attempt = world.current_attempt(row);
            timers.extend(attempt.and_then(|it| expected::of_attempt(row, it, world.now)));
        }
        let count = timers.len();
        let timers = timers.into_iter().map(Write::Update).collect();
        Ok((count, Change { timers, ..Change::default() }))
    }
}
