//! `ff_idempotency`: which execution stands for a key, until the key lapses.

use std::sync::Arc;

use super::Row;
use crate::types::{ExecutionKey, TimestampMs};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey {
    pub namespace: Arc<str>,
    pub key: Arc<str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct IdempotencyRow {
    pub key: IdempotencyKey,
    pub execution: ExecutionKey,
    /// A hash of what was submitted: the same key with another body is refused.
    pub fingerprint: [u8; 32],
    /// Absent: the key holds until the execution finishes.
    pub expires_at: Option<TimestampMs>,
}

impl IdempotencyRow {
    pub fn holds(&self, now: TimestampMs) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }
}

impl Row for IdempotencyRow {
    type Key = IdempotencyKey;

    fn key(&self) -> IdempotencyKey {
        self.key.clone()
    }
}
