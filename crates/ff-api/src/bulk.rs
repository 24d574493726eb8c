//! Bulk operations: one action on every execution that a filter names.

use ff_core::contracts::{BulkAction, BulkState};
use ff_core::state::PublicState;
use ff_core::types::{FlowId, LaneId, Namespace, TimestampMs};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Which executions of the namespace; an absent part means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BulkFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane_id: Option<LaneId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<PublicState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_id: Option<FlowId>,
    /// `key:value`: executions that carry this tag with this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_from: Option<TimestampMs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_before: Option<TimestampMs>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewBulkRequest {
    pub filter: BulkFilter,
}

/// The filter must be there, if only as `{}`, so that nothing means everything by mistake.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartBulkRequest {
    pub filter: BulkFilter,
    pub action: BulkAction,
}

/// How far a bulk operation has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BulkSnapshot {
    pub bulk_id: Uuid,
    /// Absent when it reaches all namespaces.
    pub namespace: Option<Namespace>,
    pub filter: BulkFilter,
    pub action: BulkAction,
    pub state: BulkState,
    pub by: String,
    pub created_at: TimestampMs,
    pub finished_at: Option<TimestampMs>,
    /// How many there were when it was started.
    pub matched: u64,
    /// How many it has come to: changed, skipped and failed together.
    pub done: u64,
    pub changed: u64,
    /// Those that were so already, or had changed before it came to them.
    pub skipped: u64,
    /// Those that refused.
    pub failed: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BulkAnswer {
    /// Newest first.
    pub operations: Vec<BulkSnapshot>,
    /// Present when there is more.
    pub next_cursor: Option<String>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}
