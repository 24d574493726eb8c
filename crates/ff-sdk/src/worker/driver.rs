//! The worker's one loop: claims as slots free up, starts handlers, and tells what became of them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::contracts::{ClaimArgs, ClaimedExecution};
use ff_core::engine_error::EngineError;
use ff_core::limits;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Setup;
use super::leases::Leases;
use super::reporting::{Reporting, Told};
use super::runner::{self, Ending};
use crate::clock::{backoff, pause};
use crate::ctx::Ctx;
use crate::transport::{Report, Verdict};

/// The pauses after claims that failed.
const RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// A claim that finds nothing in less than this did not wait, and counts as failed.
const TOO_SOON: Duration = Duration::from_millis(5);
/// How long a shutdown waits for a claim that may just be being committed.
const LAST_CLAIM: Duration = Duration::from_millis(100);
/// Handlers that were started this recently may be about to end with those that have.
const TOGETHER: Duration = Duration::from_micros(200);

type Claiming = Pin<Box<dyn Future<Output = Claimed> + Send>>;
type Claimed = (Instant, Result<Vec<ClaimedExecution>, EngineError>);

pub(super) struct Driver {
    setup: Arc<Setup>,
    leases: Arc<Leases>,
    stop: CancellationToken,
    ended: mpsc::UnboundedSender<Ended>,
    ends: mpsc::UnboundedReceiver<Ended>,
    reporting: Reporting,
    /// Handlers that have not ended yet.
    running: usize,
    /// When the last of them were started.
    started_at: Instant,
    next_ticket: u64,
    claim_failures: u32,
    /// What is stopped from here on is put back.
    put_back: bool,
}

/// A handler that has ended.
struct Ended {
    ticket: u64,
    handle: Handle,
    ending: Ending,
}

impl Driver {
    pub fn new(setup: Arc<Setup>, leases: Arc<Leases>, stop: CancellationToken) -> Self {
        let (ended, ends) = mpsc::unbounded_channel();
        let transport = setup.client.transport().clone();
        let reporting = Reporting::new(transport, setup.clock.clone(), leases.clone());
        Self {
            setup,
            leases,
            stop,
            ended,
            ends,
            reporting,
            running: 0,
            started_at: Instant::now(),
            next_ticket: 0,
            claim_failures: 0,
            put_back: false,
        }
    }

    pub async fn run(mut self) {
        let stop = self.stop.clone();
        let mut claiming: Option<Claiming> = None;
        let mut ended = Vec::new();
        loop {
            let free = self.free_slots();
            if claiming.is_none() && free > 0 {
                claiming = Some(self.claim(free));
            }
            // What is to be told is queued first and the claim right behind it, so that one commit
            // ends what is done and brings what comes next.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.reporting.progress() => {}
                claimed = wait_for(&mut claiming) => {
                    claiming = None;
                    self.claimed(claimed);
                }
                // One report at a time: what ends while it is under way goes with the next one, and
                // so do those that the claim behind it has brought.
                _ = self.ends.recv_many(&mut ended, limits::CLAIM_BATCH),
                    if !self.reporting.is_sending() =>
                {
                    self.gather(&mut ended).await;
                    self.tell(&mut ended);
                }
            }
        }
        self.drain(claiming).await;
    }

    /// Handlers that are not running, less what the engine could not be told of: a worker whose
    /// results nobody takes must not go on.
    fn free_slots(&self) -> usize {
        let taken = self.running + self.reporting.again();
        self.setup.concurrency.saturating_sub(taken).min(limits::CLAIM_BATCH)
    }

    fn claim(&self, max: usize) -> Claiming {
        let setup = self.setup.clone();
        let rest = match self.claim_failures {
            0 => Duration::ZERO,
            failures => backoff(failures - 1, RETRY, LONGEST_RETRY),
        };
        Box::pin(async move {
            pause(&*setup.clock, rest).await;
            let args = ClaimArgs { max, ..setup.claim.clone() };
            let sent = Instant::now();
            (sent, setup.client.transport().claim(args).await)
        })
    }

    fn claimed(&mut self, (sent, outcome): Claimed) {
        match outcome {
            Ok(claimed) if claimed.is_empty() => {
                let too_soon = sent.elapsed() < TOO_SOON;
                self.claim_failures = if too_soon { self.claim_failures + 1 } else { 0 };
            }
            Ok(claimed) => {
                self.claim_failures = 0;
                self.start(claimed);
            }
            Err(error) => {
                self.claim_failures += 1;
                let failures = self.claim_failures;
                tracing::warn!(%error, failures, "the claim failed; it is tried again");
            }
        }
    }

    fn start(&mut self, claimed: Vec<ClaimedExecution>) {
        let mut leases = Vec::with_capacity(claimed.len());
        let mut contexts = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            let stop = CancellationToken::new();
            let lease = self.leases.granted(claimed.handle.clone(), stop.clone());
            let (client, states) = (self.setup.client.clone(), self.setup.states.clone());
            leases.push((self.next_ticket, lease));
            contexts.push((self.next_ticket, Ctx::new(claimed, client, states, stop)));
            self.next_ticket += 1;
        }
        // Kept before any handler runs, and in one go.
        self.leases.add(leases.into_iter());
        self.running += contexts.len();
        self.started_at = Instant::now();
        for (ticket, ctx) in contexts {
            let (setup, ended) = (self.setup.clone(), self.ended.clone());
            tokio::spawn(async move {
                let handle = ctx.handle().clone();
                let ending = runner::run(&setup, ctx).await;
                let _ = ended.send(Ended { ticket, handle, ending });
            });
        }
    }

    /// Handlers that were started together often end together: those that are about to do so
    /// before anything is told. Handlers that take long are not waited for.
    async fn gather(&mut self, ended: &mut Vec<Ended>) {
        while ended.len() < self.running {
            tokio::task::yield_now().await;
            while let Ok(another) = self.ends.try_recv() {
                ended.push(another);
            }
            if self.started_at.elapsed() > TOGETHER {
                return;
            }
        }
    }

    fn tell(&mut self, ended: &mut Vec<Ended>) {
        self.running -= ended.len();
        let (mut told, mut gone) = (Vec::with_capacity(ended.len()), Vec::new());
        for Ended { ticket, handle, ending } in ended.drain(..) {
            let verdict = match ending {
                Ending::Told(verdict) => verdict,
                Ending::Stopped if self.put_back => Verdict::Release(Duration::ZERO),
                Ending::Stopped | Ending::PutDown => {
                    gone.push(ticket);
                    continue;
                }
            };
            told.push(Told::new(ticket, Report { handle, verdict }));
        }
        if !gone.is_empty() {
            self.leases.remove(gone.into_iter());
        }
        self.reporting.send(told);
    }

    /// Lets running handlers finish, and stops and puts back what takes too long.
    async fn drain(&mut self, claiming: Option<Claiming>) {
        if let Some(claiming) = claiming
            && let Ok((_, Ok(claimed))) = tokio::time::timeout(LAST_CLAIM, claiming).await
        {
            self.decline(claimed);
        }
        if !self.work_off(self.setup.drain).await {
            self.put_back = true;
            self.leases.stop_all();
            // Handlers that block cannot be stopped; their leases expire.
            if !self.work_off(self.setup.grace * 2).await {
                tracing::warn!(running = self.running, "the worker ends with work in hand");
            }
        }
    }

    /// Puts back what came too late to be started.
    fn decline(&mut self, claimed: Vec<ClaimedExecution>) {
        let mut told = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            let report =
                Report { handle: claimed.handle, verdict: Verdict::Release(Duration::ZERO) };
            told.push(Told::new(self.next_ticket, report));
            self.next_ticket += 1;
        }
        self.reporting.send(told);
    }

    /// Goes on without claiming; false if that did not end in time.
    async fn work_off(&mut self, patience: Duration) -> bool {
        let clock = self.setup.clock.clone();
        let mut late = clock.sleep_until(clock.now().after(patience));
        let mut ended = Vec::new();
        while self.running > 0 || !self.reporting.is_idle() {
            tokio::select! {
                biased;
                () = self.reporting.progress() => {}
                _ = self.ends.recv_many(&mut ended, limits::CLAIM_BATCH) => self.tell(&mut ended),
                () = &mut late => return false,
            }
        }
        true
    }
}

impl Drop for Driver {
    /// Also when the worker is dropped in the middle: no handler goes on without it.
    fn drop(&mut self) {
        self.leases.stop_all();
        self.leases.close();
    }
}

async fn wait_for(claiming: &mut Option<Claiming>) -> Claimed {
    match claiming {
        Some(claiming) => claiming.await,
        None => std::future::pending().await,
    }
}
