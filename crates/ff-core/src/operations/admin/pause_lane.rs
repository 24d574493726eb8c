//! A paused lane hands nothing out until it is resumed, also across restarts.

use std::sync::Arc;

use serde_json::json;

use crate::contracts::EventType;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{EventRow, LaneRow};
use crate::state::LaneState;
use crate::store::{Change, Needs, World, Write};
use crate::types::TimestampMs;

#[derive(Debug)]
pub struct PauseLane {
    pub lane: Arc<str>,
    pub reason: Arc<str>,
    pub by: Arc<str>,
}

#[derive(Debug)]
pub struct ResumeLane {
    pub lane: Arc<str>,
    pub by: Arc<str>,
}

impl Operation for PauseLane {
    type Reply = ();

    const NAME: &'static str = "pause_lane";

    fn needs(&self, needs: &mut Needs) {
        needs.written_lane(self.lane.clone());
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let known = world.lanes.get(&self.lane);
        let same = known.is_some_and(|lane| {
            lane.state == LaneState::Paused && lane.paused_reason.as_ref() == Some(&self.reason)
        });
        if same {
            return Ok(((), Change::default()));
        }
        let after = LaneRow {
            lane: self.lane.clone(),
            state: LaneState::Paused,
            paused_reason: Some(self.reason.clone()),
            paused_by: Some(self.by.clone()).filter(|by| !by.is_empty()),
            paused_at: Some(world.now),
            limited: known.is_some_and(|lane| lane.limited),
        };
        let put = if known.is_some() { Write::Update } else { Write::Insert };
        let event = lane_event(&self.lane, EventType::LanePaused, world.now, &self.by);
        let event = event.details(&json!({ "reason": &*self.reason }));
        Ok(((), Change { lanes: vec![put(after)], events: vec![event], ..Change::default() }))
    }
}

impl Operation for ResumeLane {
    type Reply = ();

    const NAME: &'static str = "resume_lane";

    fn needs(&self, needs: &mut Needs) {
        needs.written_lane(self.lane.clone());
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let known = world.lanes.get(&self.lane).ok_or(EngineError::NotFound { entity: "lane" })?;
        if known.state == LaneState::Active {
            return Ok(((), Change::default()));
        }
        let after = LaneRow { limited: known.limited, ..LaneRow::active(self.lane.clone()) };
        let event = lane_event(&self.lane, EventType::LaneResumed, world.now, &self.by);
        let lanes = vec![Write::Update(after)];
        Ok(((), Change { lanes, events: vec![event], ..Change::default() }))
    }
}

fn lane_event(lane: &Arc<str>, event_type: EventType, at: TimestampMs, by: &Arc<str>) -> EventRow {
    let by = Some(by.clone()).filter(|by| !by.is_empty());
    EventRow { lane: Some(lane.clone()), ..EventRow::bare(event_type, "".into(), at).by(by) }
}
