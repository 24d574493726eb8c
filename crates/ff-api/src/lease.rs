//! What workers ask and are told. A handle is opaque: it is kept and given back as it came.

use std::collections::BTreeMap;

use ff_core::contracts::Step;
use ff_core::state::AttemptType;
use ff_core::types::{ExecutionId, LaneId, Namespace, TimestampMs, WorkerId, WorkerInstanceId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{BytesError, Problem, Signal, Span, bounded, bytes};

/// A request for work from any of several lanes.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    pub lanes: Vec<LaneId>,
    #[serde(default)]
    pub capabilities: Vec<String>,
    pub worker_id: WorkerId,
    pub worker_instance_id: WorkerInstanceId,
    /// How long a lease holds without being renewed; 30 seconds if it is absent.
    #[serde(default = "lease_ttl")]
    pub lease_ttl: Span,
    /// At most this many executions, 1 to 1,000; 1 if it is absent.
    #[serde(default = "one")]
    pub max: usize,
    /// How long to wait for the first one, at most 60 seconds.
    #[serde(default)]
    pub wait: Span,
}

fn lease_ttl() -> Span {
    Span::secs(30)
}

fn one() -> usize {
    1
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClaimAnswer {
    /// Empty if there was nothing to do.
    pub executions: Vec<ClaimedExecution>,
}

/// Everything that a worker needs to run one attempt.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClaimedExecution {
    pub handle: String,
    pub execution_id: ExecutionId,
    pub namespace: Namespace,
    pub lane_id: LaneId,
    pub execution_kind: String,
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Instead of `payload` when the bytes are not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    pub payload_encoding: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub priority: i32,
    pub attempt_index: u32,
    pub attempt_type: AttemptType,
    pub lease_epoch: u64,
    pub lease_expires_at: TimestampMs,
    pub created_at: TimestampMs,
    pub deadline_at: Option<TimestampMs>,
    /// What it was waiting for, if it was suspended before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resume_signals: Vec<Signal>,
    /// What has been done already, by this attempt or by those before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

impl ClaimedExecution {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.payload.as_deref(), self.payload_base64.as_deref())
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    #[serde(deserialize_with = "bounded::list::<_, _, { bounded::BATCH }>")]
    pub handles: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RenewAnswer {
    /// In the order of the request.
    pub outcomes: Vec<RenewOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum RenewOutcome {
    Renewed {
        expires_at: TimestampMs,
    },
    /// The lease is gone: stop working, whatever is written will be refused.
    Lost {
        problem: Problem,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgressRequest {
    pub handle: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    pub handle: String,
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Any bytes, instead of `result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
}

impl CompleteRequest {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.result.as_deref(), self.result_base64.as_deref())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailRequest {
    pub handle: String,
    pub reason: String,
    /// A word of the worker's own, matched against the policy's retryable categories.
    #[serde(default)]
    pub category: String,
    #[serde(default)]
    pub class: FailureClass,
}

/// Whether a failure may be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Retried as the policy says.
    #[default]
    Retryable,
    /// Never retried.
    Fatal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum FailAnswer {
    RetryScheduled { delay_until: TimestampMs },
    TerminalFailed,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelHeldRequest {
    pub handle: String,
    #[serde(default)]
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DelayRequest {
    pub handle: String,
    pub delay: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DelayAnswer {
    pub delay_until: TimestampMs,
}

/// Up to 1,000 reports on leases at once, each with its own outcome.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseBatchRequest {
    #[serde(deserialize_with = "bounded::list::<_, _, { bounded::BATCH }>")]
    pub operations: Vec<LeaseOperation>,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseOperation {
    Complete(CompleteRequest),
    Fail(FailRequest),
    Cancel(CancelHeldRequest),
    Delay(DelayRequest),
    Progress(ProgressRequest),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LeaseBatchAnswer {
    /// In the order of the request.
    pub outcomes: Vec<LeaseOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum LeaseOutcome {
    Completed,
    RetryScheduled { delay_until: TimestampMs },
    TerminalFailed,
    Cancelled,
    Delayed { delay_until: TimestampMs },
    Progressed,
    Refused { problem: Problem },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_a_result() {
        let bytes = |json: &str| serde_json::from_str::<CompleteRequest>(json).unwrap().bytes();
        assert_eq!(bytes(r#"{"handle":"h","result":null}"#), Ok(Some(b"null".to_vec())));
        assert_eq!(bytes(r#"{"handle":"h"}"#), Ok(None));
        assert_eq!(bytes(r#"{"handle":"h","result_base64":"AA=="}"#), Ok(Some(vec![0])));
        let both = bytes(r#"{"handle":"h","result":1,"result_base64":"AA=="}"#);
        assert_eq!(both, Err(BytesError::Both));
    }
}
