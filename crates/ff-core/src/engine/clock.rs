//! Where a store's time comes from, so that tests can move it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::types::TimestampMs;

#[async_trait]
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> TimestampMs;

    /// Returns once `now` has reached the instant.
    async fn sleep_until(&self, at: TimestampMs);
}

/// The host's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// A wall clock may be set while somebody sleeps, so no sleep is longer than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> TimestampMs {
        TimestampMs::now()
    }

    async fn sleep_until(&self, at: TimestampMs) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
        }
    }
}

/// A clock that stands still until somebody moves it.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicI64,
    moved: watch::Sender<i64>,
}

impl ManualClock {
    pub fn new(start_ms: i64) -> Self {
        Self { now: AtomicI64::new(start_ms), moved: watch::Sender::new(start_ms) }
    }

    pub fn advance(&self, by: Duration) {
        self.step(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
    }

    /// Moves the clock forward or, as real clocks sometimes do, back.
    pub fn step(&self, by_ms: i64) {
        let now = self.now.fetch_add(by_ms, Ordering::SeqCst) + by_ms;
        self.moved.send_replace(now);
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> TimestampMs {
        TimestampMs(self.now.load(Ordering::SeqCst))
    }

    async fn sleep_until(&self, at: TimestampMs) {
        let mut moved = self.moved.subscribe();
        let _ = moved.wait_for(|now| *now >= at.0).await;
    }
}
