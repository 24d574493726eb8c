//! What reads answer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::{AttemptOutcome, AttemptType, LaneState, PublicState};
use crate::types::{ExecutionId, FlowId, LaneId, Namespace, TimestampMs};

/// Everything about one execution except its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionSnapshot {
    pub execution_id: ExecutionId,
    pub namespace: Namespace,
    pub lane_id: LaneId,
    pub execution_kind: String,
    pub flow_id: Option<FlowId>,
    pub public_state: PublicState,
    pub priority: i32,
    pub tags: BTreeMap<String, String>,
    pub required_capabilities: Vec<String>,
    pub creator_identity: String,
    pub idempotency_key: Option<String>,
    /// The ended execution whose work this one does anew.
    #[serde(default)]
    pub resubmitted_from: Option<ExecutionId>,
    pub payload_encoding: Option<String>,
    pub created_at: TimestampMs,
    pub started_at: Option<TimestampMs>,
    pub finished_at: Option<TimestampMs>,
    pub not_before: Option<TimestampMs>,
    pub deadline_at: Option<TimestampMs>,
    pub retry_count: u32,
    pub reclaim_count: u32,
    pub replay_count: u32,
    pub step_count: u32,
    pub failure_reason: Option<String>,
    pub failure_category: Option<String>,
    pub cancellation_reason: Option<String>,
    pub cancelled_by: Option<String>,
    pub lease: Option<LeaseSnapshot>,
    pub progress: Option<ProgressSnapshot>,
    pub attempts: Vec<AttemptSnapshot>,
    /// Grows by one with every accepted transition.
    pub version: u64,
    /// What cannot be read of the stored row. The other fields are as far as they can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseSnapshot {
    pub worker_id: String,
    pub worker_instance_id: String,
    pub lease_epoch: u64,
    pub attempt_index: u32,
    pub expires_at: TimestampMs,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProgressSnapshot {
    pub percent: Option<u8>,
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptSnapshot {
    pub attempt_index: u32,
    pub attempt_type: AttemptType,
    pub lease_epoch: u64,
    pub worker_id: Option<String>,
    pub worker_instance_id: Option<String>,
    pub started_at: Option<TimestampMs>,
    pub ended_at: Option<TimestampMs>,
    pub outcome: Option<AttemptOutcome>,
    pub failure_reason: Option<String>,
    pub failure_category: Option<String>,
}

/// A line in a list of executions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionSummary {
    pub execution_id: ExecutionId,
    pub namespace: Namespace,
    pub lane_id: LaneId,
    pub execution_kind: String,
    pub flow_id: Option<FlowId>,
    pub public_state: PublicState,
    pub priority: i32,
    pub created_at: TimestampMs,
    pub finished_at: Option<TimestampMs>,
    pub attempt_index: u32,
    /// What cannot be read of the stored row. The other fields are as far as they can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// Which executions to list; an absent part means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListExecutionsArgs {
    pub namespace: Option<Namespace>,
    pub lane_id: Option<LaneId>,
    pub states: Vec<PublicState>,
    pub execution_kind: Option<String>,
    pub flow_id: Option<FlowId>,
    /// Executions that carry this tag with this value.
    pub tag: Option<(String, String)>,
    pub created_from: Option<TimestampMs>,
    pub created_before: Option<TimestampMs>,
    pub order: ListOrder,
    pub cursor: Option<String>,
    /// 1 to 1,000; 0 means 100.
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    #[default]
    NewestFirst,
    OldestFirst,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionPage {
    pub executions: Vec<ExecutionSummary>,
    /// Present when there is more.
    pub next_cursor: Option<String>,
}

/// A record in a list that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnreadableRecord {
    pub table: String,
    /// The key of its row.
    pub key: String,
    /// What cannot be read.
    pub detail: String,
}

/// What a list holds. Records that cannot be read do not hide the others and are named beside them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed<T> {
    pub items: Vec<T>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), unreadable: Vec::new() }
    }
}

/// Most callers want the items alone.
impl<T> std::ops::Deref for Listed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> IntoIterator for Listed<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Listed<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

/// How many executions of a lane are in each state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LaneCounts {
    pub namespace: Namespace,
    pub lane_id: LaneId,
    pub counts: BTreeMap<PublicState, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LaneSnapshot {
    pub lane_id: LaneId,
    pub state: LaneState,
    pub paused_reason: Option<String>,
    pub paused_by: Option<String>,
    pub paused_at: Option<TimestampMs>,
    /// What cannot be read of the stored row. The other fields are as far as they can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// Why an execution is not running, in words and as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    pub execution_id: ExecutionId,
    pub public_state: PublicState,
    /// The stable word of the rule that holds it.
    pub rule: Cow<'static, str>,
    pub words: String,
    /// The rule's numbers.
    pub details: serde_json::Value,
    /// When that can change by itself.
    pub next_change_at: Option<TimestampMs>,
}

/// What a store promises about an acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// It survives a power cut.
    PowerLoss,
    /// It survives the death of the process, not of the machine.
    ProcessCrash,
    /// It survives neither.
    BestEffort,
}
