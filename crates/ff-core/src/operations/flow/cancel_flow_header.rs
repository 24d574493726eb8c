//! Cancels a flow with every unfinished member and leaves a backlog to be acknowledged.

use std::collections::HashSet;

use super::{backlog_members, cancel_header};
use crate::contracts::{CancelFlowArgs, CancelFlowHeader};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::ending;
use crate::operations::execution::finish::{AttemptEnding, Ending, finish};
use crate::rows::{BacklogKey, BacklogMemberKey, BacklogMemberRow, BacklogRow, FlowKey};
use crate::state::{EligibilityState, TerminalOutcome};
use crate::store::{Change, Needs, World};

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
        needs.record::<BacklogRow>(&BacklogKey { flow: self.flow });
        needs.scan(&backlog_members(self.flow));
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        for row in world.flow_members(self.flow) {
            ending::more(world, needs, row.key);
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
        let backlog = world.scan::<BacklogMemberRow>(&backlog_members(self.flow));
        let mut remaining: Vec<String> =
            backlog.iter().map(|row| (*row.key.execution_id).to_owned()).collect();
        if remaining.is_empty() {
            let members = world.flow_members(self.flow);
            let ids = members.iter().map(|row| row.key.execution_id().as_str().to_owned());
            remaining = ids.collect();
        }
        remaining.sort_unstable();
        remaining
    }

    fn record_backlog(&self, world: &World, change: &mut Change, members: &[String]) {
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
        let known = world.scan::<BacklogMemberRow>(&backlog_members(self.flow));
        let known: HashSet<_> = known.into_iter().map(|row| row.key).collect();
        for execution_id in members {
            let execution_id = execution_id.as_str().into();
            let key = BacklogMemberKey { flow: self.flow, execution_id };
            if !known.contains(&key) {
                change.insert(&BacklogMemberRow { key });
            }
        }
    }
}
