//! What operators ask and are told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::PublicState;
use crate::types::{
    AttemptId, CancelSource, ExecutionId, FlowId, LaneId, LeaseEpoch, LeaseId, TimestampMs,
    WorkerInstanceId,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelExecutionArgs {
    pub execution_id: ExecutionId,
    pub reason: String,
    pub source: CancelSource,
    pub lease_id: Option<LeaseId>,
    pub lease_epoch: Option<LeaseEpoch>,
    pub attempt_id: Option<AttemptId>,
    pub now: TimestampMs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelExecutionResult {
    Cancelled { execution_id: ExecutionId, public_state: PublicState },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeLeaseArgs {
    pub execution_id: ExecutionId,
    pub expected_lease_id: Option<String>,
    pub worker_instance_id: WorkerInstanceId,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RevokeLeaseResult {
    Revoked { lease_id: String, lease_epoch: String },
    AlreadySatisfied { reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangePriorityArgs {
    pub execution_id: ExecutionId,
    pub new_priority: i32,
    pub lane_id: LaneId,
    pub now: TimestampMs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangePriorityResult {
    Changed { execution_id: ExecutionId },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayExecutionArgs {
    pub execution_id: ExecutionId,
    pub now: TimestampMs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplayExecutionResult {
    Replayed { public_state: PublicState },
}

/// Starts the work of an ended execution anew, as an execution of its own outside any flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResubmitArgs {
    pub execution_id: ExecutionId,
    /// Instead of the payload of the original.
    pub input_payload: Option<Vec<u8>>,
    /// A word about that payload; the original's if it is absent.
    pub payload_encoding: Option<String>,
    /// The same resubmission under the same key is accepted once. The new execution of one with a
    /// unique key takes that key, and cannot have another.
    pub idempotency_key: Option<String>,
    /// The original's if it is empty.
    pub creator_identity: String,
}

impl ResubmitArgs {
    pub fn new(execution_id: ExecutionId) -> Self {
        Self {
            execution_id,
            input_payload: None,
            payload_encoding: None,
            idempotency_key: None,
            creator_identity: String::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResubmitResult {
    Created {
        execution_id: ExecutionId,
        public_state: PublicState,
    },
    /// The same resubmission was accepted before, under this identity.
    Duplicate {
        execution_id: ExecutionId,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelFlowArgs {
    pub flow_id: FlowId,
    pub reason: String,
    pub cancellation_policy: String,
    pub now: TimestampMs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelFlowHeader {
    Cancelled {
        cancellation_policy: String,
        member_execution_ids: Vec<String>,
    },
    AlreadyTerminal {
        stored_cancellation_policy: Option<String>,
        stored_cancel_reason: Option<String>,
        member_execution_ids: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelFlowResult {
    Cancelled {
        cancellation_policy: String,
        member_execution_ids: Vec<String>,
    },
    /// The flow is cancelled and nothing of it is handed out any more; its members are reached in
    /// chunks. Only the first of them are named.
    CancellationScheduled {
        cancellation_policy: String,
        member_count: u32,
        member_execution_ids: Vec<String>,
    },
}

/// Moves the moment at which a waiting execution may be handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescheduleArgs {
    pub execution_id: ExecutionId,
    /// From now; zero makes it eligible at once.
    pub delay: std::time::Duration,
}

/// Merges into an execution's tags; a `None` removes the tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetTagsArgs {
    pub execution_id: ExecutionId,
    pub tags: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseLaneArgs {
    pub lane_id: LaneId,
    pub reason: String,
    pub by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients send these as JSON and expect them back.
    #[test]
    fn arguments_and_answers_cross_json() {
        let cancel = CancelExecutionArgs {
            execution_id: ExecutionId::parse("{fp:3}:7f1b9c0e-0000-4000-8000-000000000001")
                .unwrap(),
            reason: "asked for".into(),
            source: CancelSource::LeaseHolder,
            lease_id: None,
            lease_epoch: Some(LeaseEpoch(4)),
            attempt_id: None,
            now: TimestampMs(1_800_000_000_000),
        };
        let json = serde_json::to_string(&cancel).unwrap();
        assert_eq!(serde_json::from_str::<CancelExecutionArgs>(&json).unwrap(), cancel);
        let revoked = RevokeLeaseResult::AlreadySatisfied { reason: "no_active_lease".into() };
        let json = serde_json::to_string(&revoked).unwrap();
        assert_eq!(serde_json::from_str::<RevokeLeaseResult>(&json).unwrap(), revoked);
        let header = CancelFlowHeader::Cancelled {
            cancellation_policy: "cancel_all".into(),
            member_execution_ids: vec!["one".into()],
        };
        let json = serde_json::to_string(&header).unwrap();
        assert_eq!(serde_json::from_str::<CancelFlowHeader>(&json).unwrap(), header);
    }
}
