//! Durable steps: what an execution has done and need not do again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::TimestampMs;

/// A step that stands: whoever takes the execution up next is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Step {
    pub name: String,
    /// Counts the execution's steps from 1, in the order in which they were recorded.
    pub sequence: u32,
    #[serde(with = "super::base64")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub result: Arc<[u8]>,
    /// The attempt that recorded it.
    pub attempt_index: u32,
    pub recorded_at: TimestampMs,
    /// Only of a sleep: when it is over.
    pub due_at: Option<TimestampMs>,
}

/// What stands under the name of a step that a holder wanted to record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RecordStepOutcome {
    /// The step with these bytes; a repeat is told the same.
    Recorded { sequence: u32, lease_expires_at: TimestampMs },
    /// Other bytes were recorded under this name before, and they stand.
    Kept {
        sequence: u32,
        #[serde(with = "super::base64")]
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        result: Arc<[u8]>,
        lease_expires_at: TimestampMs,
    },
}

/// What became of a durable sleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum SleepOutcome {
    /// It is over: the holder goes on.
    Over { due_at: TimestampMs, lease_expires_at: TimestampMs },
    /// The lease is given back. The attempt goes on in whoever claims it after this instant.
    PutDown { until: TimestampMs },
}
