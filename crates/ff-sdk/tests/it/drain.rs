//! Shutdown: what runs may finish, what takes too long is put back, nothing is lost.

use std::time::Duration;

use ff_core::contracts::EventType;
use ff_core::state::PublicState;
use ff_sdk::{Ctx, Outcome, Worker};
use tokio::sync::{mpsc, watch};

use crate::bed::{Bed, LEASE, Running, bed};

/// A handler that waits to be let go, and ignores being told to stop.
fn slow(worker: Worker) -> (Worker, mpsc::UnboundedReceiver<u32>, watch::Sender<bool>) {
    let (say, begun) = mpsc::unbounded_channel();
    let (go_on, wait) = watch::channel(false);
    let handler = move |ctx: Ctx| {
        let (say, mut wait) = (say.clone(), wait.clone());
        async move {
            say.send(ctx.attempt()).unwrap();
            wait.wait_for(|go_on| *go_on).await?;
            Outcome::Ok(())
        }
    };
    (worker.handle("slow", handler), begun, go_on)
}

#[tokio::test]
async fn a_shutdown_waits_for_what_is_running_and_takes_nothing_new() {
    let bed = bed().await;
    let (worker, mut begun, go_on) = slow(bed.worker());
    let running = Running::start(worker);
    let first = bed.submit("slow", "").await;
    begun.recv().await.unwrap();
    let stopping = running.begin_stop();
    let second = loop_until_not_claimed(&bed).await;
    assert!(!stopping.is_finished());
    go_on.send(true).unwrap();
    stopping.await.unwrap().unwrap();
    assert_eq!(bed.snapshot(&first).await.public_state, PublicState::Completed);
    assert_eq!(bed.snapshot(&second).await.public_state, PublicState::Waiting);
}

/// Submits until an execution is not taken any more: the worker has heard of its end by then.
async fn loop_until_not_claimed(bed: &Bed) -> ff_core::types::ExecutionId {
    loop {
        let id = bed.submit("slow", "").await;
        let state = bed.snapshot(&id).await.public_state;
        if state == PublicState::Waiting {
            return id;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_takes_too_long_is_put_back_and_goes_on_elsewhere() {
    let bed = bed().await;
    let (worker, mut begun, _hold) = slow(bed.worker().drain(Duration::from_secs(5)));
    let running = Running::start(worker);
    let id = bed.submit("slow", "").await;
    begun.recv().await.unwrap();
    let stopping = running.begin_stop();
    while !stopping.is_finished() {
        // The bound of the drain, then the handler's last grace.
        bed.advance(Duration::from_millis(500)).await;
        tokio::task::yield_now().await;
    }
    stopping.await.unwrap().unwrap();
    bed.happened(&id, EventType::Delayed).await;

    let (worker, mut begun, go_on) = slow(bed.worker());
    go_on.send(true).unwrap();
    let running = Running::start(worker);
    bed.advance(Duration::ZERO).await;
    assert_eq!(begun.recv().await, Some(0), "the same attempt goes on");
    let end = bed.finished(&id).await;
    running.stop().await;
    assert_eq!((end.public_state, end.reclaim_count), (PublicState::Completed, 0));
}

#[tokio::test]
async fn an_idle_worker_stops_at_once() {
    let bed = bed().await;
    let (worker, _begun, _go_on) = slow(bed.worker());
    worker.run_until(async {}).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_is_dropped_leaves_its_leases_to_expire() {
    let bed = bed().await;
    let (worker, mut begun, _go_on) = slow(bed.worker());
    let id = bed.submit("slow", "").await;
    tokio::select! {
        _ = worker.run_until(std::future::pending()) => unreachable!("it has no reason to end"),
        _ = begun.recv() => {}
    }
    bed.advance(LEASE).await;
    bed.happened(&id, EventType::LeaseExpired).await;
    assert_eq!(bed.snapshot(&id).await.reclaim_count, 1);
}
