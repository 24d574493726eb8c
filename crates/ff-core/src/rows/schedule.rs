//! `ff_schedule`: when work is submitted by itself, and how far that has come.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Json, record};
use crate::contracts::{Backfill, PutScheduleArgs};
use crate::types::{ExecutionId, TimestampMs};

record! {
    /// One schedule.
    pub struct ScheduleRow in "ff_schedule" {
        key ScheduleKey {
            /// Made from its namespace and name, because timers name their subject by an id.
            id: Uuid = [schedule_id: Uuid],
        }
        namespace: Arc<str> = [namespace: Text],
        name: Arc<str> = [schedule_name: Text],
        /// As it was put, the payload apart.
        definition: Json<PutScheduleArgs> = [definition: Text],
        payload: Arc<[u8]> = [payload: Bytes],
        /// Where its runs live.
        partition: u16 = [run_partition: Small],
        /// Counts its definitions from 1.
        generation: u64 = [generation: Int],
        created_at: TimestampMs = [created_at_ms: Int],
        updated_at: TimestampMs = [updated_at_ms: Int],
        paused_at: Option<TimestampMs> = [paused_at_ms: Int],
        paused_reason: Option<Arc<str>> = [paused_reason: Text],
        paused_by: Option<Arc<str>> = [paused_by: Text],
        /// Whatever was due up to here has been dealt with.
        looked_until: TimestampMs = [looked_until_ms: Int],
        /// When to look next, if ever.
        next_start: Option<TimestampMs> = [next_start_at_ms: Int],
        last_due: Option<TimestampMs> = [last_due_at_ms: Int],
        last_execution: Option<Arc<str>> = [last_execution_id: Text],
        runs: Json<Runs> = [runs: Text],
        started: u64 = [started_count: Int],
        overlapped: u64 = [overlapped_count: Int],
    }
    index BY_NAME = ff_schedule_name[namespace, schedule_name];
}

/// What is under way, and what has come of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Runs {
    /// Runs that are not known to have finished.
    pub running: Vec<ExecutionId>,
    /// A run that waits for those.
    pub buffered: Option<TimestampMs>,
    pub backfills: Vec<Backfill>,
    /// How many could not be submitted so far.
    pub refused: u64,
}

impl ScheduleRow {
    pub fn is_paused(&self) -> bool {
        self.paused_at.is_some()
    }
}
