//! Feeds waiting operations to the store: whatever queued up while the last commit was flushing
//! goes into the next one. A lone caller pays no delay.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify};

use super::Queue;
use super::supervise::{Restarts, caught};
use crate::engine_error::StoreError;
use crate::store::{Batch, Job, Store};

/// How often one batch is decided anew after a conflict before its callers are told.
const TRIES: u32 = 3;

/// Callers that were answered together come back together: a pump waits for them while they keep
/// coming, at most this long and far shorter than a flush.
const GATHER_AT_MOST: Duration = Duration::from_micros(250);
/// No caller came for this long: whoever is not here is busy elsewhere.
const GATHER_QUIET: Duration = Duration::from_micros(25);

/// A thread that sleeps needs longer to wake up than most callers need to come back, so a writer
/// looks around for this long before it lies down.
const STAY_AWAKE: Duration = Duration::from_micros(150);

/// Nobody came for this long: a burst is over, and whatever the store tidies up now, those who
/// belong to it do not have to wait for it.
pub const QUIET: Duration = Duration::from_millis(1);

/// How a pump runs.
#[derive(Clone, Copy, Debug)]
pub struct Pumping {
    pub max_batch: usize,
    /// The pump has a thread of its own, which it may block for a moment, and a timer.
    pub own_thread: bool,
}

/// The longest pause of a pump that panics: callers wait for it.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs until the engine is dropped or told to stop, and then until the queue is empty.
pub async fn pump(
    store: Arc<dyn Store>,
    mut queue: Queue,
    pumping: Pumping,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    // It must not be waited for again once it has come, also not after a panic.
    let mut stopped = false;
    let mut stop = std::pin::pin!(poll_fn(|context| {
        stopped = stopped || stop.as_mut().poll(context).is_ready();
        if stopped { Poll::Ready(()) } else { Poll::Pending }
    }));
    let mut restarts = Restarts::new("writer", LONGEST_PAUSE);
    while let Err(why) = caught(serve(&*store, &mut queue, pumping, stop.as_mut())).await {
        restarts.pause_after(&why).await;
    }
}

async fn serve(
    store: &dyn Store,
    queue: &mut Queue,
    pumping: Pumping,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) {
    let Pumping { max_batch, own_thread } = pumping;
    let mut waiting = Vec::new();
    let mut last = 0;
    // Something was done since nobody came for long.
    let mut untidy = false;
    loop {
        if untidy {
            stay_awake(queue);
            if queue.is_empty() {
                store.idle(STAY_AWAKE);
            }
        }
        let received = tokio::select! {
            biased;
            () = stop.as_mut() => break,
            received = queue.recv_many(&mut waiting, max_batch) => received,
            () = quiet(), if untidy => {
                store.idle(QUIET);
                untidy = false;
                continue;
            }
        };
        if received == 0 {
            return;
        }
        // A lone caller never waits: only after a batch of several are there others to expect.
        if own_thread && last > 1 {
            gather(queue, &mut waiting, last.min(max_batch));
        }
        last = waiting.len();
        untidy = own_thread;
        run_all(store, &mut waiting, max_batch).await;
    }
    queue.close();
    while queue.recv_many(&mut waiting, max_batch).await > 0 {
        run_all(store, &mut waiting, max_batch).await;
    }
}

/// A queue that several pumps serve, for a store that runs transactions side by side: while one
/// flushes, the next is decided.
pub struct Shared {
    queue: Mutex<Queue>,
    running: AtomicUsize,
    ended: Notify,
}

/// So many operations are worth a transaction beside one that is under way. Fewer wait for it and
/// then share a flush with whoever comes meanwhile: two small commits in a row are slower than one.
const WORTH_ANOTHER: usize = 48;
/// Longer than a flush takes.
const WAIT_AT_MOST: Duration = Duration::from_millis(10);

impl Shared {
    pub fn new(queue: Queue) -> Arc<Self> {
        let (running, ended) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Self { queue: Mutex::new(queue), running, ended })
    }

    /// Waits for the next jobs; false once the engine has gone and nothing is left.
    async fn next(&self, waiting: &mut Vec<Job>, last: usize, max_batch: usize) -> bool {
        let mut queue = self.queue.lock().await;
        if queue.recv_many(waiting, max_batch).await == 0 {
            return false;
        }
        // A transaction that waits for a lock must not hold up those who need none.
        let patience = tokio::time::Instant::now() + WAIT_AT_MOST;
        while self.running.load(Ordering::Acquire) > 0 && waiting.len() < WORTH_ANOTHER {
            tokio::select! {
                () = self.ended.notified() => {}
                () = tokio::time::sleep_until(patience) => break,
                received = queue.recv_many(waiting, max_batch) => {
                    if received == 0 {
                        break;
                    }
                }
            }
        }
        if last > 1 {
            gather_politely(&mut queue, waiting, last.min(max_batch)).await;
        }
        self.running.fetch_add(1, Ordering::AcqRel);
        true
    }
}

/// Ends a turn, also when it panics: the other pumps must not wait for it.
struct Turn<'s>(&'s Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_one();
    }
}

/// One of several pumps on the same queue. Runs until the engine is dropped.
pub async fn pump_shared(store: Arc<dyn Store>, shared: Arc<Shared>, max_batch: usize) {
    let mut restarts = Restarts::new("writer", LONGEST_PAUSE);
    while let Err(why) = caught(serve_shared(&*store, &shared, max_batch)).await {
        restarts.pause_after(&why).await;
    }
}

async fn serve_shared(store: &dyn Store, shared: &Shared, max_batch: usize) {
    let mut waiting = Vec::new();
    let mut last = 0;
    while shared.next(&mut waiting, last, max_batch).await {
        let turn = Turn(shared);
        last = waiting.len();
        run_all(store, &mut waiting, max_batch).await;
        drop(turn);
    }
}

async fn quiet() {
    tokio::time::sleep(QUIET).await;
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

/// The same on a thread that the callers run on too: it lets them run instead of waiting.
async fn gather_politely(queue: &mut Queue, waiting: &mut Vec<Job>, expected: usize) {
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
            tokio::task::yield_now().await;
        }
    }
}

async fn run_all(store: &dyn Store, waiting: &mut Vec<Job>, max_batch: usize) {
    while !waiting.is_empty() {
        let jobs = take_batch(waiting, max_batch);
        run(store, Batch::new(jobs)).await;
        store.answered();
    }
}

/// The next jobs in order, as many as fit into one transaction and at least one.
fn take_batch(waiting: &mut Vec<Job>, max_batch: usize) -> Vec<Job> {
    let mut weight = 0;
    let fits = waiting.iter().take_while(|job| {
        let first = weight == 0;
        weight = job.weight().max(1).saturating_add(weight);
        first || weight <= max_batch
    });
    let count = fits.count();
    waiting.drain(..count).collect()
}

async fn run(store: &dyn Store, mut batch: Batch) {
    match transact(store, &mut batch).await {
        Ok(()) => batch.answer(),
        // An unknown outcome must not be tried again behind the callers' backs, and a store that
        // is closed or cannot be reached is so for all of them.
        Err(error @ (StoreError::Unknown(_) | StoreError::Closed | StoreError::Unavailable(_))) => {
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
        match attempt(store, batch).await {
            Err(StoreError::Conflict(_)) if tries < TRIES => tries += 1,
            // Somebody may hold a lock for long; then it is only for those who need it to wait.
            Err(StoreError::Retry(_)) if tries < if batch.len() > 1 { 2 } else { TRIES } => {
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

/// One try. A panic is an answer too: callers are told, and the pump goes on. Once the batch was
/// decided its commit may have happened.
async fn attempt(store: &dyn Store, batch: &mut Batch) -> Result<(), StoreError> {
    batch.begin();
    let outcome = caught(store.transact(batch)).await.unwrap_or_else(|why| {
        store.distrust();
        let why = format!("the writer panicked: {why}");
        Err(if batch.is_decided() { StoreError::Unknown(why) } else { StoreError::Panicked(why) })
    });
    if let Err(error @ (StoreError::Panicked(_) | StoreError::Unknown(_))) = &outcome {
        tracing::error!(store = store.name(), %error, "a transaction has failed");
    }
    outcome
}
