//! Doing one thing to every execution that a filter names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::state::PublicState;
use crate::types::{ExecutionId, FlowId, LaneId, Namespace, TimestampMs};

/// Which executions; an absent part means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulkFilter {
    pub namespace: Option<Namespace>,
    pub lane_id: Option<LaneId>,
    pub states: Vec<PublicState>,
    pub execution_kind: Option<String>,
    pub flow_id: Option<FlowId>,
    /// Executions that carry this tag with this value.
    pub tag: Option<(String, String)>,
    pub created_from: Option<TimestampMs>,
    pub created_before: Option<TimestampMs>,
}

/// What to do to each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum BulkAction {
    Cancel {
        reason: String,
    },
    Replay,
    ChangePriority {
        new_priority: i32,
    },
    /// Merges into the tags; a `None` removes the tag.
    SetTags {
        tags: BTreeMap<String, Option<String>>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartBulkArgs {
    pub filter: BulkFilter,
    pub action: BulkAction,
    #[serde(default)]
    pub by: String,
    /// The same request starts one bulk operation, however often it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// What a bulk operation would meet if it were started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkPreview {
    pub matched: u64,
    /// The oldest of them.
    pub sample: Vec<super::ExecutionSummary>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BulkState {
    Running,
    Finished,
    /// Stopped before it came to all of them.
    Cancelled,
}

/// How far a bulk operation has come.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BulkSnapshot {
    pub bulk_id: Uuid,
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

/// One execution that refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkFailure {
    pub execution_id: ExecutionId,
    /// The error's stable word.
    pub code: String,
    pub reason: String,
}

/// The first of the executions that refused; only so many are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkFailurePage {
    pub failures: Vec<BulkFailure>,
    /// Present when there is more.
    pub next_cursor: Option<String>,
    /// How many have refused altogether; all but the first thousand of them are not kept.
    #[serde(default)]
    pub failed: u64,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<super::UnreadableRecord>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListBulkArgs {
    pub cursor: Option<String>,
    /// 1 to 1,000; 0 means 100.
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BulkPage {
    /// Newest first.
    pub operations: Vec<BulkSnapshot>,
    /// Present when there is more.
    pub next_cursor: Option<String>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<super::UnreadableRecord>,
}
