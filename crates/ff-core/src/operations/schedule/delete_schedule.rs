//! Forgets a schedule. Its runs stay.

use serde_json::json;

use super::{event, existing, timer_key};
use crate::contracts::EventType;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{ScheduleKey, ScheduleRow};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct DeleteSchedule {
    pub key: ScheduleKey,
}

impl Operation for DeleteSchedule {
    type Reply = ();

    const NAME: &'static str = "delete_schedule";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<ScheduleRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let row = existing(world, &self.key)?;
        let mut change = Change::default();
        change.delete::<ScheduleRow>(&self.key);
        if let Some(at) = row.next_start {
            change.timers.push(Write::Delete(timer_key(&row, at)));
        }
        change.events.push(event(&row, EventType::ScheduleDeleted, world.now, json!({})));
        Ok(((), change))
    }
}
