//! A worker goes. Its leases stay until it ends them or they expire.

use super::event;
use crate::contracts::{EventType, RetireOutcome};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{WorkerKey, WorkerRow};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct RetireWorker {
    pub key: WorkerKey,
}

impl Operation for RetireWorker {
    type Reply = RetireOutcome;

    const NAME: &'static str = "retire_worker";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WorkerRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(RetireOutcome, Change), EngineError> {
        let mut change = Change::default();
        let known = world.record::<WorkerRow>(&self.key).filter(|row| row.is_alive(world.now));
        let Some(row) = known else {
            return Ok((RetireOutcome::NotRegistered, change));
        };
        change.delete::<WorkerRow>(&row.key);
        change.events.push(event(&row, EventType::WorkerRetired, world.now));
        Ok((RetireOutcome::Retired, change))
    }
}
