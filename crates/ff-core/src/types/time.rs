//! Instants in milliseconds since the Unix epoch.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TimestampMs(pub i64);

impl TimestampMs {
    /// This host's wall clock. The engine never decides by it: stores bring their own `now`.
    pub fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    pub fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// This instant moved by a duration, stopping at the largest instant instead of wrapping.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        self.after_ms(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
    }

    #[must_use]
    pub fn after_ms(self, delay_ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX)))
    }

    /// How long from `earlier` to this instant; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for TimestampMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}
