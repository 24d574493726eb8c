//! `ff_bulk` and `ff_bulk_failure`: an action on many executions, how far it has come, and which of
//! them refused.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Json, Word, record};
use crate::contracts::{BulkState, Stamp, StartBulkArgs};
use crate::types::{ExecutionKey, TimestampMs};

record! {
    /// One bulk operation.
    pub struct BulkRow in "ff_bulk" {
        key BulkKey {
            id: Uuid = [bulk_id: Uuid],
        }
        /// Smaller for newer ones, because records are read in ascending order.
        rank: i64 = [rank: Int],
        /// The one namespace that it touches, if its filter names one.
        namespace: Option<Arc<str>> = [namespace: Text],
        definition: Json<BulkDefinition> = [definition: Text],
        state: Word<BulkState> = [state: Text],
        created_at: TimestampMs = [created_at_ms: Int],
        finished_at: Option<TimestampMs> = [finished_at_ms: Int],
        /// The last execution that it has looked at.
        looked_at: Option<TimestampMs> = [looked_created_at_ms: Int],
        looked_id: Option<Uuid> = [looked_execution_id: Uuid],
        matched: u64 = [matched_count: Int],
        changed: u64 = [changed_count: Int],
        skipped: u64 = [skipped_count: Int],
        failed: u64 = [failed_count: Int],
    }
    index NEWEST = ff_bulk_newest[rank, bulk_id];
}

record! {
    /// One execution that refused.
    pub struct BulkFailureRow in "ff_bulk_failure" {
        key BulkFailureKey {
            bulk: Uuid = [bulk_id: Uuid],
            number: u64 = [number: Int],
        }
        execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
        code: Arc<str> = [code: Text],
        reason: Arc<str> = [reason: Text],
    }
}

/// What was asked for, and by which caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BulkDefinition {
    #[serde(flatten)]
    pub args: StartBulkArgs,
    /// The event of each execution names it. Unknown for the engine in one's own process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Stamp>,
}

impl BulkRow {
    pub fn done(&self) -> u64 {
        self.changed + self.skipped + self.failed
    }
}
