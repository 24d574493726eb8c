//! A worker says what it is. Saying it again takes over what has changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::event;
use crate::contracts::{EventType, RegisterWorkerOutcome};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{Json, TimerKey, TimerKind, TimerRow, WorkerKey, WorkerRow};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct RegisterWorker {
    pub key: WorkerKey,
    pub worker_id: Arc<str>,
    pub lanes: BTreeSet<String>,
    pub capabilities: Vec<String>,
    pub liveness_ttl_ms: u64,
    /// Names the timer that watches it, if it is new.
    pub watch: Uuid,
}

impl Operation for RegisterWorker {
    type Reply = RegisterWorkerOutcome;

    const NAME: &'static str = "register_worker";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WorkerRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(RegisterWorkerOutcome, Change), EngineError> {
        let mut change = Change::default();
        let known = world.record::<WorkerRow>(&self.key);
        let alive = known.as_ref().filter(|row| row.is_alive(world.now));
        if let Some(row) = alive.filter(|row| row.worker_id != self.worker_id) {
            let detail = format!(
                "instance {} is alive and belongs to worker {}",
                self.key.instance, row.worker_id
            );
            return Err(EngineError::invalid(detail));
        }
        let expires_at = world.now.after_ms(self.liveness_ttl_ms);
        let row = WorkerRow {
            key: self.key.clone(),
            worker_id: self.worker_id.clone(),
            lanes: Json(self.lanes.clone()),
            capabilities: Json(self.capabilities.clone()),
            liveness_ttl_ms: self.liveness_ttl_ms,
            registered_at: alive.map_or(world.now, |row| row.registered_at),
            last_heartbeat_at: world.now,
            expires_at,
            watch: known.as_ref().map_or(self.watch, |row| row.watch),
        };
        if alive.is_none() {
            change.events.push(event(&row, EventType::WorkerRegistered, world.now));
        }
        let outcome = match alive {
            Some(_) => RegisterWorkerOutcome::Refreshed { expires_at },
            None => RegisterWorkerOutcome::Registered { expires_at },
        };
        if known.is_some() {
            change.update(&row);
        } else {
            change.insert(&row);
            let key = TimerKey { due_at: expires_at, kind: TimerKind::Worker, subject: row.watch };
            change.timers.push(Write::Insert(TimerRow { key, members: Vec::new() }));
        }
        Ok((outcome, change))
    }
}
