//! Cancels a flow with every unfinished member and leaves a backlog to be acknowledged.

use super::cancel_header;
use crate::contracts::{CancelFlowArgs, CancelFlowHeader};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::finish::{AttemptEnding, Ending, finish};
use crate::rows::{BacklogMemberKey, BacklogMemberRow, BacklogRow, FlowKey};
use crate::state::{EligibilityState, TerminalOutcome};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct CancelFlowHeaderOp {
    pub flow: FlowKey,
    pub args: CancelFlowArgs,
}

impl Operation for CancelFlowHeaderOp {
    type Reply = CancelFlowHeader;

    const NAME: &'static str = "cancel_flow_header";

    fn needs(&self, needs: &mut Needs) {
        needs.flows.insert(self.flow);
        needs.flow_members.insert(self.flow);
        needs.backlogs.insert(self.flow);
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
        let mut members = Vec::new();
        for row in world.flow_members(self.flow).into_iter().filter(|row| !row.is_finished()) {
            let ending = Ending {
                reason: Some(args.reason.as_str().into()),
                by: Some("cancel_flow_header".into()),
                ..Ending::new(TerminalOutcome::Cancelled, args.now, AttemptEnding::Untouched)
            };
            finish(world, &mut change, row, ending, |after| {
                after.eligibility = EligibilityState::Cancelled;
            });
            members.push(row.key.execution_id().as_str().to_owned());
        }
        self.record_backlog(world, &mut change, &members);
        let (policy, reason) = (&args.cancellation_policy, &args.reason);
        cancel_header(&mut change, flow, policy, reason, members.len(), args.now, world.now);
        let reply = CancelFlowHeader::Cancelled {
            cancellation_policy: policy.clone(),
            member_execution_ids: members,
        };
        Ok((reply, change))
    }
}

impl CancelFlowHeaderOp {
    /// Who has not been acknowledged, or everybody once the backlog is empty.
    fn remaining(&self, world: &World) -> Vec<String> {
        let of_flow = |row: &&BacklogMemberRow| row.key.flow == self.flow;
        let backlog = world.backlog_members.rows().filter(of_flow);
        let mut remaining: Vec<_> = backlog.map(|row| row.key.execution_id.clone()).collect();
        if remaining.is_empty() {
            let members = world.flow_members(self.flow);
            let ids = members.iter().map(|row| row.key.execution_id().as_str().to_owned());
            remaining = ids.collect();
        }
        remaining.sort_unstable();
        remaining
    }

    fn record_backlog(&self, world: &World, change: &mut Change, members: &[String]) {
        if world.backlogs.get(&self.flow).is_none() {
            change.backlogs.push(Write::Insert(BacklogRow {
                key: self.flow,
                requested_at: self.args.now,
                requester: "".into(),
                reason: self.args.reason.as_str().into(),
                cancellation_policy: self.args.cancellation_policy.as_str().into(),
                status: "pending".into(),
            }));
        }
        for execution_id in members {
            let key = BacklogMemberKey { flow: self.flow, execution_id: execution_id.clone() };
            if world.backlog_members.get(&key).is_none() {
                change.backlog_members.push(Write::Insert(BacklogMemberRow { key }));
            }
        }
    }
}
