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
/// The part of each share that only small bodies may use, so that large ones never starve them.
const SMALL_PART: usize = 4;
/// A body above this size is large. It is also the step in which room for large bodies is taken.
pub const SMALL_BODY: usize = 64 * 1024;

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
    /// What the large bodies of a token have announced. It keeps only that token waiting.
    announced: usize,
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
    announced: usize,
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
        Ok(Visit { admission, caller, pace, counted, started: false, bytes: 0, announced: 0 })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries until it succeeds, whenever room is given back, for as long as there is patience.
    async fn wait_for(&self, patience: Duration, attempt: impl Fn() -> bool) -> Answered<()> {
        let trying = async {
            loop {
                let mut returned = std::pin::pin!(self.returned.notified());
                returned.as_mut().enable();
                if attempt() {
                    return;
                }
                returned.await;
            }
        };
        let exhausted =
            |_| Refusal::new("overloaded", "the body budget (body_budget) is exhausted");
        tokio::time::timeout(patience, trying).await.map_err(exhausted)
    }

    /// What large bodies may take of the whole budget.
    fn large_room(&self) -> usize {
        self.limits.body_budget - self.limits.body_budget / SMALL_PART
    }

    /// Counts an announced body to its token, if the others of that token leave room for it and
    /// the server has room at present. Nothing of the budget is taken.
    fn try_announce(&self, caller: Caller, bytes: usize) -> bool {
        let mut counts = self.counts();
        let own = counts.by_caller.get(&caller).map_or(0, |used| used.announced);
        if own + bytes > self.limits.body_budget / TOKEN_SHARE
            || counts.all.bytes + bytes > self.large_room()
        {
            return false;
        }
        counts.by_caller.entry(caller).or_default().announced += bytes;
        true
    }

    fn try_reserve(&self, caller: Caller, more: usize, large: bool) -> bool {
        let budget = self.limits.body_budget;
        let mut counts = self.counts();
        let open = !caller.has_token();
        let own = counts.by_caller.get(&caller).map_or(0, |used| used.bytes);
        let share = budget / if open { ADDRESS_SHARE } else { TOKEN_SHARE };
        let open_budget = budget / OPEN_SHARE;
        let (all_max, open_max, own_max) = match large {
            true => (self.large_room(), open_budget - open_budget / SMALL_PART, share),
            false => (budget, open_budget, share + share / SMALL_PART),
        };
        if counts.all.bytes + more > all_max
            || own + more > own_max
            || (open && counts.open.bytes + more > open_max)
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
    /// Prepares for a body of a declared length. A large one of a token waits here, where it
    /// holds nothing yet, until it can be expected to arrive whole. Others take their chance.
    pub async fn announce(&mut self, declared: usize, patience: Duration) -> Answered<()> {
        if declared <= SMALL_BODY || !self.caller.has_token() {
            return Ok(());
        }
        let (admission, caller) = (&self.admission, self.caller);
        admission.wait_for(patience, || admission.try_announce(caller, declared)).await?;
        self.announced = declared;
        Ok(())
    }

    /// Reserves room for a body of so many bytes in all. With a token a small one waits for room,
    /// because bodies that are being worked on give theirs back. A large one that already holds
    /// some is refused at once: bodies that hold room and wait for more would stop each other.
    pub async fn reserve(&mut self, bytes: usize, patience: Duration) -> Answered<()> {
        let large = bytes.max(self.announced) > SMALL_BODY;
        // A large body takes its room in steps, at most one step ahead of what has arrived.
        let bytes = if large { bytes.next_multiple_of(SMALL_BODY) } else { bytes };
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let waits = self.caller.has_token() && !(large && self.bytes > 0);
        let patience = if waits { patience } else { Duration::ZERO };
        let (admission, caller) = (&self.admission, self.caller);
        admission.wait_for(patience, || admission.try_reserve(caller, more, large)).await?;
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
            used.announced -= self.announced;
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
        if self.bytes + self.announced > 0 {
            self.admission.returned.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
