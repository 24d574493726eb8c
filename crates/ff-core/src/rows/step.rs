//! `ff_step`: what an execution has done and need not do again.

use std::sync::Arc;

use super::record;
use crate::types::{ExecutionKey, TimestampMs};

record! {
    /// One durable step.
    pub struct StepRow in "ff_step", guarded {
        key StepKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
            name: Arc<str> = [step_name: Text],
        }
        /// Counts the execution's steps from 1.
        sequence: u32 = [sequence: Int4],
        result: Arc<[u8]> = [result: Bytes],
        attempt_index: u32 = [attempt_index: Int4],
        recorded_at: TimestampMs = [recorded_at_ms: Int],
        /// Only of a sleep: when it is over.
        due_at: Option<TimestampMs> = [due_at_ms: Int],
    }
}

/// What the execution's row knows of its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCount {
    pub count: u32,
    /// Names and results together.
    pub bytes: u64,
}
