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
    /// When the database was last asked, in milliseconds since `started`.
    asked: AtomicI64,
    /// The latest time that was told to anybody.
    latest: AtomicI64,
}

/// How long an answer of the database may be used by transactions that do not ask.
const FRESH_MS: i64 = 1000;

/// Nobody sleeps longer, because a clock may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

impl Time {
    pub fn database() -> Self {
        Self::Database(DatabaseClock {
            started: Instant::now(),
            origin: AtomicI64::new(TimestampMs::now().0),
            asked: AtomicI64::new(i64::MIN),
            latest: AtomicI64::new(i64::MIN),
        })
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
                clock.hear(now_ms);
                TimestampMs(now_ms)
            }
            Self::Given(clock) => clock.now(),
        }
    }

    /// The database's time without asking, if its last answer is recent. A millisecond may have
    /// been rounded up, so that much is left out; and nobody is told an earlier time than before.
    pub fn fresh(&self) -> Option<TimestampMs> {
        match self {
            Self::Database(clock) => {
                let asked = clock.asked.load(Ordering::Relaxed);
                if asked.saturating_add(FRESH_MS) <= clock.elapsed() {
                    return None;
                }
                let now = clock.now().0 - 1;
                let latest = clock.latest.fetch_max(now, Ordering::Relaxed);
                Some(TimestampMs(now.max(latest)))
            }
            Self::Given(clock) => Some(clock.now()),
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
    fn hear(&self, now_ms: i64) {
        let elapsed = self.elapsed();
        self.origin.store(now_ms - elapsed, Ordering::Relaxed);
        self.asked.store(elapsed, Ordering::Relaxed);
        let latest = self.latest.fetch_max(now_ms, Ordering::Relaxed);
        if latest > now_ms.saturating_add(FRESH_MS) {
            // It was set back, or another server answers.
            self.latest.store(now_ms, Ordering::Relaxed);
        }
    }

    fn now(&self) -> TimestampMs {
        TimestampMs(self.origin.load(Ordering::Relaxed) + self.elapsed())
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_says_what_time_it_is() {
        let time = Time::database();
        assert_eq!(time.fresh(), None, "nobody has asked it yet");
        let host = TimestampMs::now().0;
        for behind in [120_000, 600_000] {
            let heard = host - behind;
            time.observe(heard);
            let fresh = time.fresh().expect("it was just asked").0;
            assert!((heard..heard + 60_000).contains(&fresh), "{fresh} is not after {heard}");
        }
    }

    #[test]
    fn nobody_is_told_an_earlier_time() {
        let time = Time::database();
        time.observe(1_000);
        assert!(time.fresh() >= Some(TimestampMs(1_000)));
        time.observe(998);
        assert!(time.fresh() >= Some(TimestampMs(1_000)));
    }
}
