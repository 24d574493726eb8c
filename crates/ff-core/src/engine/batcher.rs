//! Feeds waiting operations to the store: whatever queued up while the last commit was flushing
//! goes into the next one. A lone caller pays no delay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Queue;
use crate::engine_error::StoreError;
use crate::store::{Batch, Job, Store};

/// How often one batch is decided anew after a conflict before its callers are told.
const TRIES: u32 = 3;

/// Callers that were answered together come back together: a writer with a thread of its own
/// waits for them while they keep coming, at most this long and far shorter than a flush.
const GATHER_AT_MOST: Duration = Duration::from_micros(250);
/// No caller came for this long: whoever is not here is busy elsewhere.
const GATHER_QUIET: Duration = Duration::from_micros(25);

/// A thread that sleeps needs longer to wake up than most callers need to come back, so a writer
/// looks around for this long before it lies down.
const STAY_AWAKE: Duration = Duration::from_micros(150);

/// How a pump runs.
#[derive(Clone, Copy, Debug)]
pub struct Pumping {
    pub max_batch: usize,
    /// The pump has a thread of its own, which it may block for a moment.
    pub own_thread: bool,
}

/// Runs until the engine is dropped or told to stop, and then until the queue is empty.
pub async fn pump(
    store: Arc<dyn Store>,
    mut queue: Queue,
    pumping: Pumping,
    stop: impl Future<Output = ()>,
) {
    let Pumping { max_batch, own_thread } = pumping;
    let mut waiting = Vec::new();
    let mut last = 0;
    let mut stop = std::pin::pin!(stop);
    loop {
        if own_thread && last > 0 {
            stay_awake(&queue);
            if queue.is_empty() {
                store.idle();
            }
        }
        let received = tokio::select! {
            biased;
            () = &mut stop => break,
            received = queue.recv_many(&mut waiting, max_batch) => received,
        };
        if received == 0 {
            return;
        }
        // A lone caller never waits: only after a batch of several are there others to expect.
        if own_thread && last > 1 {
            gather(&mut queue, &mut waiting, last.min(max_batch));
        }
        last = waiting.len();
        run_all(&*store, &mut waiting, max_batch).await;
    }
    queue.close();
    while queue.recv_many(&mut waiting, max_batch).await > 0 {
        run_all(&*store, &mut waiting, max_batch).await;
    }
}

fn stay_awake(queue: &Queue) {
    let started = Instant::now();
    while queue.is_empty() && started.elapsed() < STAY_AWAKE {
        std::thread::yield_now();
    }
}

/// Waits until as many have come as were answered last.
fn gather(queue: &mut Queue, waiting: &mut Vec<Job>, expected: usize) {
    let started = Instant::now();
    let mut heard = started;
    while waiting.len() < expected {
        let now = Instant::now();
        if let Ok(job) = queue.try_recv() {
            waiting.push(job);
            heard = now;
        } else if now - heard > GATHER_QUIET || now - started > GATHER_AT_MOST {
            return;
        } else {
            std::thread::yield_now();
        }
    }
}

async fn run_all(store: &dyn Store, waiting: &mut Vec<Job>, max_batch: usize) {
    while !waiting.is_empty() {
        let jobs = take_batch(waiting, max_batch);
        run(store, Batch::new(jobs)).await;
    }
}

/// The next jobs in order, as many as fit into one transaction and at least one.
fn take_batch(waiting: &mut Vec<Job>, max_batch: usize) -> Vec<Job> {
    let mut weight = 0;
    let fits = waiting.iter().take_while(|job| {
        let first = weight == 0;
        weight += job.weight().max(1);
        first || weight <= max_batch
    });
    let count = fits.count();
    waiting.drain(..count).collect()
}

async fn run(store: &dyn Store, mut batch: Batch) {
    match transact(store, &mut batch).await {
        Ok(()) => batch.answer(),
        // An unknown outcome must not be tried again behind the callers' backs, and a store that
        // is closed or busy is so for all of them.
        Err(error @ (StoreError::Unknown(_) | StoreError::Closed | StoreError::Retry(_))) => {
            batch.refuse(&error, store.name());
        }
        Err(error) if batch.len() == 1 => batch.refuse(&error, store.name()),
        // Alone, each of them shows whether it is the guilty one.
        Err(error) => {
            tracing::warn!(store = store.name(), %error, jobs = batch.len(), "batch failed");
            for mut single in batch.split() {
                match transact(store, &mut single).await {
                    Ok(()) => single.answer(),
                    Err(error) => single.refuse(&error, store.name()),
                }
            }
        }
    }
}

async fn transact(store: &dyn Store, batch: &mut Batch) -> Result<(), StoreError> {
    let mut tries = 1;
    loop {
        match store.transact(batch).await {
            Err(StoreError::Conflict(_) | StoreError::Retry(_)) if tries < TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}
