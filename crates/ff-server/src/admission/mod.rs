//! What a caller may take of the server: requests in hand, bytes of bodies, requests per second.
//!
//! A request counts against its token from the moment it is authenticated, and against the whole
//! server only once its body has arrived, so that slow bodies keep nothing from others. Probes take
//! nothing of this.

mod caller;
mod rate;

pub use caller::{Caller, block};

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::admission::rate::Rates;
use crate::config::Config;
use crate::refusal::{Answered, Refusal};
use crate::route::Pace;

pub struct Admission {
    limits: Limits,
    counts: Mutex<Counts>,
    /// Rung when bytes of bodies are given back.
    returned: Notify,
    rates: Option<Rates>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    requests: usize,
    requests_per_token: usize,
    waits: usize,
    waits_per_token: usize,
    open_requests: usize,
    open_requests_per_address: usize,
    body_budget: usize,
}

/// What one caller may have of the budget for bodies: a half with a token, so that there is always
/// room for another, and less without one.
const TOKEN_SHARE: usize = 2;
const OPEN_SHARE: usize = 8;
const ADDRESS_SHARE: usize = 16;

#[derive(Default)]
struct Counts {
    all: Use,
    /// Of requests without a token alone.
    open: Use,
    /// Only callers that have something in hand, so it is bounded as they are.
    by_caller: HashMap<Caller, Use>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    requests: usize,
    waits: usize,
    bytes: usize,
}

impl Use {
    fn of(&mut self, pace: Pace) -> &mut usize {
        match pace {
            Pace::Work | Pace::Probes => &mut self.requests,
            Pace::Waits | Pace::Streams => &mut self.waits,
        }
    }
}

/// One request in hand. What it has taken is given back when it is dropped.
pub struct Visit {
    admission: Arc<Admission>,
    caller: Caller,
    pace: Pace,
    counted: bool,
    started: bool,
    bytes: usize,
}

impl Admission {
    pub fn new(config: &Config) -> Arc<Self> {
        let limits = Limits {
            requests: config.requests,
            requests_per_token: config.requests_per_token,
            waits: config.connections,
            waits_per_token: config.waits_per_token,
            open_requests: config.open_requests,
            open_requests_per_address: config.open_requests_per_address,
            body_budget: config.body_budget,
        };
        let rates = config.requests_per_second.map(|per_second| {
            let burst = config.burst.unwrap_or(per_second);
            Rates::new(per_second, burst)
        });
        let (counts, returned) = (Mutex::default(), Notify::new());
        Arc::new(Self { limits, counts, returned, rates })
    }

    /// Takes up a request of a caller, unless that caller has too many.
    pub fn admit(self: &Arc<Self>, caller: Caller, pace: Pace) -> Answered<Visit> {
        if let Some(rates) = &self.rates {
            rates.take(caller, Instant::now())?;
        }
        let counted = caller.has_token();
        if counted {
            let mut counts = self.counts();
            let max = match pace {
                Pace::Work | Pace::Probes => self.limits.requests_per_token,
                Pace::Waits | Pace::Streams => self.limits.waits_per_token,
            };
            let used = counts.by_caller.entry(caller).or_default().of(pace);
            if *used >= max {
                let detail = format!("{max} requests of this token are in hand, the limit");
                return Err(Refusal::new("too_many_requests", detail));
            }
            *used += 1;
        }
        let admission = self.clone();
        Ok(Visit { admission, caller, pace, counted, started: false, bytes: 0 })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_reserve(&self, caller: Caller, more: usize) -> bool {
        let budget = self.limits.body_budget;
        let mut counts = self.counts();
        let open = !caller.has_token();
        let own = counts.by_caller.get(&caller).map_or(0, |used| used.bytes);
        let share = if open { ADDRESS_SHARE } else { TOKEN_SHARE };
        if counts.all.bytes + more > budget
            || own + more > budget / share
            || (open && counts.open.bytes + more > budget / OPEN_SHARE)
        {
            return false;
        }
        counts.all.bytes += more;
        counts.by_caller.entry(caller).or_default().bytes += more;
        if open {
            counts.open.bytes += more;
        }
        true
    }
}

impl Visit {
    /// Reserves room for a body of so many bytes in all. With a token it waits for room, because
    /// bodies that are being worked on give theirs back; without one it is refused at once.
    pub async fn reserve(&mut self, bytes: usize, patience: Duration) -> Answered<()> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let reserved = async {
            loop {
                let mut returned = std::pin::pin!(self.admission.returned.notified());
                returned.as_mut().enable();
                if self.admission.try_reserve(self.caller, more) {
                    return true;
                }
                if !self.caller.has_token() {
                    return false;
                }
                returned.await;
            }
        };
        if !tokio::time::timeout(patience, reserved).await.unwrap_or(false) {
            let detail = "bodies of other requests have taken all the room there is for them";
            return Err(Refusal::new("overloaded", detail));
        }
        self.bytes = bytes;
        Ok(())
    }

    /// From here on the request is worked on. When the server has enough to do it is refused.
    pub fn start(&mut self) -> Answered<()> {
        let limits = &self.admission.limits;
        let mut counts = self.admission.counts();
        let full = |detail: &str| Err(Refusal::new("overloaded", detail));
        if self.caller.has_token() {
            let max = match self.pace {
                Pace::Work => limits.requests,
                Pace::Waits | Pace::Streams => limits.waits,
                Pace::Probes => usize::MAX,
            };
            if *counts.all.of(self.pace) >= max {
                return full("too many requests are in hand");
            }
            *counts.all.of(self.pace) += 1;
        } else {
            let own = counts.by_caller.get(&self.caller).map_or(0, |used| used.requests);
            if counts.open.requests >= limits.open_requests
                || own >= limits.open_requests_per_address
            {
                return full("too many requests without a token are in hand");
            }
            counts.open.requests += 1;
            counts.by_caller.entry(self.caller).or_default().requests += 1;
        }
        drop(counts);
        self.started = true;
        Ok(())
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut counts = self.admission.counts();
        counts.all.bytes -= self.bytes;
        let open = !self.caller.has_token();
        if open {
            counts.open.bytes -= self.bytes;
            counts.open.requests -= usize::from(self.started);
        } else if self.started {
            *counts.all.of(self.pace) -= 1;
        }
        if let Some(used) = counts.by_caller.get_mut(&self.caller) {
            used.bytes -= self.bytes;
            if open {
                used.requests -= usize::from(self.started);
            } else {
                *used.of(self.pace) -= usize::from(self.counted);
            }
            if *used == Use::default() {
                counts.by_caller.remove(&self.caller);
            }
        }
        drop(counts);
        if self.bytes > 0 {
            self.admission.returned.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
