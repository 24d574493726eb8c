//! The holder puts its execution down for a while. The same attempt goes on afterwards.

use std::time::Duration;

use super::requeue::wait_until;
use super::{ending, fence, transition};
use crate::backend::Handle;
use crate::contracts::EventType;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::EventRow;
use crate::state::{AttemptState, BlockingReason, LifecyclePhase};
use crate::store::{Change, Needs, World, Write};
use crate::types::TimestampMs;

#[derive(Debug)]
pub struct Delay {
    pub handle: Handle,
    pub delay: Duration,
}

impl Operation for Delay {
    /// When it becomes claimable again.
    type Reply = TimestampMs;

    const NAME: &'static str = "delay";

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        ending::more(world, needs, self.handle.key());
    }

    fn decide(&self, world: &World) -> Result<(TimestampMs, Change), EngineError> {
        let mut change = Change::default();
        if let Some(until) = self.answer_to_repeat(world) {
            return Ok((until, change));
        }
        let held = fence::held(world, &self.handle)?;
        let until = world.now.after(self.delay);
        let by = held.attempt.worker_instance_id.clone();
        let mut attempt = held.attempt.clone();
        attempt.lease_expires_at = None;
        attempt.worker_instance_id = None;
        change.attempts.push(Write::Update(attempt));

        let mut after = held.row.clone();
        after.attempt_state = AttemptState::AttemptInterrupted;
        wait_until(&mut change, &mut after, until, world.now, BlockingReason::WaitingForDelay);
        transition(&mut change, held.row, after, EventType::Delayed, world.now, |event| {
            let details = serde_json::json!({ "delay_until": until.0 });
            EventRow { lease_ended: true, ..event.by(by).details(&details) }
        });
        Ok((until, change))
    }
}

impl Delay {
    /// Only a delay leaves an attempt interrupted under the fence that its holder had.
    fn answer_to_repeat(&self, world: &World) -> Option<TimestampMs> {
        let row = world.execution(self.handle.key())?;
        let attempt = world.current_attempt(row)?;
        let put_down = row.phase == LifecyclePhase::Runnable
            && row.attempt_state == AttemptState::AttemptInterrupted
            && row.attempt_index == self.handle.attempt_index()
            && attempt.lease_epoch == self.handle.lease_epoch().0;
        put_down.then_some(row.not_before.unwrap_or(world.now))
    }
}
