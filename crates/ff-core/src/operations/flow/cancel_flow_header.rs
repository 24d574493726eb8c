//! Cancels a flow with every unfinished member and leaves a backlog to be acknowledged.

use super::reach::{CHUNK, Reach};
use super::{backlog, cancel_header, leave_backlog, leave_rest};
use crate::contracts::{CancelFlowArgs, CancelFlowHeader};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::ending;
use crate::rows::{BacklogKey, BacklogMemberRow, BacklogRow, FlowKey};
use crate::store::{Change, MemberScan, Needs, World};

#[derive(Debug)]
pub struct CancelFlowHeaderOp {
    pub flow: FlowKey,
    pub args: CancelFlowArgs,
}

impl CancelFlowHeaderOp {
    fn first_members(&self) -> MemberScan {
        MemberScan { flow: self.flow, after: None, limit: CHUNK }
    }
}

impl Operation for CancelFlowHeaderOp {
    type Reply = CancelFlowHeader;

    const NAME: &'static str = "cancel_flow_header";

    fn needs(&self, needs: &mut Needs) {
        needs.flows.insert(self.flow);
        needs.members.insert(self.first_members());
        backlog::more(needs, self.flow);
        needs.scan(&backlog::members(self.flow));
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        for row in world.members(&self.first_members()) {
            ending::more_alone(needs, row);
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let args = &self.args;
        let mut change = Change::default();
        let flow = world.flow(self.flow).ok_or(EngineError::NotFound { entity: "flow" })?;
        if flow.state.is_finished() {
            let reply = CancelFlowHeader::AlreadyTerminal {
                stored_cancellation_policy: flow.raw_text("cancellation_policy"),
                stored_cancel_reason: flow.raw_text("cancel_reason"),
                member_execution_ids: self.remaining(world),
            };
            return Ok((reply, change));
        }
        let scan = self.first_members();
        let members = world.members(&scan).into_iter().filter(|row| !row.is_finished());
        let members: Vec<_> = members.collect();
        let (policy, reason) = (&args.cancellation_policy, &args.reason);
        cancel_header(&mut change, flow, policy, reason, members.len(), args.now, world.now);
        let reach = Reach::Header { reason: reason.as_str().into(), at: args.now };
        for row in &members {
            reach.member(world, &mut change, row);
        }
        self.record_backlog(world, &mut change);
        backlog::add(world, &mut change, self.flow, &members);
        leave_backlog(&mut change, flow, world.now);
        if let Some(last) = world.members_cut(&scan) {
            leave_rest(&mut change, flow, &reach, last, world.now);
        }
        let ids = members.iter().map(|row| row.key.execution_id().as_str().to_owned());
        let reply = CancelFlowHeader::Cancelled {
            cancellation_policy: policy.clone(),
            member_execution_ids: ids.collect(),
        };
        Ok((reply, change))
    }
}

impl CancelFlowHeaderOp {
    /// Who has not been acknowledged, or everybody once the backlog is empty.
    fn remaining(&self, world: &World) -> Vec<String> {
        let backlog = world.scan::<BacklogMemberRow>(&backlog::members(self.flow));
        let mut remaining: Vec<String> =
            backlog.iter().map(|row| (*row.key.execution_id).to_owned()).collect();
        if remaining.is_empty() {
            let members = world.members(&self.first_members());
            let ids = members.iter().map(|row| row.key.execution_id().as_str().to_owned());
            remaining = ids.collect();
        }
        remaining.sort_unstable();
        remaining
    }

    fn record_backlog(&self, world: &World, change: &mut Change) {
        let key = BacklogKey { flow: self.flow };
        if world.record::<BacklogRow>(&key).is_none() {
            change.insert(&BacklogRow {
                key,
                requested_at: self.args.now,
                requester: "".into(),
                reason: self.args.reason.as_str().into(),
                cancellation_policy: self.args.cancellation_policy.as_str().into(),
                status: "pending".into(),
            });
        }
    }
}
