//! Stops a bulk operation where it is. What it has done stays.

use super::{KEPT_MS, counts, event, existing, timer_key};
use crate::contracts::{BulkState, EventType};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{BulkKey, BulkRow, TimerRow, Word};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct CancelBulk {
    pub key: BulkKey,
}

impl Operation for CancelBulk {
    type Reply = BulkRow;

    const NAME: &'static str = "cancel_bulk";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<BulkRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(BulkRow, Change), EngineError> {
        let mut row = existing(world, &self.key)?;
        let mut change = Change::default();
        if row.state.0 != BulkState::Running {
            return Ok((row, change));
        }
        row.state = Word(BulkState::Cancelled);
        row.finished_at = Some(world.now);
        change.update(&row);
        let forget =
            TimerRow { key: timer_key(&row, world.now.after_ms(KEPT_MS)), members: Vec::new() };
        change.timers.push(Write::Update(forget));
        change.events.push(event(&row, EventType::BulkCancelled, world.now, counts(&row)));
        Ok((row, change))
    }
}
