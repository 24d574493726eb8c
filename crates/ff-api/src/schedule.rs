//! Schedules. Their names stand in the address, their namespace in the request.

use std::collections::BTreeMap;

use ff_core::contracts::{
    Backfill, MissedPolicy, OverlapPolicy, PutScheduleOutcome, SchedulePause, Timing,
};
use ff_core::policy::ExecutionPolicy;
use ff_core::types::{ExecutionId, LaneId, Namespace, TimestampMs};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bounded;
use crate::bytes::{self, BytesError};

/// What each run submits. It also carries the tags `schedule.name` and `schedule.due_at`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleTemplate {
    pub lane_id: LaneId,
    pub execution_kind: String,
    /// Any JSON value, kept as it is written.
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Any bytes, instead of `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_encoding: Option<String>,
    #[serde(default)]
    pub priority: i32,
    #[serde(default, deserialize_with = "bounded::map::<_, { bounded::TAGS }>")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "bounded::policy")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<ExecutionPolicy>,
}

impl ScheduleTemplate {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.payload.as_deref(), self.payload_base64.as_deref())
    }
}

/// Makes a schedule, or gives the one of this name another definition.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest {
    pub timing: Timing,
    pub template: ScheduleTemplate,
    #[serde(default)]
    pub overlap: OverlapPolicy,
    #[serde(default)]
    pub missed: MissedPolicy,
    /// Each run starts up to this much later than it is due, always the same for the same run.
    #[serde(default)]
    pub jitter_ms: u64,
    /// Not due before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<TimestampMs>,
    /// Not due from this instant on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<TimestampMs>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PutScheduleAnswer {
    pub outcome: PutScheduleOutcome,
}

/// Everything about one schedule.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ScheduleSnapshot {
    pub namespace: Namespace,
    pub name: String,
    pub timing: Timing,
    pub template: ScheduleTemplate,
    pub overlap: OverlapPolicy,
    pub missed: MissedPolicy,
    pub jitter_ms: u64,
    pub starts_at: Option<TimestampMs>,
    pub ends_at: Option<TimestampMs>,
    /// Counts its definitions from 1.
    pub generation: u64,
    pub created_at: TimestampMs,
    pub updated_at: TimestampMs,
    pub paused: Option<SchedulePause>,
    /// The next instants at which it is due, jitter apart; a paused schedule has none.
    pub upcoming: Vec<TimestampMs>,
    /// When the next run starts, with its jitter.
    pub next_start_at: Option<TimestampMs>,
    /// The last instant for which a run was started or left out.
    pub last_due: Option<TimestampMs>,
    pub last_execution_id: Option<ExecutionId>,
    /// Runs that are not known to have finished.
    pub running: Vec<ExecutionId>,
    /// A run that waits for those before it.
    pub buffered: Option<TimestampMs>,
    /// Ranges that are still being made up for.
    pub backfills: Vec<Backfill>,
    /// Runs that were submitted, by whatever way.
    pub started: u64,
    /// Runs that were left out because of one before them.
    pub overlapped: u64,
    /// Runs that could not be submitted.
    #[serde(default)]
    pub refused: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SchedulesAnswer {
    pub schedules: Vec<ScheduleSnapshot>,
    /// Present when there is more.
    pub next_cursor: Option<String>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PauseScheduleRequest {
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TriggerScheduleAnswer {
    pub execution_id: ExecutionId,
}

/// Submits the runs that were due from one instant up to, and not including, another.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackfillScheduleRequest {
    pub from: TimestampMs,
    pub until: TimestampMs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BackfillScheduleAnswer {
    /// How many due times the range has.
    pub runs: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewScheduleRequest {
    pub timing: Timing,
    /// How many instants, at most 100; 5 if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PreviewScheduleAnswer {
    pub upcoming: Vec<TimestampMs>,
}
