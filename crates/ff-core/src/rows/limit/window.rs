//! A sliding window: at most `limit` admissions within any stretch of `window_ms`.
//!
//! Few admissions are kept by their own instants. Many are kept by the end of the slice of time
//! that they fall into, so they are counted a little longer than they must be and never shorter:
//! the rule holds exactly, and the row stays small.

use serde::{Deserialize, Serialize};

use crate::contracts::RateLimit;
use crate::types::TimestampMs;

/// As many instants as one window keeps apart.
const INSTANTS: u64 = 128;

/// Admissions, oldest first: the instant from which they are counted, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    entries: Vec<(i64, u32)>,
}

impl Window {
    /// How many admissions are counted at this instant.
    pub fn count(&self, rate: RateLimit, now: TimestampMs) -> u64 {
        self.counted(rate, now).map(|(_, many)| u64::from(*many)).sum()
    }

    /// How many more are allowed at this instant.
    pub fn room(&self, rate: RateLimit, now: TimestampMs) -> u64 {
        u64::from(rate.limit).saturating_sub(self.count(rate, now))
    }

    /// When one more is allowed: now, or when enough of those that are counted have left. `None`
    /// if the limit allows none at all.
    pub fn next_at(&self, rate: RateLimit, now: TimestampMs) -> Option<TimestampMs> {
        if rate.limit == 0 {
            return None;
        }
        let mut over = (self.count(rate, now) + 1).saturating_sub(u64::from(rate.limit));
        for (at, many) in self.counted(rate, now) {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(u64::from(*many));
            if over == 0 {
                return Some(TimestampMs(*at).after_ms(rate.window_ms));
            }
        }
        Some(now)
    }

    /// Counts one admission, and forgets those that are not counted any more.
    pub fn admit(&mut self, rate: RateLimit, now: TimestampMs) {
        self.trim(rate, now);
        let slice = slice_ms(rate);
        let end =
            now.0.div_euclid(slice).saturating_add(i64::from(slice > 1)).saturating_mul(slice);
        // A clock that went back does not make an admission older than the one before it.
        let at = self.entries.last().map_or(end, |(last, _)| end.max(*last));
        match self.entries.last_mut() {
            Some((last, many)) if *last == at => *many = many.saturating_add(1),
            _ => self.entries.push((at, 1)),
        }
    }

    pub fn trim(&mut self, rate: RateLimit, now: TimestampMs) {
        self.entries.retain(|(at, _)| is_counted(*at, rate, now));
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn counted(&self, rate: RateLimit, now: TimestampMs) -> impl Iterator<Item = &(i64, u32)> {
        self.entries.iter().filter(move |(at, _)| is_counted(*at, rate, now))
    }
}

/// An admission at `t` is in no window together with one at `t + window_ms`.
fn is_counted(at: i64, rate: RateLimit, now: TimestampMs) -> bool {
    TimestampMs(at).after_ms(rate.window_ms) > now
}

/// How long a slice is whose admissions are kept together.
fn slice_ms(rate: RateLimit) -> i64 {
    if u64::from(rate.limit) <= INSTANTS {
        return 1;
    }
    i64::try_from(rate.window_ms.div_ceil(INSTANTS)).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::Dice;
    use super::*;

    fn rate(limit: u32, window_ms: u64) -> RateLimit {
        RateLimit { limit, window_ms }
    }

    #[test]
    fn edges() {
        let rate = rate(2, 1_000);
        let mut window = Window::default();
        let at = TimestampMs;
        assert_eq!(window.next_at(rate, at(0)), Some(at(0)));
        window.admit(rate, at(0));
        window.admit(rate, at(400));
        for (now, room, next) in [
            (400, 0, 1_000),
            (999, 0, 1_000),
            (1_000, 1, 1_000),
            (1_399, 1, 1_399),
            (1_400, 2, 1_400),
        ] {
            assert_eq!(window.room(rate, at(now)), room, "at {now}");
            assert_eq!(window.next_at(rate, at(now)), Some(at(next)), "at {now}");
        }
        assert_eq!(Window::default().next_at(self::rate(0, 1_000), at(0)), None);
    }

    #[test]
    fn a_lowered_limit_waits_for_enough_to_leave() {
        let mut window = Window::default();
        for now in [0, 10, 20] {
            window.admit(rate(3, 100), TimestampMs(now));
        }
        assert_eq!(window.next_at(rate(1, 100), TimestampMs(30)), Some(TimestampMs(120)));
    }

    /// The rule itself, checked against every admission of random arrivals.
    #[test]
    fn no_window_has_more_than_the_limit() {
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let rate = rate(1 + dice.below(400) as u32, 1 + dice.below(3_000));
            let mut window = Window::default();
            let mut admitted: Vec<i64> = Vec::new();
            let mut now = 1_000_000;
            for _ in 0..2_000 {
                now += dice.below(20) as i64;
                let at = TimestampMs(now);
                assert_eq!(window.room(rate, at) > 0, window.next_at(rate, at) == Some(at));
                if window.room(rate, at) > 0 {
                    window.admit(rate, at);
                    admitted.push(now);
                }
                let exact = rate.limit <= 128;
                let since = now - rate.window_ms as i64;
                let inside = admitted.iter().rev().take_while(|t| **t > since).count() as u64;
                assert!(inside <= u64::from(rate.limit), "seed {seed}: {inside} within a window");
                assert!(!exact || inside == window.count(rate, at), "seed {seed}: not exact");
                assert!(window.entries.len() as u64 <= INSTANTS + 2, "seed {seed}: too long");
            }
        }
    }

    #[test]
    fn large_limits_are_reached() {
        let rate = rate(10_000, 1_000);
        let mut window = Window::default();
        for _ in 0..10_000 {
            assert!(window.room(rate, TimestampMs(5)) > 0);
            window.admit(rate, TimestampMs(5));
        }
        assert_eq!(window.room(rate, TimestampMs(5)), 0);
        // Not a whole slice later than it must be.
        let next = window.next_at(rate, TimestampMs(5)).unwrap();
        assert!((1_005..=1_013).contains(&next.0), "{next}");
    }
}
