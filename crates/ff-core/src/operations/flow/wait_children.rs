//! A holder puts its execution down until the nodes that it has added to its flow have ended.

use super::children_of;
use crate::backend::Handle;
use crate::contracts::{EventType, WaitChildrenResult};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::replay::block;
use crate::operations::execution::{fence, hold_back, transition};
use crate::rows::{ChildrenRow, EventRow, FlowKey, FlowState};
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

    fn more(&self, world: &World, needs: &mut Needs) {
        let row = world.execution(self.handle.key());
        let flow =
            row.and_then(|row| Some(FlowKey { partition: row.key.partition, id: row.flow_id? }));
        needs.flows.extend(flow);
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
        let flow = world.flow_of(held.row).filter(|flow| flow.state == FlowState::Cancelled);
        let event_type = match flow {
            // Nobody is told of anything in a cancelled flow: it would wait for ever.
            Some(flow) => {
                hold_back(&mut after);
                super::returned(&mut change, flow, held.row, world.now);
                EventType::Held
            }
            None => {
                children.waiting = true;
                change.update(&children);
                block(&mut after);
                EventType::WaitingChildren
            }
        };
        transition(&mut change, held.row, after, event_type, world.now, |event| {
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
            && attempt.is_fenced_by(&self.handle)
    }
}
