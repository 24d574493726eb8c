//! What workers hold and say: handles, capabilities, claim and flow-cancel policies.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine_error::{EngineError, ValidationKind};
use crate::types::{ExecutionId, ExecutionKey, LeaseEpoch, WorkerInstanceId};

/// A worker's proof that it holds a lease. The store checks every field of it on every write.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Handle {
    execution: ExecutionKey,
    attempt_index: u32,
    lease_epoch: LeaseEpoch,
    lease_nonce: u64,
    lease_ttl_ms: u32,
    worker_instance_id: WorkerInstanceId,
    kind: HandleKind,
}

/// How the worker came by the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandleKind {
    /// A new attempt.
    Fresh,
    /// An interrupted attempt goes on.
    Resumed,
    /// A new attempt after a lease expired.
    Reclaimed,
}

impl Handle {
    pub(crate) fn new(
        execution: ExecutionKey,
        attempt_index: u32,
        (lease_epoch, lease_nonce): (u64, u64),
        lease_ttl_ms: u32,
        worker_instance_id: WorkerInstanceId,
        kind: HandleKind,
    ) -> Self {
        let lease_epoch = LeaseEpoch(lease_epoch);
        Self {
            execution,
            attempt_index,
            lease_epoch,
            lease_nonce,
            lease_ttl_ms,
            worker_instance_id,
            kind,
        }
    }

    pub fn execution_id(&self) -> ExecutionId {
        self.execution.execution_id()
    }

    pub fn key(&self) -> ExecutionKey {
        self.execution
    }

    pub fn attempt_index(&self) -> u32 {
        self.attempt_index
    }

    pub fn lease_epoch(&self) -> LeaseEpoch {
        self.lease_epoch
    }

    /// Tells leases of the same epoch apart, of which a restore of the store makes two.
    pub fn lease_nonce(&self) -> u64 {
        self.lease_nonce
    }

    pub fn lease_ttl_ms(&self) -> u32 {
        self.lease_ttl_ms
    }

    pub fn worker_instance_id(&self) -> &WorkerInstanceId {
        &self.worker_instance_id
    }

    pub fn kind(&self) -> HandleKind {
        self.kind
    }

    /// The handle as text, for workers that cannot hold it as a value.
    pub fn encode(&self) -> String {
        let kind = match self.kind {
            HandleKind::Fresh => 'f',
            HandleKind::Resumed => 'r',
            HandleKind::Reclaimed => 'c',
        };
        format!(
            "ffh2.{kind}.{}.{}.{}.{}.{:x}.{}.{}",
            self.execution.partition,
            self.execution.id.simple(),
            self.attempt_index,
            self.lease_epoch.0,
            self.lease_nonce,
            self.lease_ttl_ms,
            self.worker_instance_id.as_str()
        )
    }

    pub fn decode(text: &str) -> Result<Self, EngineError> {
        Self::decode_parts(text).ok_or_else(|| {
            EngineError::validation(ValidationKind::Corruption, "the handle cannot be read")
        })
    }

    fn decode_parts(text: &str) -> Option<Self> {
        // Leases that were handed out before the second version have no nonce.
        let (mut parts, has_nonce) = match text.strip_prefix("ffh2.") {
            Some(rest) => (rest.splitn(8, '.'), true),
            None => (text.strip_prefix("ffh1.")?.splitn(7, '.'), false),
        };
        let kind = match parts.next()? {
            "f" => HandleKind::Fresh,
            "r" => HandleKind::Resumed,
            "c" => HandleKind::Reclaimed,
            _ => return None,
        };
        let partition = parts.next()?.parse().ok()?;
        let id = uuid::Uuid::try_parse(parts.next()?).ok()?;
        let attempt_index = parts.next()?.parse().ok()?;
        let lease_epoch = parts.next()?.parse().ok()?;
        let lease_nonce = match has_nonce {
            true => u64::from_str_radix(parts.next()?, 16).ok()?,
            false => 0,
        };
        let ttl = parts.next()?.parse().ok();
        let lease_ttl_ms = ttl.filter(|ttl| *ttl <= crate::limits::LEASE_TTL_MAX_MS)?;
        let worker = WorkerInstanceId::try_new(parts.next()?).ok()?;
        let execution = ExecutionKey { partition, id };
        let fence = (lease_epoch, lease_nonce);
        Some(Self::new(execution, attempt_index, fence, lease_ttl_ms, worker, kind))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.encode())
    }
}

/// What a worker can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CapabilitySet {
    pub tokens: Vec<String>,
}

impl CapabilitySet {
    pub fn new<S: Into<String>>(tokens: impl IntoIterator<Item = S>) -> Self {
        Self { tokens: tokens.into_iter().map(Into::into).collect() }
    }
}

/// Who claims, for how long, and how long it will wait for work.
#[derive(Clone, Debug)]
pub struct ClaimPolicy {
    pub worker_id: crate::types::WorkerId,
    pub worker_instance_id: WorkerInstanceId,
    pub lease_ttl_ms: u32,
    pub max_wait: Option<Duration>,
}

impl ClaimPolicy {
    pub fn new(
        worker_id: crate::types::WorkerId,
        worker_instance_id: WorkerInstanceId,
        lease_ttl_ms: u32,
        max_wait: Option<Duration>,
    ) -> Self {
        Self { worker_id, worker_instance_id, lease_ttl_ms, max_wait }
    }
}

/// Which members a flow's cancellation reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CancelFlowPolicy {
    /// Running members finish; waiting ones are never handed out again.
    FlowOnly,
    /// Every unfinished member is cancelled, running or not.
    CancelAll,
    /// Members that are not running are cancelled.
    CancelPending,
}

impl CancelFlowPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FlowOnly => "flow_only",
            Self::CancelAll => "cancel_all",
            Self::CancelPending => "cancel_pending",
        }
    }
}

/// Whether a flow's cancellation waits for its members to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelFlowWait {
    NoWait,
    WaitTimeout(Duration),
    WaitIndefinite,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_survive_their_text_form() {
        let key = ExecutionKey { partition: 7, id: uuid::Uuid::from_u128(42) };
        let worker = WorkerInstanceId::new("host.1.2");
        let handle = Handle::new(key, 3, (9, 77), 30_000, worker.clone(), HandleKind::Reclaimed);
        assert_eq!(Handle::decode(&handle.encode()).unwrap(), handle);
        let former = "ffh1.c.7.0000000000000000000000000000002a.3.9.30000.host.1.2";
        let expected = Handle::new(key, 3, (9, 0), 30_000, worker, HandleKind::Reclaimed);
        assert_eq!(Handle::decode(former).unwrap(), expected);
        for bad in [
            "",
            "ffh1.",
            "ffh2.f.0.0.0.0.0.w",
            "ffh3.f.0.0.0.0.0.w",
            "ffh1.f.0.zz.0.0.0.w",
            "ffh1.f.0.1.0.0.0.",
        ] {
            assert!(Handle::decode(bad).is_err(), "{bad:?}");
        }
    }
}
