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
/// All items of one call together, unless an operator says otherwise.
pub const SUBMISSION_BYTES: usize = 64 * 1024 * 1024;
pub const CLAIM_BATCH: usize = 1_000;
pub const CLAIM_LANES: usize = 64;
pub const RENEW_BATCH: usize = 10_000;
pub const PAGE: usize = 1_000;
/// A page of a graph has so many edges at most for each node that it may have.
pub const GRAPH_EDGES_PER_NODE: usize = 10;
pub const NODE_NAME_BYTES: usize = 255;
/// Flows with more nodes cannot be replayed from a node or forked, which takes the whole graph.
pub const FLOW_REPLAY_NODES: usize = 100_000;
/// No page of parents has much more of their results than this; one result always comes. Results
/// that are merged into an input may be as large as a payload together, or the node fails.
pub const PARENTS_PAGE_BYTES: usize = 8 * 1024 * 1024;
pub const PROGRESS_MESSAGE_BYTES: usize = 4096;
/// How many scopes or namespaces a token names.
pub const TOKEN_WORDS: usize = 64;
/// How many webhooks a namespace may have.
pub const WEBHOOKS: usize = 100;
pub const URL_BYTES: usize = 2048;
pub const POLICY_BYTES: usize = 16 * 1024;
pub const BUDGETS_PER_EXECUTION: usize = 8;
pub const BUDGET_DIMENSIONS: usize = 32;
pub const DIMENSION_BYTES: usize = 64;
/// Small enough that sums of amounts stay far from what a number can hold.
pub const AMOUNT_MAX: u64 = 1 << 53;
pub const RATE_MAX: usize = 1_000_000;
pub const RATE_WINDOW_MAX_MS: usize = 31 * 24 * 60 * 60 * 1000;
pub const QUOTA_WEIGHTS: usize = 1_000;
pub const WEIGHT_MAX: usize = 1_000;
pub const PRIORITY_MIN: i32 = 0;
pub const PRIORITY_MAX: i32 = 9000;
pub const LEASE_TTL_MAX_MS: u32 = 24 * 60 * 60 * 1000;
/// The id of a waitpoint secret.
pub const KID_BYTES: usize = 64;
/// A shorter waitpoint secret could be guessed.
pub const WAITPOINT_SECRET_BYTES: usize = 32;
/// No token that the engine makes is longer.
pub const WAITPOINT_TOKEN_BYTES: usize = 4096;
/// Open at one time, of one execution.
pub const WAITPOINTS: usize = 64;
pub const WAITPOINT_KEY_BYTES: usize = 255;
pub const SIGNAL_NAME_BYTES: usize = 128;
/// The names that one token may allow.
pub const SIGNAL_NAMES: usize = 16;
pub const CONDITION_DEPTH: usize = 4;
/// How many signals a condition may wait for, over all its parts.
pub const CONDITION_SIGNALS: usize = 256;
/// Accepted by one waitpoint, and by one execution over all its waitpoints.
pub const SIGNALS_PER_WAITPOINT: u32 = 1_000;
pub const SIGNALS_PER_EXECUTION: u32 = 10_000;
/// Kept for a waitpoint that nobody waits for yet.
pub const SIGNALS_BUFFERED: u32 = 100;
pub const STEP_NAME_BYTES: usize = 255;
/// Largest result of one step; an execution's steps come back together with each claim.
pub const STEP_BYTES: usize = 256 * 1024;
pub const STEPS: usize = 4_096;
pub const STEPS_BYTES: usize = 8 * 1024 * 1024;
pub const FRAME_BYTES: usize = 64 * 1024;
pub const APPEND_FRAMES: usize = 1_000;
pub const APPEND_BYTES: usize = 1024 * 1024;
/// How many frames of one stream a policy may keep.
pub const STREAM_FRAMES: usize = 1_000_000;
pub const STREAM_PAGE: usize = 10_000;
/// No page of frames is much larger than this.
pub const STREAM_PAGE_BYTES: usize = 8 * 1024 * 1024;
pub const STREAM_WAIT: Duration = Duration::from_secs(30);
pub const SUMMARY_BYTES: usize = 256 * 1024;
pub const SUMMARY_DEPTH: usize = 32;
pub const LIVENESS_TTL_MAX_MS: u64 = 24 * 60 * 60 * 1000;
/// No schedule comes due more often than this.
pub const INTERVAL_MIN_MS: u64 = 1_000;
pub const JITTER_MAX_MS: u64 = 24 * 60 * 60 * 1000;
/// How many missed runs a schedule may make up for.
pub const MISSED_RUNS: u32 = 1_000;
/// How many backfills of one schedule may be under way.
pub const BACKFILLS: usize = 8;
/// How many due times one backfill may reach over.
pub const BACKFILL_RUNS: usize = 10_000;
/// How many of the next due times a schedule tells.
pub const UPCOMING: usize = 100;
/// How many executions that refused a bulk operation are kept.
pub const BULK_FAILURES: u64 = 1_000;
/// No delay, deadline or back-off reaches further than this.
pub const HORIZON: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// The limits that an operator may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload or result, in bytes.
    pub payload_bytes: usize,
    /// Largest payload of a signal, in bytes.
    pub signal_bytes: usize,
    /// How many bytes the items of one call may have together: a submission, a whole graph or an
    /// extension of one. Never less than two of the largest payloads.
    pub submission_bytes: usize,
    /// How many operations may wait for the writer before callers are told that it is busy.
    pub queue: usize,
    /// How many operations one transaction may carry; half as many where several transactions run
    /// side by side.
    pub batch: usize,
    /// How many nodes a flow may have, however many calls bring them.
    pub flow_nodes: usize,
    /// How many edges a flow may have, however many calls bring them.
    pub flow_edges: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes: 1024 * 1024,
            signal_bytes: 256 * 1024,
            submission_bytes: SUBMISSION_BYTES,
            queue: 8192,
            batch: 1024,
            flow_nodes: 10_000,
            flow_edges: 100_000,
        }
    }
}
