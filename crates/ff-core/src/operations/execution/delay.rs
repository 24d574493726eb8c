//! The holder puts its execution down for a while. The same attempt goes on afterwards.

use std::time::Duration;

use super::fence::{self, Held};
use super::requeue::wait_until;
use super::{ending, transition};
use crate::backend::Handle;
use crate::contracts::EventType;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{EventRow, ExecutionRow};
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
        if let Some(until) = already_put_down(world, &self.handle) {
            return Ok((until, change));
        }
        let held = fence::held(world, &self.handle)?;
        let until = world.now.after(self.delay);
        let details = serde_json::json!({ "delay_until": until.0 });
        put_down(&mut change, &held, held.row.clone(), until, world.now, &details);
        Ok((until, change))
    }
}

/// Gives a held execution back until its time has come.
pub(crate) fn put_down(
    change: &mut Change,
    held: &Held<'_>,
    mut after: ExecutionRow,
    until: TimestampMs,
    now: TimestampMs,
    details: &serde_json::Value,
) {
    let by = held.attempt.worker_instance_id.clone();
    let mut attempt = held.attempt.clone();
    attempt.lease_expires_at = None;
    attempt.worker_instance_id = None;
    change.attempts.push(Write::Update(attempt));
    after.attempt_state = AttemptState::AttemptInterrupted;
    wait_until(change, &mut after, until, now, BlockingReason::WaitingForDelay);
    transition(change, held.row, after, EventType::Delayed, now, |event| EventRow {
        lease_ended: true,
        ..event.by(by).details(details)
    });
}

/// Only its holder leaves an attempt interrupted under the fence that it had: then the first call
/// was committed, and this is when the execution goes on.
pub(crate) fn already_put_down(world: &World, handle: &Handle) -> Option<TimestampMs> {
    let row = world.execution(handle.key())?;
    let attempt = world.current_attempt(row)?;
    let put_down = row.phase == LifecyclePhase::Runnable
        && row.attempt_state == AttemptState::AttemptInterrupted
        && attempt.is_fenced_by(handle);
    put_down.then_some(row.not_before.unwrap_or(world.now))
}
