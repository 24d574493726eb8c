//! Cancels a flow and, as the policy says, its members, in one transaction.

use super::cancel_header;
use crate::backend::CancelFlowPolicy;
use crate::contracts::CancelFlowResult;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::ending;
use crate::operations::execution::finish::{AttemptEnding, Ending, finish};
use crate::operations::execution::hold;
use crate::rows::{ExecutionRow, FlowKey};
use crate::state::{LifecyclePhase, TerminalOutcome};
use crate::store::{Change, Needs, World};
use crate::types::CancelSource;

#[derive(Debug)]
pub struct CancelFlow {
    pub flow: FlowKey,
    pub policy: CancelFlowPolicy,
}

impl Operation for CancelFlow {
    type Reply = CancelFlowResult;

    const NAME: &'static str = "cancel_flow";

    fn needs(&self, needs: &mut Needs) {
        needs.flows.insert(self.flow);
        needs.flow_members.insert(self.flow);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        for row in world.flow_members(self.flow) {
            ending::more(world, needs, row.key);
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        let flow = world.flow(self.flow).ok_or(EngineError::NotFound { entity: "flow" })?;
        let members = world.flow_members(self.flow);
        let ids = |members: &[&ExecutionRow]| -> Vec<String> {
            members.iter().map(|row| row.key.execution_id().as_str().to_owned()).collect()
        };
        if flow.state.is_finished() {
            let stored = flow.raw_text("cancellation_policy");
            let cancellation_policy = stored.unwrap_or_else(|| self.policy.as_str().to_owned());
            let member_execution_ids = ids(&members);
            let reply = CancelFlowResult::Cancelled { cancellation_policy, member_execution_ids };
            return Ok((reply, change));
        }
        let unfinished: Vec<_> = members.into_iter().filter(|row| !row.is_finished()).collect();
        for row in &unfinished {
            self.reach(world, &mut change, row);
        }
        let policy = self.policy.as_str();
        let now = world.now;
        cancel_header(&mut change, flow, policy, "cancel_flow", unfinished.len(), now, now);
        let reply = CancelFlowResult::Cancelled {
            cancellation_policy: policy.to_owned(),
            member_execution_ids: ids(&unfinished),
        };
        Ok((reply, change))
    }
}

impl CancelFlow {
    fn reach(&self, world: &World, change: &mut Change, row: &ExecutionRow) {
        let running = row.phase == LifecyclePhase::Active;
        match self.policy {
            CancelFlowPolicy::CancelAll => cancel(world, change, row),
            CancelFlowPolicy::CancelPending if !running => cancel(world, change, row),
            CancelFlowPolicy::FlowOnly if !running => hold(world, change, row),
            CancelFlowPolicy::CancelPending | CancelFlowPolicy::FlowOnly => {}
        }
    }
}

fn cancel(world: &World, change: &mut Change, row: &ExecutionRow) {
    let ending = Ending {
        reason: Some("cancel_flow".into()),
        by: Some(CancelSource::FlowCascade.as_str().into()),
        ..Ending::new(TerminalOutcome::Cancelled, world.now, AttemptEnding::Erased)
    };
    finish(world, change, row, ending, |_| {});
}
