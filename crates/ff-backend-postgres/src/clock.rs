//! The database's clock, as this process knows it between two looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ff_core::engine::clock::Clock;
use ff_core::types::TimestampMs;

/// Sets the time of everything: the database's own clock, unless a test brings another.
pub(crate) enum Time {
    Database(DatabaseClock),
    Given(Arc<dyn Clock>),
}

/// Every transaction asks the database; in between its clock is taken to run like this host's.
pub(crate) struct DatabaseClock {
    started: Instant,
    /// The database's time when `started` was, in milliseconds.
    origin: AtomicI64,
}

/// Nobody sleeps longer, because a clock may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

impl Time {
    pub fn database() -> Self {
        let origin = AtomicI64::new(TimestampMs::now().0);
        Self::Database(DatabaseClock { started: Instant::now(), origin })
    }

    pub fn now(&self) -> TimestampMs {
        match self {
            Self::Database(clock) => clock.now(),
            Self::Given(clock) => clock.now(),
        }
    }

    /// The database has said what time it is. The answer took a while to come, so this clock is
    /// always a little behind: nobody acts before the database would.
    pub fn observe(&self, now_ms: i64) -> TimestampMs {
        match self {
            Self::Database(clock) => {
                clock.origin.store(now_ms - clock.elapsed(), Ordering::Relaxed);
                TimestampMs(now_ms)
            }
            Self::Given(clock) => clock.now(),
        }
    }

    pub async fn sleep_until(&self, at: TimestampMs) {
        match self {
            Self::Database(clock) => loop {
                let left = at.since(clock.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
            },
            Self::Given(clock) => clock.sleep_until(at).await,
        }
    }
}

impl DatabaseClock {
    fn now(&self) -> TimestampMs {
        TimestampMs(self.origin.load(Ordering::Relaxed) + self.elapsed())
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}
