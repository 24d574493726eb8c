//! Wake-ups after a commit. Every one of them is a hint: whoever hears nothing looks again anyway.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::followers::{Follower, Followers};
use super::{Change, Job, Write};
use crate::types::{ExecutionKey, TimestampMs};

/// Rung by a store when it has committed, or when it hears that another process has.
pub struct Bells {
    /// Counts commits that wrote events.
    events: watch::Sender<u64>,
    /// The earliest due time that was written and not yet looked at.
    timers: watch::Sender<Option<TimestampMs>>,
    waiters: Mutex<HashMap<Arc<str>, VecDeque<Arc<Waiter>>>>,
    followers: Followers,
    next_ticket: AtomicU64,
}

struct Waiter {
    /// Counts registrations: a ring is passed on only to those who were there when it was rung.
    ticket: u64,
    /// The first ticket that the ring does not concern; 0 while there was none.
    rung: AtomicU64,
    /// Its claim has been given work: a ring from now on is for somebody else.
    served: Arc<AtomicBool>,
    notify: Notify,
    /// A claim that whoever brings work may decide at once.
    offer: Mutex<Option<Job>>,
}

/// A claim that waits for work in some lanes. Dropping it passes an unused ring on.
pub struct ClaimWaiter {
    bells: Arc<Bells>,
    lanes: Vec<Arc<str>>,
    waiter: Arc<Waiter>,
}

impl Default for Bells {
    fn default() -> Self {
        Self {
            events: watch::Sender::new(0),
            timers: watch::Sender::new(None),
            waiters: Mutex::default(),
            followers: Followers::default(),
            next_ticket: AtomicU64::new(1),
        }
    }
}

impl Bells {
    /// Tells everybody whom a committed change concerns.
    pub fn ring(&self, change: &Change) {
        self.ring_work(change);
        self.ring_log(change);
    }

    /// Wakes waiting claims. A store whose claims queue up behind the change may ring before it
    /// commits, so that they are there when it has.
    pub fn ring_work(&self, change: &Change) {
        let mut ready: HashMap<&Arc<str>, usize> = HashMap::new();
        for write in &change.executions {
            if let Write::Insert(row) | Write::Update(row) = write
                && row.is_claimable()
            {
                *ready.entry(&row.lane).or_default() += 1;
            }
        }
        for write in &change.lanes {
            if let Write::Update(row) = write {
                ready.insert(&row.lane, usize::MAX);
            }
        }
        for (lane, count) in ready {
            self.ring_lane(lane, count);
        }
    }

    /// Wakes the sweeper and subscribers, who look at what is committed.
    pub fn ring_log(&self, change: &Change) {
        let armed = change.timers.iter().filter_map(|write| match write {
            Write::Insert(row) | Write::Update(row) => Some(row.key.due_at),
            Write::Delete(_) => None,
        });
        if let Some(due) = armed.min() {
            self.ring_timers(due);
        }
        if !change.events.is_empty() {
            self.ring_events();
        }
        self.followers.ring(change);
    }

    /// Hears of everything that is written about one execution and its streams.
    pub fn follow(&self, execution: ExecutionKey) -> Follower<'_> {
        self.followers.follow(execution)
    }

    /// Something was written about an execution or its streams, by somebody else.
    pub fn ring_followers(&self, execution: &ExecutionKey) {
        self.followers.ring_one(execution);
    }

    pub fn ring_events(&self) {
        self.events.send_modify(|count| *count += 1);
    }

    pub fn ring_timers(&self, due: TimestampMs) {
        self.timers.send_if_modified(|earliest| {
            let sooner = earliest.is_none_or(|known| due < known);
            if sooner {
                *earliest = Some(due);
            }
            sooner
        });
    }

    /// Something may have changed, and nobody knows what: everybody looks.
    pub fn ring_everybody(&self) {
        let lanes: Vec<Arc<str>> = self.waiters().keys().cloned().collect();
        for lane in lanes {
            self.ring_lane(&lane, usize::MAX);
        }
        self.ring_timers(TimestampMs(i64::MIN));
        self.ring_events();
        self.followers.ring_all();
    }

    /// Wakes as many waiting claims as there is new work.
    pub fn ring_lane(&self, lane: &Arc<str>, count: usize) {
        self.ring_before(lane, count, self.next_ticket.load(Ordering::Acquire));
    }

    /// Rings for those who registered before a ticket. A ring that its hearer had no use for goes
    /// on to others who may have, and ends with the last who was there when it was rung.
    fn ring_before(&self, lane: &Arc<str>, count: usize, before: u64) {
        let mut waiters = self.waiters();
        let Some(queue) = waiters.get_mut(lane) else { return };
        let mut left = count;
        queue.retain(|waiter| {
            // It has what it wants, unless its transaction fails: it stays, and others are rung.
            if waiter.served.load(Ordering::Acquire) {
                return true;
            }
            if left == 0 || waiter.ticket >= before {
                return true;
            }
            let first =
                waiter.rung.compare_exchange(0, before, Ordering::AcqRel, Ordering::Acquire);
            if first.is_ok() {
                waiter.notify.notify_one();
                left -= 1;
            }
            false
        });
        if queue.is_empty() {
            waiters.remove(lane);
        }
    }

    /// Takes the claims that wait for new work, at most one for each piece of it. They belong to
    /// the taker now and must be answered.
    pub(super) fn take_offers(&self, work: &HashMap<Arc<str>, usize>) -> Vec<Job> {
        let mut offers = Vec::new();
        if work.is_empty() {
            return offers;
        }
        let before = self.next_ticket.load(Ordering::Acquire);
        let mut waiters = self.waiters();
        for (lane, count) in work {
            let Some(queue) = waiters.get_mut(lane) else { continue };
            let mut left = *count;
            // Those who have left no offer yet stay in line for the bell.
            queue.retain(|waiter| {
                let taken = (left > 0).then(|| waiter.take_offer()).flatten();
                let Some(job) = taken else { return true };
                waiter.rung.store(before, Ordering::Release);
                offers.push(job);
                left -= 1;
                false
            });
            if queue.is_empty() {
                waiters.remove(lane);
            }
        }
        offers
    }

    pub fn events(&self) -> watch::Receiver<u64> {
        self.events.subscribe()
    }

    pub fn timers(&self) -> watch::Receiver<Option<TimestampMs>> {
        self.timers.subscribe()
    }

    /// The sweeper is about to look: what was armed before is seen by that look.
    pub fn clear_timers(&self) {
        self.timers.send_if_modified(|earliest| {
            *earliest = None;
            false
        });
    }

    /// Registers a claim before it looks for work, so that nothing slips between look and wait.
    pub fn wait_for_work(self: &Arc<Self>, lanes: &[Arc<str>]) -> ClaimWaiter {
        let waiter = Arc::new(Waiter {
            ticket: self.next_ticket.fetch_add(1, Ordering::AcqRel),
            rung: AtomicU64::new(0),
            served: Arc::default(),
            notify: Notify::new(),
            offer: Mutex::new(None),
        });
        let mut waiters = self.waiters();
        for lane in lanes {
            waiters.entry(lane.clone()).or_default().push_back(waiter.clone());
        }
        drop(waiters);
        ClaimWaiter { bells: self.clone(), lanes: lanes.to_vec(), waiter }
    }

    fn waiters(&self) -> MutexGuard<'_, HashMap<Arc<str>, VecDeque<Arc<Waiter>>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    fn take_offer(&self) -> Option<Job> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClaimWaiter {
    /// Set by the claim of this waiter when it is given work.
    pub fn served(&self) -> Arc<AtomicBool> {
        self.waiter.served.clone()
    }

    /// Leaves a claim for whoever brings work.
    pub fn offer(&self, claim: Job) {
        *self.waiter.offer.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim);
    }

    /// Whether the claim is still here, and not any more; if it is not, its answer will come.
    pub fn take_back(&self) -> bool {
        self.waiter.take_offer().is_some()
    }

    pub async fn rung(&self) {
        self.waiter.notify.notified().await;
    }

    /// The claim found work: nothing is left to pass on.
    pub fn satisfied(self) {
        self.waiter.rung.store(0, Ordering::Release);
    }

    fn withdraw(&self) {
        let mut waiters = self.bells.waiters();
        for lane in &self.lanes {
            if let Some(queue) = waiters.get_mut(lane) {
                queue.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
                if queue.is_empty() {
                    waiters.remove(lane);
                }
            }
        }
    }
}

impl Drop for ClaimWaiter {
    fn drop(&mut self) {
        self.withdraw();
        let rung = self.waiter.rung.swap(0, Ordering::AcqRel);
        if rung > 0 {
            for lane in &self.lanes {
                self.bells.ring_before(lane, 1, rung);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_remembered_only_while_a_claim_waits_in_it() {
        let bells = Arc::new(Bells::default());
        for lane in 0..1_000 {
            let lanes: Vec<Arc<str>> =
                (lane..lane + 3).map(|lane| lane.to_string().into()).collect();
            let waiter = bells.wait_for_work(&lanes);
            assert_eq!(bells.waiters().len(), 3);
            if lane % 2 == 0 {
                bells.ring_lane(&lanes[0], 1);
            }
            drop(waiter);
            assert!(bells.waiters().is_empty());
        }
    }
}
