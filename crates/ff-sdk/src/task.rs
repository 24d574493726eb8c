//! What client and worker agree on: the kind of a task, its types, and how it is retried.

use std::marker::PhantomData;
use std::time::Duration;

use ff_core::policy::{Backoff, ExecutionPolicy, RetryPolicy};

/// The lane of tasks and workers that name none.
pub const DEFAULT_LANE: &str = "default";

/// A kind of work with the types of its input and its result. Make it a constant that client and
/// worker share, so that they cannot disagree.
///
/// ```
/// # use std::time::Duration;
/// # use ff_sdk::{Retry, Task};
/// # struct Order; struct Receipt;
/// const CHECKOUT: Task<Order, Receipt> = Task::new("checkout")
///     .lane("orders")
///     .retry(Retry::exponential(Duration::from_secs(1), Duration::from_secs(300)).max(12))
///     .timeout(Duration::from_secs(30));
/// ```
pub struct Task<I, O> {
    pub(crate) kind: &'static str,
    pub(crate) lane: &'static str,
    pub(crate) retry: Option<Retry>,
    pub(crate) timeout: Option<Duration>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Task<I, O> {
    pub const fn new(kind: &'static str) -> Self {
        Self { kind, lane: DEFAULT_LANE, retry: None, timeout: None, types: PhantomData }
    }

    /// The lane that it is submitted to.
    #[must_use]
    pub const fn lane(mut self, lane: &'static str) -> Self {
        self.lane = lane;
        self
    }

    /// How failures are tried again. Without it the engine's default holds: three retries.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// An attempt that takes longer counts as failed.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub const fn kind(&self) -> &'static str {
        self.kind
    }
}

// Derives would ask the same of the two types.
impl<I, O> Clone for Task<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for Task<I, O> {}

/// How often and after what pauses a failed task is tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    max: u32,
    first: Duration,
    longest: Duration,
}

impl Retry {
    /// Pauses that double from the first to the longest, with jitter.
    pub const fn exponential(first: Duration, longest: Duration) -> Self {
        Self { max: 3, first, longest }
    }

    /// The same pause each time, to the millisecond.
    pub const fn fixed(pause: Duration) -> Self {
        Self { max: 3, first: pause, longest: pause }
    }

    pub const fn never() -> Self {
        Self { max: 0, first: Duration::ZERO, longest: Duration::ZERO }
    }

    /// Attempts after the first; 3 unless it is said.
    #[must_use]
    pub const fn max(mut self, retries: u32) -> Self {
        self.max = retries;
        self
    }

    fn policy(self) -> RetryPolicy {
        let backoff = if self.first == self.longest {
            Backoff::Fixed { delay_ms: millis(self.first) }
        } else {
            Backoff::Exponential {
                initial_delay_ms: millis(self.first),
                max_delay_ms: millis(self.longest),
                multiplier: 2.0,
                jitter: true,
            }
        };
        RetryPolicy { max_retries: self.max, backoff, ..RetryPolicy::default() }
    }
}

/// The engine's policy for what was said here; `None` where nothing was.
pub(crate) fn policy(retry: Option<Retry>, timeout: Option<Duration>) -> Option<ExecutionPolicy> {
    if retry.is_none() && timeout.is_none() {
        return None;
    }
    let mut policy = ExecutionPolicy::default();
    if let Some(retry) = retry {
        policy.retry_policy = retry.policy();
    }
    policy.timeout_policy.attempt_timeout_ms = timeout.map(millis);
    Some(policy)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
