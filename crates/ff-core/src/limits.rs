//! A bound on everything that a caller can make large.

use std::time::Duration;

pub const LANE_BYTES: usize = 64;
pub const NAME_BYTES: usize = 255;
pub const KIND_BYTES: usize = 255;
pub const REASON_BYTES: usize = 4096;
pub const IDEMPOTENCY_KEY_BYTES: usize = 255;
pub const TAGS: usize = 32;
pub const TAG_KEY_BYTES: usize = 128;
pub const TAG_VALUE_BYTES: usize = 1024;
pub const CAPABILITIES: usize = 256;
pub const CAPABILITIES_BYTES: usize = 4096;
pub const SUBMIT_BATCH: usize = 10_000;
pub const CLAIM_BATCH: usize = 1_000;
pub const CLAIM_LANES: usize = 64;
pub const RENEW_BATCH: usize = 10_000;
pub const PAGE: usize = 1_000;
pub const PROGRESS_MESSAGE_BYTES: usize = 4096;
pub const POLICY_BYTES: usize = 16 * 1024;
pub const PRIORITY_MIN: i32 = 0;
pub const PRIORITY_MAX: i32 = 9000;
pub const LEASE_TTL_MAX_MS: u32 = 24 * 60 * 60 * 1000;
/// No delay, deadline or back-off reaches further than this.
pub const HORIZON: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// The limits that an operator may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload or result, in bytes.
    pub payload_bytes: usize,
    /// How many operations may wait for the writer before callers are told that it is busy.
    pub queue: usize,
    /// How many operations one transaction may carry.
    pub batch: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { payload_bytes: 1024 * 1024, queue: 8192, batch: 512 }
    }
}
