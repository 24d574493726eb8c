//! Durable steps, streams of frames and the registry of workers. In steps and frames bytes are
//! always base64, because most of them are no JSON.

use std::collections::BTreeSet;

use ff_core::contracts::{FrameInput, Step, WorkerSnapshot};
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{BytesError, Span, bounded, bytes};

/// The holder records what it has done under a name.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordStepRequest {
    pub handle: String,
    pub name: String,
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Any bytes, instead of `result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
}

impl RecordStepRequest {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.result.as_deref(), self.result_base64.as_deref())
    }
}

/// The holder sleeps once under a name.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SleepStepRequest {
    pub handle: String,
    pub name: String,
    pub duration: Span,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StepsAnswer {
    pub steps: Vec<Step>,
    /// Pass it as `after` for what follows; present when there may be more.
    pub next_after: Option<u32>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}

/// The holder says something to whoever follows the attempt.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendFramesRequest {
    pub handle: String,
    #[serde(deserialize_with = "bounded::list::<_, _, { bounded::BATCH }>")]
    pub frames: Vec<FrameInput>,
    /// Names this call, so that a repeat is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_id: Option<Uuid>,
}

/// A worker makes itself known for as long as it gives signs of life.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterWorkerRequest {
    pub worker_id: WorkerId,
    pub worker_instance_id: WorkerInstanceId,
    pub lanes: BTreeSet<LaneId>,
    #[serde(default)]
    pub capabilities: BTreeSet<String>,
    /// How long it counts as alive after a sign of life.
    pub liveness_ttl: Span,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkersAnswer {
    pub workers: Vec<WorkerSnapshot>,
    /// Pass it as `after` for what follows; present when there is more.
    pub next_after: Option<String>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}
