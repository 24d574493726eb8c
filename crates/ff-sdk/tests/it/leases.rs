//! Leases are kept, and whoever loses one stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ff_core::contracts::RevokeLeaseArgs;
use ff_core::engine_backend::EngineBackend;
use ff_core::state::PublicState;
use ff_core::types::WorkerInstanceId;
use ff_sdk::{Ctx, Outcome, Worker};
use tokio::sync::{mpsc, watch};

use crate::bed::{Bed, LEASE, Running, bed, reached};

/// A handler that says when it begins, when it is told to stop and when it is dropped, and ends
/// when it is let go.
struct Watched {
    heard: mpsc::UnboundedReceiver<&'static str>,
    go_on: watch::Sender<bool>,
}

impl Watched {
    fn new(worker: Worker, heeds: bool) -> (Self, Worker) {
        let (say, heard) = mpsc::unbounded_channel();
        let (go_on, wait) = watch::channel(false);
        let handler = move |ctx: Ctx| {
            let (say, mut wait) = (say.clone(), wait.clone());
            async move {
                let dropped = OnDrop(say.clone());
                say.send("begun").unwrap();
                let stopped = tokio::select! {
                    _ = wait.wait_for(|go_on| *go_on) => false,
                    () = ctx.cancelled() => true,
                };
                if stopped {
                    say.send("told to stop").unwrap();
                    if !heeds {
                        std::future::pending::<()>().await;
                    }
                }
                std::mem::forget(dropped);
                Outcome::Ok(ctx.attempt())
            }
        };
        (Self { heard, go_on }, worker.handle("watched", handler))
    }

    async fn hears(&mut self, what: &str) {
        assert_eq!(self.heard.recv().await, Some(what));
    }
}

struct OnDrop(mpsc::UnboundedSender<&'static str>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

fn watched(bed: &Bed, heeds: bool) -> (Watched, Running) {
    let (mut handler, worker) = Watched::new(bed.worker(), heeds);
    let running = Running::start(worker);
    handler.hears_nothing();
    (handler, running)
}

impl Watched {
    fn hears_nothing(&mut self) {
        assert!(self.heard.try_recv().is_err());
    }
}

#[tokio::test]
async fn a_lease_is_kept_for_as_long_as_its_handler_runs() {
    let bed = bed().await;
    let (mut handler, running) = watched(&bed, true);
    let id = bed.submit("watched", "").await;
    handler.hears("begun").await;
    for renewal in 1..=12 {
        bed.advance(LEASE / 3).await;
        reached(&bed.spy.renewals, renewal).await;
    }
    handler.hears_nothing();
    handler.go_on.send(true).unwrap();
    let end = bed.finished(&id).await;
    running.stop().await;
    assert_eq!((end.public_state, end.attempts.len()), (PublicState::Completed, 1));
}

#[tokio::test]
async fn an_execution_that_is_cancelled_stops_its_handler() {
    let bed = bed().await;
    let (mut handler, running) = watched(&bed, true);
    let id = bed.submit("watched", "").await;
    handler.hears("begun").await;
    bed.client.cancel(&id, "not wanted").await.unwrap();
    handler.hears_nothing();
    bed.advance(LEASE / 3).await;
    handler.hears("told to stop").await;
    running.stop().await;
    assert_eq!(bed.snapshot(&id).await.public_state, PublicState::Cancelled);
    assert_eq!(bed.result(&id).await, "");
}

#[tokio::test]
async fn a_handler_that_does_not_heed_is_dropped_soon_after() {
    let bed = bed().await;
    let (mut handler, running) = watched(&bed, false);
    let id = bed.submit("watched", "").await;
    handler.hears("begun").await;
    let args = RevokeLeaseArgs {
        execution_id: id.clone(),
        expected_lease_id: None,
        worker_instance_id: WorkerInstanceId::new(""),
        reason: "asked for".into(),
    };
    bed.engine.revoke_lease(args).await.unwrap();
    // The worker has slots left and takes it again.
    handler.hears("begun").await;
    bed.advance(LEASE / 3).await;
    handler.hears("told to stop").await;
    bed.advance(LEASE / 10).await;
    handler.hears("dropped").await;
    handler.go_on.send(true).unwrap();
    assert_eq!(bed.finished(&id).await.public_state, PublicState::Completed);
    running.stop().await;
}

#[tokio::test]
async fn without_renewals_the_worker_stops_by_its_own_clock_before_the_lease_ends() {
    let bed = bed().await;
    bed.spy.fail_renewals.store(usize::MAX, Ordering::SeqCst);
    let (mut handler, running) = watched(&bed, true);
    let id = bed.submit("watched", "").await;
    handler.hears("begun").await;
    bed.advance(LEASE * 4 / 5 - Duration::from_millis(1)).await;
    reached(&bed.spy.renewals, 1).await;
    handler.hears_nothing();
    assert!(bed.snapshot(&id).await.lease.is_some());
    bed.advance(Duration::from_millis(1)).await;
    handler.hears("told to stop").await;
    // It was told early enough: what it answers then is still accepted.
    let end = bed.finished(&id).await;
    running.stop().await;
    assert_eq!((end.public_state, end.attempts.len()), (PublicState::Completed, 1));
}

#[tokio::test]
async fn a_renewal_that_fails_is_tried_again_in_time() {
    let bed = bed().await;
    bed.spy.fail_renewals.store(2, Ordering::SeqCst);
    let (mut handler, running) = watched(&bed, true);
    let id = bed.submit("watched", "").await;
    handler.hears("begun").await;
    bed.advance(LEASE / 3).await;
    for renewal in 1..=3 {
        reached(&bed.spy.renewals, renewal).await;
        bed.advance(Duration::from_millis(100)).await;
    }
    bed.advance(LEASE * 2 / 3 - Duration::from_secs(1)).await;
    handler.hears_nothing();
    handler.go_on.send(true).unwrap();
    assert_eq!(bed.finished(&id).await.attempts.len(), 1);
    running.stop().await;
}

/// The runtime has one thread, and the handler blocks it: the lease is kept all the same.
#[tokio::test(flavor = "current_thread")]
async fn a_handler_that_blocks_every_thread_keeps_its_lease() {
    let bed = Arc::new(bed().await);
    let (clock, renewals) = (bed.clock.clone(), bed.spy.renewals.subscribe());
    let handler = move || {
        let (clock, mut renewals) = (clock.clone(), renewals.clone());
        async move {
            let watching = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for renewal in 1..=6 {
                    clock.advance(LEASE / 3);
                    let renewed = renewals.wait_for(|count| *count >= renewal);
                    runtime.block_on(renewed).unwrap();
                }
            });
            watching.join().unwrap();
            Outcome::Ok(())
        }
    };
    let id = bed.submit("blocking", "").await;
    let running = Running::start(bed.worker().handle("blocking", handler));
    let end = bed.finished(&id).await;
    running.stop().await;
    assert_eq!((end.public_state, end.attempts.len()), (PublicState::Completed, 1));
}

#[tokio::test]
async fn what_a_stale_handler_answers_is_refused() {
    let bed = bed().await;
    let (mut handler, running) = watched(&bed, true);
    let id = bed.submit("watched", "").await;
    handler.hears("begun").await;
    bed.spy.fail_renewals.store(usize::MAX, Ordering::SeqCst);
    // It ends before the worker hears of it.
    bed.client.cancel(&id, "not wanted").await.unwrap();
    handler.go_on.send(true).unwrap();
    bed.spy.reports.subscribe().wait_for(|sizes| !sizes.is_empty()).await.unwrap();
    running.stop().await;
    assert_eq!(bed.snapshot(&id).await.public_state, PublicState::Cancelled);
    assert_eq!(bed.result(&id).await, "");
}
