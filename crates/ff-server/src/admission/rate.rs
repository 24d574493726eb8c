//! Requests per second of each caller, by token buckets.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::admission::Caller;
use crate::refusal::{Answered, Refusal};

/// So many callers are told apart; the rest share one bucket.
const CALLERS: usize = 10_000;

pub struct Rates {
    per_second: f64,
    burst: f64,
    buckets: Mutex<HashMap<Option<Caller>, Bucket>>,
}

struct Bucket {
    left: f64,
    at: Instant,
}

impl Rates {
    pub fn new(per_second: usize, burst: usize) -> Self {
        let (per_second, burst) = (per_second as f64, burst as f64);
        Self { per_second, burst, buckets: Mutex::default() }
    }

    /// Counts a request, or says when the next one will be taken.
    pub fn take(&self, caller: Caller, now: Instant) -> Answered<()> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_after = Duration::from_secs_f64(self.burst / self.per_second);
        if buckets.len() >= CALLERS && !buckets.contains_key(&Some(caller)) {
            // A bucket that is full again is as good as none.
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < full_after);
        }
        let room = buckets.len() < CALLERS || buckets.contains_key(&Some(caller));
        let key = room.then_some(caller);
        let bucket = buckets.entry(key).or_insert(Bucket { left: self.burst, at: now });
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + since * self.per_second).min(self.burst);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let wait = Duration::from_secs_f64((1.0 - bucket.left) / self.per_second);
        let limit = self.per_second;
        let detail = format!("more than {limit} requests per second (requests_per_second)");
        let refusal = Refusal::new("rate_limit_exceeded", detail);
        Err(Refusal { retry_after: Some(wait), ..refusal })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_burst_then_a_rate() {
        let rates = Rates::new(10, 3);
        let (now, root) = (Instant::now(), Caller::Root);
        for _ in 0..3 {
            rates.take(root, now).unwrap();
        }
        let refused = rates.take(root, now).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (429, "rate_limit_exceeded"));
        let wait = refused.retry_after.unwrap();
        assert!(wait > Duration::from_millis(90) && wait < Duration::from_millis(110));
        // Another caller has a bucket of its own.
        rates.take(Caller::Token(Uuid::nil()), now).unwrap();
        rates.take(root, now + wait).unwrap();
        rates.take(root, now + wait).unwrap_err();
        // An idle bucket does not grow beyond its burst.
        let later = now + Duration::from_secs(60);
        for _ in 0..3 {
            rates.take(root, later).unwrap();
        }
        rates.take(root, later).unwrap_err();
    }

    #[test]
    fn memory_is_bounded() {
        let (rates, now) = (Rates::new(1, 1), Instant::now());
        for at in 0..CALLERS as u128 + 100 {
            let _ = rates.take(Caller::Token(Uuid::from_u128(at)), now);
        }
        assert!(rates.buckets.lock().unwrap().len() <= CALLERS + 1);
        // Those beyond share a bucket, which is empty now; in time there is room again.
        let stranger = Caller::Token(Uuid::max());
        rates.take(stranger, now).unwrap_err();
        rates.take(stranger, now + Duration::from_secs(2)).unwrap();
        assert!(rates.buckets.lock().unwrap().len() <= 2);
    }
}
