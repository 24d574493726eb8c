//! Work that can be made again from its seed, so that a retry submits exactly the same.

use std::time::Duration;

use anyhow::Context as _;
use ff_core::contracts::Submission;
use ff_core::policy::{Backoff, ExecutionPolicy, RetryPolicy, TimeoutPolicy};
use ff_core::types::ExecutionId;

use super::limits::{BUDGET, METERED};
use crate::history::{self, Work};

pub const LANES: [&str; 2] = ["alpha", "beta"];

impl Work {
    pub fn new(id: String, key: Option<String>, seed: u64) -> Self {
        Self { id, key, seed, payload: history::hash(&bytes(seed)) }
    }
}

/// Bytes that follow from a seed: mostly few, sometimes so many that they are stored apart.
pub fn bytes(seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let length = if rng.u8(..20) == 0 { rng.usize(10_000..30_000) } else { rng.usize(8..200) };
    std::iter::repeat_with(|| rng.u8(..)).take(length).collect()
}

pub fn submission(work: &Work) -> anyhow::Result<Submission> {
    let mut rng = fastrand::Rng::with_seed(work.seed ^ 0x5eed);
    let lane = LANES[rng.usize(..LANES.len())];
    let id = ExecutionId::parse(&work.id).context("a history names an impossible id")?;
    let attempt_timeout_ms = (rng.u8(..20) == 0).then(|| rng.u64(100..250));
    let policy = ExecutionPolicy {
        retry_policy: RetryPolicy {
            max_retries: 3,
            backoff: Backoff::Fixed { delay_ms: rng.u64(1..30) },
            ..RetryPolicy::default()
        },
        budget_ids: if rng.u8(..16) == 0 { vec![BUDGET.to_owned()] } else { Vec::new() },
        timeout_policy: TimeoutPolicy { attempt_timeout_ms, ..TimeoutPolicy::default() },
        ..ExecutionPolicy::default()
    };
    let kind = if rng.u8(..24) == 0 { METERED } else { "chaos" };
    let mut submission = Submission::new(lane, kind)
        .id(id)
        .payload(bytes(work.seed))
        .priority(rng.i32(0..10))
        .policy(policy);
    if rng.u8(..10) == 0 {
        submission = submission.delay(Duration::from_millis(rng.u64(1..60)));
    }
    if rng.u8(..20) == 0 {
        submission = submission.deadline(Duration::from_millis(rng.u64(50..600)));
    }
    if let Some(key) = &work.key {
        submission = submission.idempotency_key(key);
    }
    Ok(submission)
}
