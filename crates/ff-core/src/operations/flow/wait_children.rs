//! A holder puts its execution down until the nodes that it has added to its flow have ended.

use super::children_of;
use crate::backend::Handle;
use crate::contracts::{EventType, WaitChildrenResult};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::replay::block;
use crate::operations::execution::{fence, transition};
use crate::rows::{ChildrenRow, EventRow};
use crate::state::{AttemptState, LifecyclePhase, OwnershipState};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct WaitChildren {
    pub handle: Handle,
}

impl Operation for WaitChildren {
    type Reply = WaitChildrenResult;

    const NAME: &'static str = "wait_children";

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
        needs.record::<ChildrenRow>(&children_of(self.handle.key()));
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        let children = world.record::<ChildrenRow>(&children_of(self.handle.key()));
        let open = children.as_ref().map_or(0, |row| row.added.saturating_sub(row.ended));
        if self.is_repeated(world) {
            return Ok((WaitChildrenResult::Waiting { open }, change));
        }
        let held = fence::held(world, &self.handle)?;
        let Some(mut children) = children.filter(|_| open > 0) else {
            return Ok((WaitChildrenResult::Ended, change));
        };
        children.waiting = true;
        change.update(&children);

        let by = held.attempt.worker_instance_id.clone();
        let mut attempt = held.attempt.clone();
        attempt.lease_expires_at = None;
        attempt.worker_instance_id = None;
        change.attempts.push(Write::Update(attempt));

        let mut after = held.row.clone();
        after.phase = LifecyclePhase::Runnable;
        after.ownership = OwnershipState::Unowned;
        after.attempt_state = AttemptState::AttemptInterrupted;
        after.not_before = None;
        block(&mut after);
        transition(&mut change, held.row, after, EventType::WaitingChildren, world.now, |event| {
            let details = serde_json::json!({ "open": open });
            EventRow { lease_ended: true, ..event.by(by).details(&details) }
        });
        Ok((WaitChildrenResult::Waiting { open }, change))
    }
}

impl WaitChildren {
    /// The first call may have been committed without its answer arriving.
    fn is_repeated(&self, world: &World) -> bool {
        let Some(row) = world.execution(self.handle.key()) else { return false };
        let Some(attempt) = world.current_attempt(row) else { return false };
        row.phase == LifecyclePhase::Runnable
            && row.attempt_state == AttemptState::AttemptInterrupted
            && row.attempt_index == self.handle.attempt_index()
            && attempt.lease_epoch == self.handle.lease_epoch().0
    }
}
