//! A paused schedule starts nothing by itself until it is resumed. What comes due meanwhile is left
//! out.

use std::sync::Arc;

use serde_json::json;

use super::{arm, calendar, event, existing, timer_key};
use crate::contracts::EventType;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{ScheduleKey, ScheduleRow, TimerRow};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct PauseSchedule {
    pub key: ScheduleKey,
    pub reason: Arc<str>,
    pub by: Arc<str>,
}

#[derive(Debug)]
pub struct ResumeSchedule {
    pub key: ScheduleKey,
    pub by: Arc<str>,
}

impl Operation for PauseSchedule {
    type Reply = ();

    const NAME: &'static str = "pause_schedule";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<ScheduleRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut row = existing(world, &self.key)?;
        let mut change = Change::default();
        if row.is_paused() && row.paused_reason.as_ref() == Some(&self.reason) {
            return Ok(((), change));
        }
        row.paused_at = Some(world.now);
        row.paused_reason = Some(self.reason.clone());
        row.paused_by = Some(self.by.clone());
        let calendar = calendar(&row)?;
        arm(&mut change, &mut row, &calendar, world.now);
        change.update(&row);
        let details = json!({ "reason": &*self.reason });
        let event = event(&row, EventType::SchedulePaused, world.now, details);
        change.events.push(event.by(known(&self.by)));
        Ok(((), change))
    }
}

impl Operation for ResumeSchedule {
    type Reply = ();

    const NAME: &'static str = "resume_schedule";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<ScheduleRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut row = existing(world, &self.key)?;
        let mut change = Change::default();
        if !row.is_paused() {
            return Ok(((), change));
        }
        row.paused_at = None;
        row.paused_reason = None;
        row.paused_by = None;
        row.looked_until = row.looked_until.max(world.now);
        let calendar = calendar(&row)?;
        arm(&mut change, &mut row, &calendar, world.now);
        if row.runs.0.buffered.is_some() {
            // What it waited for may have ended while nobody was to look.
            let timer = TimerRow { key: timer_key(&row, world.now), members: Vec::new() };
            change.timers.push(Write::Update(timer));
        }
        change.update(&row);
        let event = event(&row, EventType::ScheduleResumed, world.now, json!({}));
        change.events.push(event.by(known(&self.by)));
        Ok(((), change))
    }
}

fn known(by: &Arc<str>) -> Option<Arc<str>> {
    Some(by.clone()).filter(|by| !by.is_empty())
}
