//! Identifiers, names and instants: small values that cannot be built wrong by accident.

mod execution_id;
mod names;
mod time;
mod uuids;

pub use execution_id::{ExecutionId, ExecutionIdParseError, ExecutionKey};
pub use names::{BudgetId, LaneId, NameError, Namespace, QuotaId, WorkerId, WorkerInstanceId};
pub use time::{TimestampMs, duration_in_words};
pub use uuids::{AttemptId, EdgeId, FlowId, LeaseId, SignalId, SuspensionId, WaitpointId};

use serde::{Deserialize, Serialize};

/// The fence of a lease: it grows with every grant and every way of losing one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LeaseEpoch(pub u64);

/// Who asked for a cancellation, which decides whether a fence is demanded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelSource {
    #[default]
    OperatorOverride,
    LeaseHolder,
    FlowCascade,
    SystemTimeout,
    Custom(String),
}

impl CancelSource {
    /// The word stored as `cancelled_by`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::OperatorOverride => "operator_override",
            Self::LeaseHolder => "lease_holder",
            Self::FlowCascade => "flow_cascade",
            Self::SystemTimeout => "system_timeout",
            Self::Custom(word) => word,
        }
    }
}
