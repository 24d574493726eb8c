//! Cancelling a flow, at once or through an acknowledged backlog.

mod ack_cancel_member;
mod cancel_flow;
mod cancel_flow_header;

pub use ack_cancel_member::AckCancelMember;
pub use cancel_flow::CancelFlow;
pub use cancel_flow_header::CancelFlowHeaderOp;

use serde_json::json;

use crate::contracts::EventType;
use crate::rows::{BacklogMemberRow, EventRow, FlowKey, FlowRow, FlowState, values, with_raw};
use crate::store::{Change, Scan, Write};
use crate::types::TimestampMs;

/// Everybody whom the backlog still names. The lock of its header stands for them.
fn backlog_members(flow: FlowKey) -> Scan {
    Scan::of::<BacklogMemberRow>(values![flow]).limit(usize::MAX).unlocked()
}

/// The header of a flow that is being cancelled, and the one event for it.
fn cancel_header(
    change: &mut Change,
    flow: &FlowRow,
    policy: &str,
    reason: &str,
    members: usize,
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
    let namespace = flow.namespace.clone();
    let event = EventRow::bare(EventType::FlowCancelRequested, namespace, now).details(&details);
    change.events.push(EventRow { flow_id: Some(flow.key.id), ..event });
}
