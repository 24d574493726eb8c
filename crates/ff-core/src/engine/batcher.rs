//! Feeds waiting operations to the store: whatever queued up while the last commit was flushing
//! goes into the next one. Nothing waits on a timer, so a lone caller pays no delay.

use std::sync::Arc;

use super::Queue;
use crate::engine_error::StoreError;
use crate::store::{Batch, Job, Store};

/// How often one batch is decided anew after a conflict before its callers are told.
const TRIES: u32 = 3;

/// Runs until the engine is dropped or told to stop, and then until the queue is empty.
pub async fn pump(
    store: Arc<dyn Store>,
    mut queue: Queue,
    max_batch: usize,
    stop: impl Future<Output = ()>,
) {
    let mut waiting = Vec::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let received = tokio::select! {
            biased;
            received = queue.recv_many(&mut waiting, max_batch) => received,
            () = &mut stop => break,
        };
        if received == 0 {
            return;
        }
        run_all(&*store, &mut waiting, max_batch).await;
    }
    queue.close();
    while queue.recv_many(&mut waiting, max_batch).await > 0 {
        run_all(&*store, &mut waiting, max_batch).await;
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
        // An unknown outcome must not be tried again behind the callers' backs.
        Err(error @ StoreError::Unknown(_)) => batch.refuse(&error, store.name()),
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
