//! Graphs of executions: accepted as a whole, extended by their members, advanced by every end,
//! cancelled at once or through an acknowledged backlog, and run again.

mod ack_cancel_member;
mod backlog;
mod cancel_flow;
mod cancel_flow_header;
pub(crate) mod cascade;
pub(crate) mod drafts;
pub(crate) mod due;
mod extend_flow;
mod forget;
pub mod graph;
mod reach;
mod recount_flow;
pub(crate) mod replay;
pub mod rule;
mod submit_flow;
mod wait_children;

pub use ack_cancel_member::AckCancelMember;
pub(crate) use backlog::{going_on as members_going_on, members as backlog_members};
pub use cancel_flow::CancelFlow;
pub use cancel_flow_header::{CancelFlowHeaderOp, CancelledHeader, Rest};
pub use extend_flow::{End, ExtendFlow, NewEdge};
pub use recount_flow::RecountFlow;
pub use replay::ReplayFlow;
pub use submit_flow::SubmitFlow;
pub use wait_children::WaitChildren;

use serde_json::json;
use uuid::Uuid;

use crate::backend::CancelFlowPolicy;
use crate::contracts::EventType;
use crate::rows::{
    CascadeKey, CascadeKind, CascadeRow, ChildrenKey, ExecutionRow, FlowKey, FlowRow, FlowState,
    TimerKind, TimerRow, Word, with_raw,
};
use crate::state::TerminalOutcome;
use crate::store::{Change, MemberScan, Needs, World, Write};
use crate::types::{ExecutionKey, TimestampMs};

/// The header of a flow that is being cancelled, and the one event for it.
fn cancel_header(
    change: &mut Change,
    flow: &FlowRow,
    policy: &str,
    reason: &str,
    members: u64,
    at: TimestampMs,
    now: TimestampMs,
) {
    let mut after = flow.clone();
    after.state = FlowState::Cancelled;
    after.terminal_at = after.terminal_at.or(Some(at));
    after.raw_fields = with_raw(
        &flow.raw_fields,
        [("cancellation_policy", json!(policy)), ("cancel_reason", json!(reason))],
    );
    change.flows.push(Write::Update(after));
    let details = json!({
        "flow_id": flow.key.flow_id(),
        "cancellation_policy": policy,
        "reason": reason,
        "member_count": members,
    });
    let event = cascade::flow_event(flow, EventType::FlowCancelRequested, now);
    change.events.push(event.details(&details).asked_at(Some(at)));
}

/// Asks for the number of members that a cancellation does not reach at once.
fn more_to_count(world: &World, needs: &mut Needs, flow: FlowKey, scan: &MemberScan) {
    let counted = world.flow(flow).is_some_and(|flow| flow.nodes > 0);
    if world.members_cut(scan).is_some() && !counted {
        needs.open_members.insert(flow);
    }
}

/// How many members of a flow have not ended: those that were read, unless there are more. A flow
/// that was submitted knows; the executions of one that was inserted by hand are counted.
fn open_members(world: &World, flow: &FlowRow, scan: &MemberScan, read: usize) -> u64 {
    let read = read as u64;
    if world.members_cut(scan).is_none() {
        return read;
    }
    let counted = world.open_members.get(&flow.key).copied();
    let known = flow.nodes.saturating_sub(flow.ended.total());
    counted.unwrap_or(known).max(read)
}

/// Work on a flow as a whole.
fn flow_cascade(flow: &FlowRow, kind: CascadeKind, at: TimestampMs) -> CascadeRow {
    CascadeRow {
        key: CascadeKey { subject: flow.key.id, version: 0, kind: Word(kind) },
        flow: flow.key,
        outcome: Word(TerminalOutcome::Cancelled),
        at,
        counted: true,
        after: None,
        policy: None,
        reason: None,
    }
}

/// The members behind this one are reached in chunks.
fn leave_rest(
    change: &mut Change,
    flow: &FlowRow,
    reach: &reach::Reach,
    last: Uuid,
    now: TimestampMs,
) {
    let (policy, reason) = reach.remembered();
    let mut cascade = flow_cascade(flow, CascadeKind::Members, reach.at(now));
    cascade.after = Some(last);
    (cascade.policy, cascade.reason) = (Some(policy), Some(reason));
    cascade::defer(change, now, &cascade);
}

/// A member comes back to its lane after its flow was cancelled, because its worker has died or
/// has put it down. It was not to be reached while it ran; it is now, if the policy says so.
pub(crate) fn returned(change: &mut Change, flow: &FlowRow, row: &ExecutionRow, now: TimestampMs) {
    let policy = flow.raw_text("cancellation_policy").unwrap_or_default();
    if flow.state != FlowState::Cancelled || policy == CancelFlowPolicy::FlowOnly.as_str() {
        return;
    }
    let mut cascade = flow_cascade(flow, CascadeKind::Returned, now);
    cascade.key = CascadeKey { subject: row.key.id, version: row.version, ..cascade.key };
    cascade.policy = Some(CancelFlowPolicy::CancelPending.as_str().into());
    cascade::defer(change, now, &cascade);
}

/// A backlog that nobody acknowledges is drained after a while.
fn leave_backlog(change: &mut Change, flow: &FlowRow, now: TimestampMs) {
    let due_at = now.after(backlog::PATIENCE);
    change.insert(&flow_cascade(flow, CascadeKind::Backlog, due_at));
    let timer = TimerRow::bare(TimerKind::Cascade, due_at, flow.key.id);
    change.timers.push(Write::Update(timer));
}

/// Asks for what [`forget`] looks at.
pub(crate) fn more_to_forget(needs: &mut Needs, flow: FlowKey) {
    needs.flows.insert(flow);
    needs.record::<CascadeRow>(&to_forget(flow));
}

/// A flow has been over since before `at`: unless somebody in it has not, it is forgotten.
pub(crate) fn forget(world: &World, change: &mut Change, flow: &FlowRow, at: TimestampMs) {
    let cascade = flow_cascade(flow, CascadeKind::Forget, at);
    if flow.state.is_finished() && world.record::<CascadeRow>(&cascade.key).is_none() {
        cascade::defer(change, world.now, &cascade);
    }
}

fn to_forget(flow: FlowKey) -> CascadeKey {
    CascadeKey { subject: flow.id, version: 0, kind: Word(CascadeKind::Forget) }
}

/// Where the nodes that an execution has added are counted.
pub(crate) fn children_of(execution: ExecutionKey) -> ChildrenKey {
    ChildrenKey { execution }
}
