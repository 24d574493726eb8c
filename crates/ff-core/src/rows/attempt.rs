//! `ff_attempt`: one row per try, which also holds the lease while there is one.

use std::sync::Arc;

use super::Row;
use crate::backend::Handle;
use crate::state::{AttemptOutcome, AttemptType};
use crate::types::{ExecutionKey, TimestampMs};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptKey {
    pub execution: ExecutionKey,
    pub index: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRow {
    pub key: AttemptKey,
    pub attempt_type: AttemptType,
    pub lease_epoch: u64,
    /// Drawn at random for each claim. After a restore the same epoch is handed out again, and this
    /// tells its lease from the one that was lost. 0 if the lease was written by other means.
    pub lease_nonce: u64,
    pub worker_id: Option<Arc<str>>,
    pub worker_instance_id: Option<Arc<str>>,
    pub lease_expires_at: Option<TimestampMs>,
    pub started_at: Option<TimestampMs>,
    pub ended_at: Option<TimestampMs>,
    pub outcome: Option<AttemptOutcome>,
    pub failure_reason: Option<Arc<str>>,
    pub failure_category: Option<Arc<str>>,
    /// When the retry that this attempt's failure scheduled becomes due.
    pub retry_at: Option<TimestampMs>,
    pub progress_percent: Option<u8>,
    pub progress_message: Option<Arc<str>>,
}

impl AttemptRow {
    /// Somebody holds a lease on this attempt, expired or not.
    pub fn is_leased(&self) -> bool {
        self.lease_expires_at.is_some() && self.holder().is_some()
    }

    /// Whether the handle was given out with the last lease on this attempt.
    pub fn is_fenced_by(&self, handle: &Handle) -> bool {
        self.key.index == handle.attempt_index()
            && self.lease_epoch == handle.lease_epoch().0
            && self.lease_nonce == handle.lease_nonce()
    }

    pub fn holder(&self) -> Option<&str> {
        self.worker_instance_id.as_deref().filter(|holder| !holder.is_empty())
    }
}

impl Row for AttemptRow {
    type Key = AttemptKey;

    fn key(&self) -> AttemptKey {
        self.key
    }
}
