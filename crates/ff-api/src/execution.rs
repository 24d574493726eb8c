//! Submitting, reading and operating executions.

use std::collections::BTreeMap;

use ff_core::contracts::Event;
use ff_core::policy::ExecutionPolicy;
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, LaneId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{BytesError, Problem, Span, bounded, bytes};

/// One piece of work. Only the lane and the kind are needed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// Chosen by the caller, or made by the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    pub lane_id: LaneId,
    pub execution_kind: String,
    /// Any JSON value. It is stored as it is written here.
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Any bytes, instead of `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// A word about the bytes; `json` if they were given as `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_encoding: Option<String>,
    /// 0 to 9000; higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Who submits; the name of the token if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creator_identity: Option<String>,
    /// The same work under the same key is accepted once. `Idempotency-Key` says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How long the key holds; as the policy says, 24 hours without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_ttl: Option<Span>,
    /// The key holds until the execution has finished, however long that takes.
    #[serde(default)]
    pub unique_until_finished: bool,
    #[serde(default, deserialize_with = "bounded::map::<_, { bounded::TAGS }>")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "bounded::policy")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<ExecutionPolicy>,
    /// Not handed out before this much time has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Expires when it is not finished after this much time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
}

impl SubmitRequest {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.payload.as_deref(), self.payload_base64.as_deref())
    }
}

/// Up to 1,000 pieces of work, accepted in one transaction, each with its own outcome.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitBatchRequest {
    #[serde(deserialize_with = "bounded::list::<_, _, { bounded::BATCH }>")]
    pub executions: Vec<SubmitRequest>,
}

/// What became of one submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum SubmitOutcome {
    Created {
        execution_id: ExecutionId,
        public_state: PublicState,
    },
    /// The same work was accepted before, under this identity.
    Duplicate {
        execution_id: ExecutionId,
    },
    /// This item was refused; the others are not affected.
    Refused {
        problem: Problem,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SubmitBatchAnswer {
    /// In the order of the request.
    pub outcomes: Vec<SubmitOutcome>,
}

/// The bytes that an execution was submitted with.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Payload {
    pub execution_id: ExecutionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_encoding: Option<String>,
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Instead of `payload` when the bytes are not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
}

/// How an execution ended, or that it has not.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExecutionResult {
    pub execution_id: ExecutionId,
    pub public_state: PublicState,
    pub finished: bool,
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Instead of `result` when the bytes are not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_category: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancellation_reason: Option<String>,
}

impl ExecutionResult {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.result.as_deref(), self.result_base64.as_deref())
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CancelRequest {
    pub reason: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayRequest {}

/// What the new execution gets instead of what the original had, if anything.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResubmitRequest {
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Any bytes, instead of `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The same resubmission under the same key is accepted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

impl ResubmitRequest {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.payload.as_deref(), self.payload_base64.as_deref())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePriorityRequest {
    pub priority: i32,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RescheduleRequest {
    /// From now; `0s` makes it eligible at once.
    pub delay: Span,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RevokeLeaseRequest {
    pub reason: String,
    /// Only if this instance holds the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_instance_id: Option<String>,
    /// Only if it is this lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_lease_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum RevokeLeaseOutcome {
    Revoked { lease_id: String, lease_epoch: String },
    AlreadySatisfied { reason: String },
}

/// The state that an execution is in after an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StateAnswer {
    pub execution_id: ExecutionId,
    pub public_state: PublicState,
}

/// What has happened to one execution, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HistoryPage {
    pub events: Vec<Event>,
    /// Pass it as `after` for what follows.
    pub next_after: Option<u64>,
}

/// Events of the log in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Pass it as `after` for what follows; it moves past events that the filter left out.
    pub next_cursor: String,
}
