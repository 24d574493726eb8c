//! Starts a run at once, beside whatever runs.

use super::existing;
use super::run::{Run, needs_of_run, remember, start};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::Accepted;
use crate::rows::{ScheduleKey, ScheduleRow};
use crate::store::{Change, Needs, World};
use crate::types::{ExecutionId, TimestampMs};

#[derive(Debug)]
pub struct TriggerSchedule {
    pub key: ScheduleKey,
    /// The same request starts one run, however often it is made.
    pub request: String,
}

impl Operation for TriggerSchedule {
    type Reply = ExecutionId;

    const NAME: &'static str = "trigger_schedule";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<ScheduleRow>(&self.key);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        if let Ok(row) = existing(world, &self.key) {
            needs_of_run(needs, &row, &self.run(world.now));
        }
    }

    fn decide(&self, world: &World) -> Result<(ExecutionId, Change), EngineError> {
        let mut row = existing(world, &self.key)?;
        let mut change = Change::default();
        let run = self.run(world.now);
        let started = start(world, &mut change, &mut Accepted::default(), &mut row, &run)?;
        remember(&mut row, &started);
        change.update(&row);
        Ok((started, change))
    }
}

impl TriggerSchedule {
    fn run(&self, now: TimestampMs) -> Run<'_> {
        Run::Triggered { request: &self.request, at: now }
    }
}
