//! What a worker does with one piece of work, whatever way it reaches the engine by.

use fastrand::Rng;
use uuid::Uuid;

use super::durable::{STEPS, value};
use super::ids::pause;
use super::work::bytes;
use crate::history::{self, Grant, Lease, Op, Outcome};

/// Somebody who makes calls and writes down what became of them.
pub(crate) trait Caller: Sync {
    /// `None` if the call was refused or its outcome is unknown.
    fn call(&self, op: &Op) -> impl Future<Output = Option<Outcome>> + Send;
}

pub(crate) struct Habits<'c, C> {
    pub caller: &'c C,
    /// Whether it now and then dies with the work in hand.
    pub reckless: bool,
}

impl<C: Caller> Habits<'_, C> {
    pub async fn complete(&self, lease: Lease, rng: &mut Rng) {
        let seed = rng.u64(..);
        let result = history::hash(&bytes(seed));
        self.caller.call(&Op::Complete { lease, seed, result }).await;
    }

    /// Puts the work down until a signal comes, which comes about when the wait is over.
    pub async fn wait_for_signal(&self, lease: Lease, rng: &mut Rng) {
        let (id, timeout_ms) = (lease.id.clone(), rng.u64(20..100));
        let suspend = Op::Suspend { lease, timeout_ms, fails: rng.u8(..4) == 0 };
        let Some(Outcome::Suspended { waitpoint }) = self.caller.call(&suspend).await else {
            return;
        };
        for _ in 0..rng.u8(1..3) {
            // The suspension was committed a moment before its answer came.
            pause(rng, timeout_ms.saturating_sub(50)..timeout_ms).await;
            let (id, key) = (id.clone(), format!("signal-{:016x}", rng.u64(..)));
            let signal = Op::Signal { id, waitpoint, key };
            // Whoever says it again is told that it was heard.
            if self.caller.call(&signal).await.is_some() && rng.u8(..4) == 0 {
                self.caller.call(&signal).await;
            }
        }
    }

    /// Takes the steps that it was not told of, and now and then one that it was told of.
    pub async fn step(&self, grant: Grant, rng: &mut Rng) {
        for name in STEPS {
            if grant.steps.contains_key(name) && rng.u8(..4) > 0 {
                continue;
            }
            let (lease, seed) = (grant.lease.clone(), rng.u64(..));
            let step = Op::Step { lease, name: name.to_owned(), seed, value: value(seed) };
            if self.caller.call(&step).await.is_none() || rng.u8(..4) == 0 {
                break;
            }
        }
        self.leave(grant.lease, rng).await;
    }

    /// Says something now and then, and some of it again before it goes on.
    pub async fn speak(&self, lease: Lease, rng: &mut Rng) {
        for _ in 0..rng.u8(1..4) {
            let append_id = Uuid::from_u128(rng.u128(..));
            let append = Op::Append { lease: lease.clone(), append_id, frames: rng.u32(1..4) };
            if self.caller.call(&append).await.is_none() {
                break;
            }
            if rng.u8(..3) == 0 {
                self.caller.call(&append).await;
            }
        }
        self.leave(lease, rng).await;
    }

    /// Says what it has used, and some of it again.
    pub async fn report(&self, lease: Lease, rng: &mut Rng) {
        let (key, amount) = (format!("use-{}", rng.u8(..3)), rng.u64(1..100));
        let report = Op::Report { lease: lease.clone(), key, amount };
        self.caller.call(&report).await;
        if rng.bool() {
            self.caller.call(&report).await;
        }
        self.leave(lease, rng).await;
    }

    /// Often somebody else has to go on.
    async fn leave(&self, lease: Lease, rng: &mut Rng) {
        match rng.u8(..8) {
            0..2 => {
                self.caller.call(&Op::Fail { lease, fatal: false }).await;
            }
            2 if self.reckless => {}
            _ => self.complete(lease, rng).await,
        }
    }
}
