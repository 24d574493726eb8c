//! The worker's own time, which nobody sets: leases are given up by it when the store is silent.

use std::time::Duration;

use async_trait::async_trait;
use ff_core::engine::clock::Clock;
use ff_core::types::TimestampMs;
use tokio::time::Instant;

/// Milliseconds since the worker began.
pub(crate) struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

#[async_trait]
impl Clock for MonotonicClock {
    fn now(&self) -> TimestampMs {
        TimestampMs::default().after(self.origin.elapsed())
    }

    async fn sleep_until(&self, at: TimestampMs) {
        let since_origin = at.since(TimestampMs::default());
        tokio::time::sleep_until(self.origin + since_origin).await;
    }
}

/// Sleeps by the worker's clock.
pub(crate) async fn pause(clock: &dyn Clock, duration: Duration) {
    if !duration.is_zero() {
        clock.sleep_until(clock.now().after(duration)).await;
    }
}

/// A pause that doubles with each failure up to a limit, less up to half of it by chance, so that
/// those who failed together do not return together.
pub(crate) fn backoff(failures: u32, first: Duration, longest: Duration) -> Duration {
    let grown = first.saturating_mul(1 << failures.min(20)).min(longest);
    grown.mul_f64(0.5 + 0.5 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_limit() {
        let (first, longest) = (Duration::from_millis(50), Duration::from_secs(5));
        for failures in 0..80 {
            let grown = Duration::from_millis(50 << failures.min(10)).min(longest);
            let pause = backoff(failures, first, longest);
            assert!(pause >= grown / 2 && pause <= grown, "{failures}: {pause:?}");
        }
    }
}
