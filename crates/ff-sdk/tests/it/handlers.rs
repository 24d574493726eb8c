//! Arguments, answers and failures of handlers.

use std::time::Duration;

use ff_core::contracts::{EventType, Submission};
use ff_core::engine_backend::EngineBackend;
use ff_core::policy::{Backoff, ExecutionPolicy};
use ff_core::state::{AttemptType, PublicState};
use ff_sdk::{
    Attempt, Ctx, Failure, Input, Outcome, Payload, State, Tags, Task, UnknownKind, Worker,
};
use serde::{Deserialize, Serialize};

use crate::bed::{Bed, Running, bed};

#[derive(Serialize, Deserialize, Clone)]
struct Order {
    id: u64,
    email: String,
}

const CHECKOUT: Task<Order, String> = Task::new("checkout");

/// Runs one execution of a worker to its end.
async fn run(
    bed: &Bed,
    worker: Worker,
    kind: &str,
    payload: &str,
) -> (String, PublicState, String) {
    let id = bed.submit(kind, payload).await;
    let running = Running::start(worker);
    let end = bed.finished(&id).await;
    running.stop().await;
    let failure = match (end.failure_category, end.failure_reason) {
        (Some(category), Some(reason)) => format!("{category}: {reason}"),
        _ => String::new(),
    };
    (bed.result(&id).await, end.public_state, failure)
}

#[tokio::test]
async fn arguments_are_taken_by_position_and_the_answer_is_json() {
    let bed = bed().await;
    let handler = |ctx: Ctx,
                   State(shop): State<String>,
                   attempt: Attempt,
                   Input(order): Input<Order>| async move {
        assert_eq!(attempt, Attempt { index: 0, attempt_type: AttemptType::Initial });
        assert_eq!((ctx.kind(), ctx.lane().as_str(), ctx.attempt()), ("checkout", "default", 0));
        Outcome::Ok(format!("{shop} sold {} to {}", order.id, order.email))
    };
    let worker = bed.worker().task(CHECKOUT, handler).state("shop".to_owned());
    let order = r#"{"id":7,"email":"ada"}"#;
    let (result, state, _) = run(&bed, worker, "checkout", order).await;
    assert_eq!((result.as_str(), state), (r#""shop sold 7 to ada""#, PublicState::Completed));
}

#[tokio::test]
async fn tags_and_raw_payloads_are_arguments_too() {
    let bed = bed().await;
    let handler = |Tags(tags): Tags, Payload(bytes): Payload| async move {
        Outcome::Ok(format!("{} {}", tags["app.customer"], bytes.len()))
    };
    let item = Submission::new("default", "raw").payload([0xff, 0xfe]).tag("app.customer", "42");
    let id = bed.engine.submit(vec![item]).await.unwrap()[0].execution_id().unwrap().clone();
    let running = Running::start(bed.worker().handle("raw", handler));
    bed.finished(&id).await;
    running.stop().await;
    assert_eq!(bed.result(&id).await, r#""42 2""#);
}

#[tokio::test]
async fn a_handler_without_arguments_and_without_an_answer() {
    let bed = bed().await;
    let worker = bed.worker().handle("ping", || async { Outcome::Ok(()) });
    assert_eq!(
        run(&bed, worker, "ping", "").await,
        (String::new(), PublicState::Completed, String::new())
    );
}

#[tokio::test]
async fn bad_input_is_fatal_and_says_what_is_wrong() {
    let bed = bed().await;
    let worker =
        bed.worker().task(CHECKOUT, |Input(_): Input<Order>| async { Outcome::Ok(String::new()) });
    let (_, state, failure) = run(&bed, worker, "checkout", r#"{"id":7}"#).await;
    assert_eq!(state, PublicState::Failed);
    assert!(failure.starts_with("invalid_input: the input is not a "), "{failure}");
    assert!(failure.contains("missing field `email`"), "{failure}");
}

#[tokio::test]
async fn a_question_mark_retries_and_a_fatal_failure_does_not() {
    let bed = bed().await;
    let flaky = |attempt: Attempt| async move {
        if attempt.index < 2 {
            "x".parse::<u32>()?;
        }
        Outcome::Ok(attempt.index)
    };
    let fatal = || async { Outcome::<()>::Err(Failure::fatal("no_email", "there is no e-mail")) };
    let running = Running::start(bed.worker().handle("flaky", flaky).handle("fatal", fatal));
    let mut policy = ExecutionPolicy::default();
    policy.retry_policy.backoff = Backoff::Fixed { delay_ms: 1_000 };
    let item = Submission::new("default", "flaky").policy(policy);
    let id = bed.engine.submit(vec![item]).await.unwrap()[0].execution_id().unwrap().clone();
    for version in [3, 6] {
        while bed.snapshot(&id).await.version < version {
            bed.happened(&id, EventType::RetryScheduled).await;
            tokio::task::yield_now().await;
        }
        bed.advance(Duration::from_secs(1)).await;
    }
    assert_eq!(bed.finished(&id).await.retry_count, 2);
    assert_eq!(bed.result(&id).await, "2");

    let id = bed.submit("fatal", "").await;
    let end = bed.finished(&id).await;
    running.stop().await;
    assert_eq!(end.attempts.len(), 1);
    assert_eq!(end.failure_reason.as_deref(), Some("there is no e-mail"));
    assert_eq!(end.failure_category.as_deref(), Some("no_email"));
}

#[tokio::test]
async fn a_panic_is_a_failure_that_is_retried() {
    let bed = bed().await;
    let handler = |attempt: Attempt| async move {
        assert!(attempt.index > 0, "the first attempt breaks");
        Outcome::Ok(())
    };
    let id = bed.submit("shaky", "").await;
    let running = Running::start(bed.worker().handle("shaky", handler));
    bed.happened(&id, EventType::RetryScheduled).await;
    let first = bed.snapshot(&id).await.attempts[0].clone();
    assert_eq!(first.failure_category.as_deref(), Some("panic"));
    assert_eq!(
        first.failure_reason.as_deref(),
        Some("the handler panicked: the first attempt breaks")
    );
    bed.advance(Duration::from_secs(60)).await;
    assert_eq!(bed.finished(&id).await.public_state, PublicState::Completed);
    running.stop().await;
}

#[tokio::test]
async fn unknown_kinds_fail_clearly_or_are_put_back() {
    let bed = bed().await;
    let worker = |bed: &Bed| bed.worker().handle("known", || async { Outcome::Ok(()) });
    let (_, state, failure) = run(&bed, worker(&bed), "other", "").await;
    let expected = "unknown_kind: no handler for the kind \"other\"; this worker has known";
    assert_eq!((state, failure.as_str()), (PublicState::Failed, expected));

    let id = bed.submit("other", "").await;
    let release = UnknownKind::Release(Duration::from_secs(10));
    let running = Running::start(worker(&bed).unknown_kind(release));
    bed.happened(&id, EventType::Delayed).await;
    running.stop().await;
    let running = Running::start(bed.worker().handle("other", || async { Outcome::Ok(()) }));
    bed.advance(Duration::from_secs(10)).await;
    let end = bed.finished(&id).await;
    running.stop().await;
    assert_eq!((end.public_state, end.retry_count), (PublicState::Completed, 0));
}

#[tokio::test]
async fn a_result_that_is_too_large_fails_for_good() {
    let bed = bed().await;
    let worker = bed.worker().handle("big", || async { Outcome::Ok("x".repeat(2 << 20)) });
    let (_, state, failure) = run(&bed, worker, "big", "").await;
    assert_eq!(state, PublicState::Failed);
    assert!(
        failure.starts_with("invalid_result: the engine does not take the result"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_worker_that_is_set_up_wrong_does_not_start() {
    let bed = bed().await;
    let nothing = || async { Outcome::Ok(()) };
    let wants_state = |State(_): State<u8>| async { Outcome::Ok(()) };
    for (worker, message) in [
        (bed.worker(), "the worker has no handler"),
        (
            bed.worker().handle("a", nothing).handle("a", nothing),
            "two handlers are given for the kind \"a\"",
        ),
        (
            bed.worker().handle("a", wants_state).state(7_u16),
            "a handler asks for State<u8>, but the worker was given none",
        ),
        (bed.worker().handle("a", nothing).lane(""), "lane id is empty"),
        (
            bed.worker().handle("a", nothing).concurrency(0),
            "a worker needs a concurrency of at least 1",
        ),
        (
            bed.worker().handle("a", nothing).lease(Duration::from_millis(1)),
            "a lease of 1ms is not within 100ms to 86400s",
        ),
    ] {
        let error = worker.run_until(std::future::pending()).await.unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), ("invalid_config", message));
    }
}

#[tokio::test]
async fn progress_is_shown_while_the_handler_runs() {
    let bed = bed().await;
    let (shown, mut seen) = tokio::sync::mpsc::channel::<()>(1);
    let (go_on, wait) = tokio::sync::watch::channel(false);
    let handler = move |ctx: Ctx| {
        let (shown, mut wait) = (shown.clone(), wait.clone());
        async move {
            ctx.progress(40, "two of five").await?;
            shown.send(()).await?;
            wait.wait_for(|go_on| *go_on).await?;
            Outcome::Ok(())
        }
    };
    let id = bed.submit("slow", "").await;
    let running = Running::start(bed.worker().handle("slow", handler));
    seen.recv().await.unwrap();
    let progress = bed.snapshot(&id).await.progress.unwrap();
    assert_eq!((progress.percent, progress.message.as_deref()), (Some(40), Some("two of five")));
    go_on.send(true).unwrap();
    bed.finished(&id).await;
    running.stop().await;
}
