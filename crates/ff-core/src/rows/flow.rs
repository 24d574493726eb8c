//! `ff_flow_core`, `ff_edge_group` and the cancel backlog.

use std::sync::Arc;

use uuid::Uuid;

use super::{Row, record};
use crate::types::{FlowId, TimestampMs};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    pub partition: u16,
    pub id: Uuid,
}

impl FlowKey {
    pub fn flow_id(self) -> FlowId {
        FlowId(self.id)
    }
}

/// Every word in storage except the three endings means that the flow lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowState {
    Open,
    Completed,
    Failed,
    Cancelled,
}

impl FlowState {
    pub fn is_finished(self) -> bool {
        self != Self::Open
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    pub key: FlowKey,
    pub namespace: Arc<str>,
    pub graph_revision: i64,
    pub state: FlowState,
    pub created_at: TimestampMs,
    pub terminal_at: Option<TimestampMs>,
    pub raw_fields: Arc<str>,
}

impl FlowRow {
    pub fn raw_text(&self, name: &str) -> Option<String> {
        let object = super::execution::raw_object(&self.raw_fields);
        object.get(name).and_then(|value| value.as_str()).map(str::to_owned)
    }
}

impl Row for FlowRow {
    type Key = FlowKey;

    fn key(&self) -> FlowKey {
        self.key
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeGroupKey {
    pub flow: FlowKey,
    pub downstream: Uuid,
}

/// The counters that decide when a member with dependencies may run.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeGroupRow {
    pub key: EdgeGroupKey,
    pub success_count: i64,
    pub fail_count: i64,
    pub skip_count: i64,
    pub running_count: i64,
}

impl Row for EdgeGroupRow {
    type Key = EdgeGroupKey;

    fn key(&self) -> EdgeGroupKey {
        self.key
    }
}

record! {
    /// A flow whose cancelled members have not all been acknowledged.
    pub struct BacklogRow in "ff_cancel_backlog" {
        key BacklogKey {
            flow: FlowKey = [partition_key: Small, flow_id: Uuid],
        }
        requested_at: TimestampMs = [requested_at_ms: Int],
        requester: Arc<str> = [requester: Text],
        reason: Arc<str> = [reason: Text],
        cancellation_policy: Arc<str> = [cancellation_policy: Text],
        status: Arc<str> = [status: Text],
    }
}

record! {
    /// A cancelled member that has not been acknowledged.
    pub struct BacklogMemberRow in "ff_cancel_backlog_member" {
        key BacklogMemberKey {
            flow: FlowKey = [partition_key: Small, flow_id: Uuid],
            /// The wire form.
            execution_id: Arc<str> = [execution_id: Text],
        }
    }
}
