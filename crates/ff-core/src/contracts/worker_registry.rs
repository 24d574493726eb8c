//! Workers that make themselves known. Claims do not depend on it: it is for people and for
//! `explain`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::types::{LaneId, Namespace, TimestampMs, WorkerId, WorkerInstanceId};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegisterWorkerArgs {
    pub worker_id: WorkerId,
    pub worker_instance_id: WorkerInstanceId,
    /// The namespace that it works for; all of them when absent.
    #[serde(default)]
    pub namespace: Option<Namespace>,
    pub lanes: BTreeSet<LaneId>,
    /// Names and values, as it offers them when it claims.
    #[serde(default)]
    pub capabilities: BTreeSet<String>,
    /// How long it counts as alive after a sign of life.
    pub liveness_ttl_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RegisterWorkerOutcome {
    Registered {
        expires_at: TimestampMs,
    },
    /// It was registered already; what it says of itself was taken over.
    Refreshed {
        expires_at: TimestampMs,
    },
}

/// Which worker is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerRef {
    pub worker_instance_id: WorkerInstanceId,
    #[serde(default)]
    pub namespace: Option<Namespace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum HeartbeatOutcome {
    Refreshed {
        expires_at: TimestampMs,
    },
    /// It was never registered, has been retired, or was silent for too long: register again.
    NotRegistered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RetireOutcome {
    Retired,
    NotRegistered,
}

/// A worker that is alive by the store's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerSnapshot {
    pub worker_id: WorkerId,
    pub worker_instance_id: WorkerInstanceId,
    pub namespace: Option<Namespace>,
    pub lanes: BTreeSet<LaneId>,
    pub capabilities: BTreeSet<String>,
    pub liveness_ttl_ms: u64,
    pub registered_at: TimestampMs,
    pub last_heartbeat_at: TimestampMs,
    pub expires_at: TimestampMs,
}

/// Which workers to list; an absent part means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ListWorkersArgs {
    pub namespace: Option<Namespace>,
    pub lane_id: Option<LaneId>,
    /// The instance to go on behind, from the page before.
    pub after: Option<WorkerRef>,
    /// At most this many; 0 means 100.
    pub limit: usize,
}
