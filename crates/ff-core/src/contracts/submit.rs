//! Submitting work.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine_error::EngineError;
use crate::policy::ExecutionPolicy;
use crate::state::PublicState;
use crate::types::{ExecutionId, LaneId, Namespace, TimestampMs};

/// One execution under an identity that the caller chose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreateExecutionArgs {
    pub execution_id: ExecutionId,
    pub namespace: Namespace,
    pub lane_id: LaneId,
    pub execution_kind: String,
    pub input_payload: Vec<u8>,
    pub payload_encoding: Option<String>,
    pub priority: i32,
    pub creator_identity: String,
    pub idempotency_key: Option<String>,
    pub tags: HashMap<String, String>,
    pub policy: Option<ExecutionPolicy>,
    pub delay_until: Option<TimestampMs>,
    pub execution_deadline_at: Option<TimestampMs>,
    pub partition_id: u16,
    pub now: TimestampMs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CreateExecutionResult {
    Created { execution_id: ExecutionId, public_state: PublicState },
    Duplicate { execution_id: ExecutionId },
}

/// One piece of work to submit. `Submission::new(lane, kind)` fills in the rest.
#[derive(Clone, Debug, Default)]
pub struct Submission {
    /// Chosen by the caller, or made by the engine.
    pub execution_id: Option<ExecutionId>,
    pub namespace: Namespace,
    pub lane_id: LaneId,
    pub execution_kind: String,
    pub input_payload: Vec<u8>,
    pub payload_encoding: Option<String>,
    pub priority: i32,
    pub creator_identity: String,
    pub idempotency: Option<Idempotency>,
    pub tags: BTreeMap<String, String>,
    pub policy: Option<ExecutionPolicy>,
    /// Not handed out before this much time has passed.
    pub delay: Option<Duration>,
    /// Expires when it is not finished after this much time.
    pub deadline: Option<Duration>,
}

impl Submission {
    pub fn new(lane: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            namespace: Namespace::new("default"),
            lane_id: LaneId::new(lane),
            execution_kind: kind.into(),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.input_payload = payload.into();
        self
    }

    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    #[must_use]
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(key.into(), value.into());
        self
    }

    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    #[must_use]
    pub fn policy(mut self, policy: ExecutionPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    #[must_use]
    pub fn id(mut self, id: ExecutionId) -> Self {
        self.execution_id = Some(id);
        self
    }

    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Namespace::new(namespace);
        self
    }

    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency = Some(Idempotency { key: key.into(), scope: IdempotencyScope::Default });
        self
    }

    #[must_use]
    pub fn unique_until_finished(mut self, key: impl Into<String>) -> Self {
        let scope = IdempotencyScope::UntilFinished;
        self.idempotency = Some(Idempotency { key: key.into(), scope });
        self
    }
}

/// A key under which the same work is accepted only once per namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    pub key: String,
    pub scope: IdempotencyScope,
}

/// How long the key holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdempotencyScope {
    /// As the policy says, 24 hours without one.
    #[default]
    Default,
    Ttl(Duration),
    UntilFinished,
}

/// What became of one item of a submit call.
#[derive(Debug)]
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
    Refused(EngineError),
}

impl SubmitOutcome {
    /// The identity of the execution that now stands for this item.
    pub fn execution_id(&self) -> Option<&ExecutionId> {
        match self {
            Self::Created { execution_id, .. } | Self::Duplicate { execution_id } => {
                Some(execution_id)
            }
            Self::Refused(_) => None,
        }
    }
}
