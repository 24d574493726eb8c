//! An engine that cannot be reached for a while.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ff_core::contracts::Submission;
use ff_core::engine_backend::EngineBackend;
use ff_core::state::PublicState;
use ff_sdk::{Input, Outcome};

use crate::bed::{Running, bed, reached};

#[tokio::test]
async fn claims_that_fail_are_repeated_after_a_pause_and_end_nothing() {
    let bed = bed().await;
    bed.spy.fail_claims.store(5, Ordering::SeqCst);
    let running = Running::start(bed.worker().handle("ping", || async { Outcome::Ok(()) }));
    let id = bed.submit("ping", "").await;
    for claim in 1..=5 {
        reached(&bed.spy.claims, claim).await;
        tokio::task::yield_now().await;
        assert_eq!(*bed.spy.claims.borrow(), claim, "it does not wait");
        bed.advance(Duration::from_secs(5)).await;
    }
    assert_eq!(bed.finished(&id).await.public_state, PublicState::Completed);
    running.stop().await;
}

#[tokio::test]
async fn outcomes_that_could_not_be_told_are_told_again() {
    let bed = bed().await;
    bed.spy.fail_reports.store(3, Ordering::SeqCst);
    let id = bed.submit("ping", "").await;
    let running = Running::start(bed.worker().handle("ping", || async { Outcome::Ok("pong") }));
    for report in 1..=3 {
        let mut reports = bed.spy.reports.subscribe();
        reports.wait_for(|sizes| sizes.len() >= report).await.unwrap();
        // The pause begins after the answer: the clock is moved until it has passed.
        while bed.spy.reports.borrow().len() == report {
            bed.advance(Duration::from_millis(20)).await;
        }
    }
    let end = bed.finished(&id).await;
    running.stop().await;
    assert_eq!((end.public_state, end.attempts.len()), (PublicState::Completed, 1));
    assert_eq!(bed.result(&id).await, r#""pong""#);
}

#[tokio::test]
async fn what_ends_together_is_told_together() {
    let bed = bed().await;
    let handler = |Input(number): Input<u32>| async move { Outcome::Ok(number) };
    let item = |number: u32| Submission::new("default", "count").payload(number.to_string());
    bed.engine.submit((0..640).map(item).collect()).await.unwrap();
    let last = bed.submit("count", "640").await;
    let running = Running::start(bed.worker().concurrency(64).handle("count", handler));
    bed.finished(&last).await;
    running.stop().await;
    let counts = bed.engine.counts().await.unwrap();
    assert_eq!(counts[0].counts[&PublicState::Completed], 641);
    let reports = bed.spy.reports.borrow().len();
    assert!(reports <= 40, "{reports} reports for 11 claims");
}
