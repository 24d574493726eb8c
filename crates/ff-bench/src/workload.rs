//! What is asked of the engine, through the same calls that a user makes.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use ff_core::backend::{CapabilitySet, Handle};
use ff_core::contracts::{ClaimArgs, ClaimedExecution, Submission, SubmitOutcome};
use ff_core::engine_backend::EngineBackend;
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::measure::{micros, per_second};

pub(crate) const PAYLOAD_BYTES: usize = 256;
/// The size of a batch of submissions.
pub(crate) const BATCH: usize = 1000;
pub(crate) const LANE: &str = "bench";
pub(crate) const KIND: &str = "noop";
pub(crate) const LEASE: Duration = Duration::from_secs(600);

/// What a store offers besides the engine's calls.
#[async_trait]
pub(crate) trait Backend: EngineBackend {
    async fn close(&self);
}

/// An engine on a database of its own.
#[derive(Clone)]
pub(crate) struct Bed {
    backend: Arc<dyn Backend>,
    pub(crate) payload: Arc<[u8]>,
}

/// How many workers there are and how many executions each has in hand at most.
#[derive(Clone, Copy)]
pub(crate) struct Crew {
    pub workers: usize,
    pub slots: usize,
}

pub(crate) const SIXTEEN: Crew = Crew { workers: 1, slots: 16 };
pub(crate) const MANY: Crew = Crew { workers: 16, slots: 16 };

/// What a crew is to do.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub count: usize,
    /// How long a worker waits for work that is not there yet.
    pub wait: Duration,
    /// No worker goes on after so long, however much is left: a slow engine makes for a low rate
    /// and not for a long run.
    pub limit: Duration,
}

/// What a crew has done.
pub(crate) struct Drained {
    pub count: usize,
    pub rate: f64,
}

impl Bed {
    pub(crate) fn new(backend: Arc<dyn Backend>, payload: &[u8]) -> Self {
        Self { backend, payload: payload.into() }
    }

    pub(crate) fn backend(&self) -> Arc<dyn EngineBackend> {
        self.backend.clone()
    }

    pub(crate) async fn close(self) {
        self.backend.close().await;
    }

    /// Executions per second that so many tasks submit, each one at a time.
    pub(crate) async fn submit_each(&self, tasks: usize, time: Duration) -> Result<f64> {
        let start = Instant::now();
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let bed = self.clone();
            running.spawn(async move {
                let mut count = 0;
                while start.elapsed() < time {
                    bed.submit(1).await?;
                    count += 1;
                }
                anyhow::Ok(count)
            });
        }
        let mut total = 0;
        while let Some(count) = running.join_next().await {
            total += count??;
        }
        Ok(per_second(total, start))
    }

    /// Executions per second that one task submits in batches.
    pub(crate) async fn submit_batches(&self, count: usize, batch: usize) -> Result<f64> {
        let start = Instant::now();
        let mut left = count;
        while left > 0 {
            let now = left.min(batch);
            self.submit(now).await?;
            left -= now;
        }
        Ok(per_second(count, start))
    }

    /// Lets the crew claim and complete. Every completion is awaited.
    pub(crate) async fn drain(&self, crew: Crew, work: Work) -> Result<Drained> {
        let left = Arc::new(AtomicUsize::new(work.count));
        let start = Instant::now();
        let mut workers = JoinSet::new();
        for number in 0..crew.workers {
            let (bed, left) = (self.clone(), left.clone());
            workers.spawn(async move {
                let mut done = 0;
                let mut in_hand = Vec::new();
                while start.elapsed() < work.limit
                    && let Some(share) = take(&left, crew.slots)
                {
                    // The completions are queued first and the next claim right behind them, so
                    // that one commit can end what is in hand and bring what comes next. The
                    // store never sees more than `slots` leases of this worker.
                    let finishing = bed.complete_all(std::mem::take(&mut in_hand));
                    let claiming = bed.claim(number, share, work.wait);
                    let (finished, claimed) = tokio::join!(biased; finishing, claiming);
                    finished?;
                    in_hand = claimed?;
                    ensure!(!in_hand.is_empty(), "the lane ran dry");
                    left.fetch_add(share - in_hand.len(), Ordering::Relaxed);
                    done += in_hand.len();
                }
                bed.complete_all(in_hand).await?;
                anyhow::Ok(done)
            });
        }
        let mut count = 0;
        while let Some(worker) = workers.join_next().await {
            count += worker??;
        }
        Ok(Drained { count, rate: per_second(count, start) })
    }

    /// Executions per second through all three steps at once: one task submits in batches of 100
    /// while the crew waits for work.
    pub(crate) async fn end_to_end(&self, crew: Crew, count: usize) -> Result<f64> {
        let bed = self.clone();
        let submitting = tokio::spawn(async move { bed.submit_batches(count, 100).await });
        let work = Work { count, wait: Duration::from_secs(30), limit: Duration::MAX };
        let drained = self.drain(crew, work).await?;
        submitting.await??;
        Ok(drained.rate)
    }

    /// Claims per second by the crew. What was claimed is completed after the clock has stopped.
    pub(crate) async fn claim_only(&self, crew: Crew, count: usize) -> Result<f64> {
        let left = Arc::new(AtomicUsize::new(count));
        let start = Instant::now();
        let mut workers = JoinSet::new();
        for number in 0..crew.workers {
            let (bed, left) = (self.clone(), left.clone());
            workers.spawn(async move {
                let mut held = Vec::new();
                while let Some(share) = take(&left, crew.slots) {
                    let claimed = bed.claim(number, share, Duration::ZERO).await?;
                    ensure!(!claimed.is_empty(), "the lane ran dry");
                    left.fetch_add(share - claimed.len(), Ordering::Relaxed);
                    held.extend(claimed);
                }
                anyhow::Ok(held)
            });
        }
        let mut held = Vec::new();
        while let Some(worker) = workers.join_next().await {
            held.extend(worker??);
        }
        let rate = per_second(count, start);
        while !held.is_empty() {
            let some = held.split_off(held.len().saturating_sub(256));
            self.complete_all(some).await?;
        }
        Ok(rate)
    }

    /// A worker that waits for so long and gets nothing.
    pub(crate) async fn starve(&self, time: Duration) -> Result<()> {
        let claimed = self.claim(0, SIXTEEN.slots, time).await?;
        ensure!(claimed.is_empty(), "there was work");
        Ok(())
    }

    pub(crate) async fn submit(&self, count: usize) -> Result<()> {
        let item = || Submission::new(LANE, KIND).payload(&*self.payload);
        let outcomes = self.backend.submit((0..count).map(|_| item()).collect()).await?;
        let created = |outcome: &SubmitOutcome| matches!(outcome, SubmitOutcome::Created { .. });
        ensure!(outcomes.len() == count && outcomes.iter().all(created), "a submission failed");
        Ok(())
    }

    pub(crate) async fn claim(
        &self,
        worker: usize,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<ClaimedExecution>> {
        let args = ClaimArgs {
            lanes: vec![LaneId::new(LANE)],
            capabilities: CapabilitySet::default(),
            worker_id: WorkerId::new("bench"),
            worker_instance_id: WorkerInstanceId::new(format!("bench-{worker}")),
            lease_ttl_ms: LEASE.as_millis() as u32,
            max,
            wait,
        };
        let claimed = self.backend.claim_many(args).await?;
        let whole = |one: &ClaimedExecution| one.payload.len() == self.payload.len();
        ensure!(claimed.iter().all(whole), "a payload changed its length");
        Ok(claimed)
    }

    /// Completes each on its own, all at the same time, as handlers that end together do.
    async fn complete_all(&self, claimed: Vec<ClaimedExecution>) -> Result<()> {
        let complete = |one: &ClaimedExecution| {
            let (backend, handle) = (self.backend.clone(), one.handle.clone());
            Box::pin(async move { backend.complete(&handle, None).await })
        };
        let mut running: Vec<_> = claimed.iter().map(complete).collect();
        poll_fn(|context| {
            let mut failed = None;
            running.retain_mut(|one| match one.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(outcome) => {
                    failed = failed.take().or(outcome.err());
                    false
                }
            });
            match failed {
                Some(error) => Poll::Ready(Err(error.into())),
                None if running.is_empty() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// Takes up to `most` of what is left to do.
pub(crate) fn take(left: &AtomicUsize, most: usize) -> Option<usize> {
    let mut share = 0;
    let take = |left: usize| {
        share = left.min(most);
        (share > 0).then(|| left - share)
    };
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| share)
}

/// An idle engine with one worker that waits for work.
pub(crate) struct Probe {
    bed: Bed,
    started: mpsc::Receiver<Result<(Instant, Handle)>>,
}

/// What one execution cost, in microseconds.
pub(crate) struct Latencies {
    pub submit: f64,
    pub start: f64,
    pub complete: f64,
}

impl Probe {
    pub(crate) fn new(bed: Bed) -> Self {
        let (start, started) = mpsc::channel(1);
        let worker = bed.clone();
        tokio::spawn(async move {
            while !start.is_closed() {
                let claimed = worker.claim(0, 1, Duration::from_secs(1)).await;
                let at = Instant::now();
                let told = match claimed {
                    Ok(claimed) => match claimed.into_iter().next() {
                        Some(one) => start.send(Ok((at, one.handle))).await,
                        None => Ok(()),
                    },
                    Err(error) => start.send(Err(error)).await,
                };
                if told.is_err() {
                    return;
                }
            }
        });
        Self { bed, started }
    }

    /// Submits one execution, waits for its start and completes it, at rest before each write that
    /// is measured.
    pub(crate) async fn once(&mut self, rest: Duration) -> Result<Latencies> {
        tokio::time::sleep(rest).await;
        let before = Instant::now();
        self.bed.submit(1).await?;
        let submit = micros(before.elapsed());
        let (at, handle) = self.started.recv().await.context("the worker has gone")??;
        let start = micros(at.duration_since(before));
        tokio::time::sleep(rest).await;
        let before = Instant::now();
        self.bed.backend.complete(&handle, None).await?;
        Ok(Latencies { submit, start, complete: micros(before.elapsed()) })
    }
}

pub(crate) fn thousands(count: usize) -> String {
    match count {
        1_000_000.. => format!("{},000,000", count / 1_000_000),
        _ => format!("{},000", count / 1000),
    }
}
