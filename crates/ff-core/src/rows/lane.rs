//! `ff_lane`: every lane that was ever used, and whether it is paused.

use std::sync::Arc;

use super::Row;
use crate::state::LaneState;
use crate::types::TimestampMs;

#[derive(Clone, Debug, PartialEq)]
pub struct LaneRow {
    pub lane: Arc<str>,
    pub state: LaneState,
    pub paused_reason: Option<Arc<str>>,
    pub paused_by: Option<Arc<str>>,
    pub paused_at: Option<TimestampMs>,
    /// Claims must look at limits. The row with the empty name says it for every lane.
    pub limited: bool,
}

impl LaneRow {
    pub fn active(lane: Arc<str>) -> Self {
        Self {
            lane,
            state: LaneState::Active,
            paused_reason: None,
            paused_by: None,
            paused_at: None,
            limited: false,
        }
    }
}

impl LaneRow {
    /// The name of the row that speaks for every lane.
    pub fn every() -> Arc<str> {
        "".into()
    }
}

impl Row for LaneRow {
    type Key = Arc<str>;

    fn key(&self) -> Arc<str> {
        self.lane.clone()
    }
}
