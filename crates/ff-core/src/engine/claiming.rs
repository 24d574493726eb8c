//! Handing out work to whoever waits for it. Whoever goes away meanwhile gives back what it was
//! given, so that nobody has to wait for a lease that nobody holds.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::WeakSender;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Caller, Engine, with_jitter};
use crate::backend::Handle;
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::execution::{Claim, Claimed, Delay, Grant};
use crate::operations::limit::gate::VIEW;
use crate::store::{ClaimWaiter, Job};
use crate::types::Namespace;

/// How often a claim looks for work that others have in hand before it counts as none.
const LOOKS: u32 = 10;
/// The rest before the third look; it grows from look to look.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// And how soon it looks again if it may wait longer.
const LOOK_SOON: Duration = Duration::from_secs(1);

impl Engine {
    /// Claims, and waits for work if there is none yet.
    pub async fn claim<'e>(
        &'e self,
        caller: Caller<'e>,
        wait: Duration,
        claim: impl Fn() -> Claim,
    ) -> Result<Grants<'e>, EngineError> {
        let deadline = Instant::now() + wait.min(limits::HORIZON);
        let mut looks = 0;
        loop {
            let operation = self.widened(claim());
            let waiter = self.store.listen().wait_for_work(&operation.lanes);
            let (job, mut answer) = self.asking(caller, operation, Some(waiter.served()));
            self.enqueue(job)?;
            let mut claimed = answer.get().await?;
            if claimed.limited {
                self.limited.store(true, Ordering::Relaxed);
            }
            // What others have in hand may come free, but not for ever.
            looks += 1;
            let passed = claimed.look_again && claimed.passed_over;
            let look_again = passed || (claimed.look_again && looks < LOOKS);
            let waits = Instant::now() < deadline && !wait.is_zero();
            if claimed.grants.is_empty() && !look_again && waits {
                looks = 0;
                // What others had in hand comes free without a ring.
                let patience = if claimed.look_again { LOOK_SOON } else { self.store.patience() };
                let until = deadline.min(Instant::now() + with_jitter(patience));
                match self.wait_for_offer(caller, &waiter, claim(), until).await? {
                    Some(answered) => claimed = answered,
                    None => continue,
                }
            }
            if !claimed.grants.is_empty() {
                waiter.satisfied();
                return Ok(Grants::new(self, caller.scope, claimed.grants));
            }
            if passed {
                looks = 0;
            } else if look_again {
                tokio::time::sleep(LOOK_AGAIN * (looks - 1)).await;
            } else if !waits {
                return Ok(Grants::new(self, caller.scope, Vec::new()));
            }
        }
    }

    /// Claims look further where limits are in use, because some of what they see must wait.
    fn widened(&self, claim: Claim) -> Claim {
        match self.limited.load(Ordering::Relaxed) {
            true => Claim { view: claim.max + VIEW, ..claim },
            false => claim,
        }
    }

    /// A claim and its answer.
    fn asking<'e>(
        &'e self,
        Caller { scope, stamp }: Caller<'e>,
        claim: Claim,
        served: Option<Arc<AtomicBool>>,
    ) -> (Job, Awaited<'e>) {
        let (reply, answer) = oneshot::channel();
        let (queue, back) = (self.queue.downgrade(), scope.cloned());
        let unheard = move |late: Claimed| put_back(&queue, back.as_ref(), &late.grants);
        let job = Job::watched(claim, scope.cloned(), reply, served, Box::new(unheard));
        let job = job.stamped(stamp);
        (job, Awaited { engine: self, scope, answer })
    }

    /// Leaves a claim with the bells and waits until it is answered; `None` means that it is time
    /// to ask again.
    async fn wait_for_offer(
        &self,
        caller: Caller<'_>,
        waiter: &ClaimWaiter,
        claim: Claim,
        until: Instant,
    ) -> Result<Option<Claimed>, EngineError> {
        let (job, mut answer) = self.asking(caller, claim, None);
        waiter.offer(job);
        tokio::select! {
            biased;
            answered = answer.get() => return answered.map(Some),
            () = waiter.rung() => {}
            // A ring may be lost, so a waiting claim also looks from time to time.
            () = tokio::time::sleep_until(until) => {}
        }
        if waiter.take_back() {
            return Ok(None);
        }
        // Somebody has it in hand: what it is given must not be lost.
        answer.get().await.map(Some)
    }
}

/// What a claim was given, until somebody takes it. What nobody takes is put back.
pub struct Grants<'e> {
    engine: &'e Engine,
    scope: Option<Namespace>,
    grants: Vec<Grant>,
}

impl<'e> Grants<'e> {
    fn new(engine: &'e Engine, scope: Option<&Namespace>, grants: Vec<Grant>) -> Self {
        Self { engine, scope: scope.cloned(), grants }
    }

    pub fn seen(&self) -> &[Grant] {
        &self.grants
    }

    /// From here on they are the taker's.
    pub fn take(mut self) -> Vec<Grant> {
        mem::take(&mut self.grants)
    }
}

impl Drop for Grants<'_> {
    fn drop(&mut self) {
        if !self.grants.is_empty() {
            put_back(&self.engine.queue.downgrade(), self.scope.as_ref(), &self.grants);
        }
    }
}

/// The answer to a claim on its way to whoever asked.
struct Awaited<'e> {
    engine: &'e Engine,
    scope: Option<&'e Namespace>,
    answer: oneshot::Receiver<Result<Claimed, EngineError>>,
}

impl Awaited<'_> {
    async fn get(&mut self) -> Result<Claimed, EngineError> {
        let answer = (&mut self.answer).await;
        self.engine.answered(answer)
    }
}

impl Drop for Awaited<'_> {
    /// Whoever answers from now on finds nobody; what has been answered is here.
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(Ok(late)) = self.answer.try_recv() {
            put_back(&self.engine.queue.downgrade(), self.scope, &late.grants);
        }
    }
}

/// Puts down what nobody has begun, as a worker would: the attempt goes on with whoever is next.
/// What cannot be put down, because the queue is full or has ended, is left to its lease.
fn put_back(queue: &WeakSender<Job>, scope: Option<&Namespace>, grants: &[Grant]) {
    let Some(queue) = queue.upgrade() else { return };
    let put_down = |handle: &Handle| {
        let operation = Delay { handle: handle.clone(), delay: Duration::ZERO };
        Job::new(operation, scope.cloned(), oneshot::channel().0)
    };
    for grant in grants {
        if queue.try_send(put_down(&grant.handle)).is_err() {
            return;
        }
    }
}
