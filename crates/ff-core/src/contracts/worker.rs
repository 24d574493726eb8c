//! What workers ask and are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{ResumeSignal, Step};
use crate::backend::{CapabilitySet, Handle};
use crate::engine_error::EngineError;
use crate::state::AttemptType;
use crate::types::{
    ExecutionId, LaneId, LeaseEpoch, Namespace, TimestampMs, WorkerId, WorkerInstanceId,
};

/// A request for work from any of several lanes.
#[derive(Clone, Debug)]
pub struct ClaimArgs {
    pub lanes: Vec<LaneId>,
    pub capabilities: CapabilitySet,
    pub worker_id: WorkerId,
    pub worker_instance_id: WorkerInstanceId,
    pub lease_ttl_ms: u32,
    /// At most this many executions.
    pub max: usize,
    /// How long to wait for the first one.
    pub wait: Duration,
}

/// Everything that a worker needs to run one attempt.
#[derive(Clone, Debug)]
pub struct ClaimedExecution {
    pub handle: Handle,
    pub execution_id: ExecutionId,
    pub namespace: Namespace,
    pub lane_id: LaneId,
    pub execution_kind: String,
    pub payload: Arc<[u8]>,
    pub payload_encoding: Option<String>,
    /// What has been done already, by this attempt or by those before it.
    pub steps: Vec<Step>,
    pub tags: BTreeMap<String, String>,
    pub priority: i32,
    pub attempt_index: u32,
    pub attempt_type: AttemptType,
    pub lease_epoch: LeaseEpoch,
    pub lease_expires_at: TimestampMs,
    pub created_at: TimestampMs,
    pub deadline_at: Option<TimestampMs>,
    /// What the attempt was resumed by, if it goes on after a suspension.
    pub resume_signals: Vec<ResumeSignal>,
}

/// What became of one lease of a renew call.
#[derive(Debug)]
pub enum RenewOutcome {
    Renewed {
        expires_at: TimestampMs,
    },
    /// The lease is gone: stop working, whatever is written now will be refused.
    Lost(EngineError),
}

/// Whether a failure may be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureClass {
    /// Retried as the policy says.
    #[default]
    Retryable,
    /// Never retried.
    Fatal,
}

#[derive(Clone, Debug)]
pub struct FailArgs {
    pub reason: String,
    /// A word of the worker's own, matched against the policy's retryable categories.
    pub category: String,
    pub class: FailureClass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailOutcome {
    RetryScheduled { delay_until: TimestampMs },
    TerminalFailed,
}
