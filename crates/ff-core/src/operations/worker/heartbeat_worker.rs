//! A worker says that it is alive. Its timer is left alone and finds that out by itself.

use crate::contracts::HeartbeatOutcome;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{WorkerKey, WorkerRow};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct HeartbeatWorker {
    pub key: WorkerKey,
}

impl Operation for HeartbeatWorker {
    type Reply = HeartbeatOutcome;

    const NAME: &'static str = "heartbeat_worker";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WorkerRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(HeartbeatOutcome, Change), EngineError> {
        let mut change = Change::default();
        let known = world.record::<WorkerRow>(&self.key).filter(|row| row.is_alive(world.now));
        let Some(mut row) = known else {
            return Ok((HeartbeatOutcome::NotRegistered, change));
        };
        let expires_at = world.now.after_ms(row.liveness_ttl_ms);
        row.last_heartbeat_at = world.now;
        row.expires_at = expires_at;
        change.update(&row);
        Ok((HeartbeatOutcome::Refreshed { expires_at }, change))
    }
}
