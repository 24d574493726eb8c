//! `ff_flow_core`, `ff_edge_group` and the cancel backlog.

use std::sync::Arc;

use uuid::Uuid;

use super::Row;
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

/// A flow whose cancelled members have not all been acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct BacklogRow {
    pub key: FlowKey,
    pub requested_at: TimestampMs,
    pub requester: Arc<str>,
    pub reason: Arc<str>,
    pub cancellation_policy: Arc<str>,
    pub status: Arc<str>,
}

impl Row for BacklogRow {
    type Key = FlowKey;

    fn key(&self) -> FlowKey {
        self.key
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BacklogMemberKey {
    pub flow: FlowKey,
    /// The wire form.
    pub execution_id: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BacklogMemberRow {
    pub key: BacklogMemberKey,
}

impl Row for BacklogMemberRow {
    type Key = BacklogMemberKey;

    fn key(&self) -> BacklogMemberKey {
        self.key.clone()
    }
}
