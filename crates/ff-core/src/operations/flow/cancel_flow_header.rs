//! Cancels a flow with every unfinished member and leaves a backlog to be acknowledged.

use super::reach::{BY_HEADER, CHUNK, Reach};
use super::{backlog, cancel_header, leave_backlog, leave_rest, more_to_count, open_members};
use crate::contracts::{CancelFlowArgs, CancelFlowHeader};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::ending;
use crate::rows::{BacklogKey, BacklogMemberRow, BacklogRow, CascadeRow, ExecutionRow, FlowKey};
use crate::store::{Change, MemberScan, Needs, World};

#[derive(Debug)]
pub struct CancelFlowHeaderOp {
    pub flow: FlowKey,
    pub args: CancelFlowArgs,
}

/// The answer, as far as it was seen here. Members beyond the first chunk are not read in the
/// transaction that cancels them, for it holds others up.
#[derive(Debug)]
pub struct CancelledHeader {
    pub header: CancelFlowHeader,
    /// Who is to be named with those that are.
    pub rest: Option<Rest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Whoever this cancellation ends, sooner or later.
    Cancelled,
    /// Whoever it has yet to end, and the backlog.
    Unreached,
    Everybody,
}

impl Rest {
    pub fn names(self, row: &ExecutionRow) -> bool {
        let reached = row.cancelled_by.as_deref() == Some(BY_HEADER);
        match self {
            Self::Cancelled => !row.is_finished() || reached,
            Self::Unreached => !row.is_finished(),
            Self::Everybody => true,
        }
    }
}

impl CancelFlowHeaderOp {
    fn first_members(&self) -> MemberScan {
        MemberScan { flow: self.flow, after: None, limit: CHUNK }
    }
}

impl Operation for CancelFlowHeaderOp {
    type Reply = CancelledHeader;

    const NAME: &'static str = "cancel_flow_header";

    fn needs(&self, needs: &mut Needs) {
        needs.cancelled_flow(self.flow);
        needs.members.insert(self.first_members());
        backlog::more(needs, self.flow);
        needs.scan(&backlog::members(self.flow));
        needs.record::<CascadeRow>(&backlog::going_on(self.flow));
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        for row in world.members(&self.first_members()) {
            ending::more_alone(needs, row);
        }
        more_to_count(world, needs, self.flow, &self.first_members());
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let args = &self.args;
        let mut change = Change::default();
        let flow = world.flow(self.flow).ok_or(EngineError::NotFound { entity: "flow" })?;
        if flow.state.is_finished() {
            let (member_execution_ids, rest) = self.remaining(world);
            let header = CancelFlowHeader::AlreadyTerminal {
                stored_cancellation_policy: flow.raw_text("cancellation_policy"),
                stored_cancel_reason: flow.raw_text("cancel_reason"),
                member_execution_ids,
            };
            return Ok((CancelledHeader { header, rest }, change));
        }
        let scan = self.first_members();
        let members = world.members(&scan).into_iter().filter(|row| !row.is_finished());
        let members: Vec<_> = members.collect();
        let (policy, reason) = (&args.cancellation_policy, &args.reason);
        let open = open_members(world, flow, &scan, members.len());
        cancel_header(&mut change, flow, policy, reason, open, args.now, world.now);
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
        let header = CancelFlowHeader::Cancelled {
            cancellation_policy: policy.clone(),
            member_execution_ids: ids.collect(),
        };
        let rest = world.members_cut(&scan).map(|_| Rest::Cancelled);
        Ok((CancelledHeader { header, rest }, change))
    }
}

impl CancelFlowHeaderOp {
    /// Who has not been acknowledged, or everybody once the backlog is empty.
    fn remaining(&self, world: &World) -> (Vec<String>, Option<Rest>) {
        let backlog = world.scan::<BacklogMemberRow>(&backlog::members(self.flow));
        let mut remaining: Vec<String> =
            backlog.iter().map(|row| (*row.key.execution_id).to_owned()).collect();
        let going_on = world.record::<CascadeRow>(&backlog::going_on(self.flow)).is_some();
        let mut rest = going_on.then_some(Rest::Unreached);
        if remaining.is_empty() {
            let scan = self.first_members();
            let members = world.members(&scan);
            let ids = members.iter().map(|row| row.key.execution_id().as_str().to_owned());
            remaining = ids.collect();
            rest = world.members_cut(&scan).map(|_| Rest::Everybody);
        }
        remaining.sort_unstable();
        (remaining, rest)
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
