//! Cancels a flow and, as the policy says, its members: at once if they are few, and otherwise
//! the first of them at once and the rest in chunks.

use super::reach::{CHUNK, Reach};
use super::{cancel_header, leave_rest, more_to_count, open_members};
use crate::backend::CancelFlowPolicy;
use crate::contracts::CancelFlowResult;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::ending;
use crate::rows::{ExecutionRow, FlowKey};
use crate::state::LifecyclePhase;
use crate::store::{Change, MemberScan, Needs, World};

#[derive(Debug)]
pub struct CancelFlow {
    pub flow: FlowKey,
    pub policy: CancelFlowPolicy,
}

/// The answer, and whether it is known that no member is left to wait for.
#[derive(Debug)]
pub struct CancelledFlow {
    pub result: CancelFlowResult,
    pub is_quiet: bool,
}

impl CancelFlow {
    fn first_members(&self) -> MemberScan {
        MemberScan { flow: self.flow, after: None, limit: CHUNK }
    }
}

impl Operation for CancelFlow {
    type Reply = CancelledFlow;

    const NAME: &'static str = "cancel_flow";

    fn needs(&self, needs: &mut Needs) {
        needs.cancelled_flow(self.flow);
        needs.members.insert(self.first_members());
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        for row in world.members(&self.first_members()) {
            ending::more_alone(needs, row);
        }
        more_to_count(world, needs, self.flow, &self.first_members());
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        let flow = world.flow(self.flow).ok_or(EngineError::NotFound { entity: "flow" })?;
        let scan = self.first_members();
        let members = world.members(&scan);
        let ids = |members: &[&ExecutionRow]| -> Vec<String> {
            members.iter().map(|row| row.key.execution_id().as_str().to_owned()).collect()
        };
        if flow.state.is_finished() {
            let stored = flow.raw_text("cancellation_policy");
            let cancellation_policy = stored.unwrap_or_else(|| self.policy.as_str().to_owned());
            let member_execution_ids = ids(&members);
            let result = CancelFlowResult::Cancelled { cancellation_policy, member_execution_ids };
            return Ok((CancelledFlow { result, is_quiet: false }, change));
        }
        let unfinished: Vec<_> = members.into_iter().filter(|row| !row.is_finished()).collect();
        let policy = self.policy.as_str();
        let now = world.now;
        // The header goes first: the ends of its members then cause nothing in one another.
        let open = open_members(world, flow, &scan, unfinished.len());
        cancel_header(&mut change, flow, policy, "cancel_flow", open, now, now);
        let reach = Reach::Policy(self.policy);
        for row in &unfinished {
            reach.member(world, &mut change, row);
        }
        let cancellation_policy = policy.to_owned();
        let member_execution_ids = ids(&unfinished);
        let running = unfinished.iter().any(|row| row.phase == LifecyclePhase::Active);
        let spares_running = self.policy != CancelFlowPolicy::CancelAll;
        let cut = world.members_cut(&scan);
        let is_quiet = cut.is_none() && !(running && spares_running);
        let result = match cut {
            None => CancelFlowResult::Cancelled { cancellation_policy, member_execution_ids },
            Some(last) => {
                leave_rest(&mut change, flow, &reach, last, now);
                let member_count = u32::try_from(open).unwrap_or(u32::MAX);
                CancelFlowResult::CancellationScheduled {
                    cancellation_policy,
                    member_count,
                    member_execution_ids,
                }
            }
        };
        Ok((CancelledFlow { result, is_quiet }, change))
    }
}
