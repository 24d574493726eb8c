//! Schedules: when work is submitted by itself, and what became of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::ExecutionPolicy;
use crate::types::{ExecutionId, LaneId, Namespace, TimestampMs};

/// A schedule's name, which is its own within a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScheduleId {
    pub namespace: Namespace,
    pub name: String,
}

impl ScheduleId {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: Namespace::new(namespace), name: name.into() }
    }
}

/// The instants at which a schedule is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Timing {
    Cron {
        /// Five fields, or six with seconds in front; or `@daily` and its like.
        expression: String,
        /// A name such as `Europe/Berlin`.
        #[serde(default = "utc")]
        time_zone: String,
    },
    Interval {
        every_ms: u64,
        /// An instant from which the interval is counted; the schedule's creation when absent.
        #[serde(default)]
        anchor: Option<TimestampMs>,
    },
}

fn utc() -> String {
    "UTC".to_owned()
}

impl Timing {
    pub fn cron(expression: impl Into<String>, time_zone: impl Into<String>) -> Self {
        Self::Cron { expression: expression.into(), time_zone: time_zone.into() }
    }

    pub fn every(every: std::time::Duration) -> Self {
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        Self::Interval { every_ms, anchor: None }
    }
}

/// What to do when a run is due and one before it has not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// Leaves this one out.
    #[default]
    Skip,
    /// Starts this one when those before it have finished; more than one does not wait.
    BufferOne,
    /// Cancels those before it and starts this one.
    CancelRunning,
    /// Starts this one beside them.
    Allow,
}

/// What to do with runs that were due while nobody could look, or while later ones came due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissedPolicy {
    /// Leaves out whatever is more than a minute late.
    Skip,
    /// Makes up for the latest one.
    #[default]
    Latest,
    /// Makes up for all of them, up to the newest so many.
    All { max: u32 },
}

/// What each run submits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleTemplate {
    pub lane_id: LaneId,
    pub execution_kind: String,
    pub input_payload: Vec<u8>,
    pub payload_encoding: Option<String>,
    pub priority: i32,
    /// Each run also carries `schedule.name` and `schedule.due_at`.
    pub tags: BTreeMap<String, String>,
    pub policy: Option<ExecutionPolicy>,
}

impl ScheduleTemplate {
    pub fn new(lane: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { lane_id: LaneId::new(lane), execution_kind: kind.into(), ..Self::default() }
    }
}

/// Makes a schedule, or changes the one of this name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutScheduleArgs {
    pub schedule_id: ScheduleId,
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
    #[serde(default)]
    pub starts_at: Option<TimestampMs>,
    /// Not due from this instant on.
    #[serde(default)]
    pub ends_at: Option<TimestampMs>,
}

impl PutScheduleArgs {
    pub fn new(schedule_id: ScheduleId, timing: Timing, template: ScheduleTemplate) -> Self {
        Self {
            schedule_id,
            timing,
            template,
            overlap: OverlapPolicy::default(),
            missed: MissedPolicy::default(),
            jitter_ms: 0,
            starts_at: None,
            ends_at: None,
        }
    }
}

/// What became of a `put_schedule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PutScheduleOutcome {
    Created,
    Updated,
    /// It was just so already.
    Unchanged,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseScheduleArgs {
    pub schedule_id: ScheduleId,
    pub reason: String,
    pub by: String,
}

/// Starts a run at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerScheduleArgs {
    pub schedule_id: ScheduleId,
    /// The same request starts one run, however often it is made.
    #[serde(default)]
    pub request_id: Option<String>,
}

/// Submits the runs that were due from one instant up to, and not including, another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillScheduleArgs {
    pub schedule_id: ScheduleId,
    pub from: TimestampMs,
    pub until: TimestampMs,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListSchedulesArgs {
    pub namespace: Option<Namespace>,
    pub cursor: Option<String>,
    /// 1 to 1,000; 0 means 100.
    pub limit: usize,
}

/// Everything about one schedule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScheduleSnapshot {
    #[serde(flatten)]
    pub definition: PutScheduleArgs,
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
    pub refused: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SchedulePause {
    pub reason: String,
    pub by: String,
    pub at: TimestampMs,
}

/// A range of due times that is being made up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Backfill {
    /// The last instant that has been dealt with.
    pub after: TimestampMs,
    pub until: TimestampMs,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SchedulePage {
    pub schedules: Vec<ScheduleSnapshot>,
    /// Present when there is more.
    pub next_cursor: Option<String>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<super::UnreadableRecord>,
}
