//! The client: typed starts, results, cancellation and events.

use std::sync::Arc;
use std::time::Duration;

use ff_core::contracts::{EventFilter, EventType};
use ff_core::engine::StartAt;
use ff_core::state::PublicState;
use ff_sdk::{Client, Error, Failure, Input, Outcome, Retry, Task};

use crate::bed::{Running, bed};

const SQUARE: Task<i64, i64> = Task::new("square").lane("sums").timeout(Duration::from_secs(9));

async fn square(Input(number): Input<i64>) -> Outcome<i64> {
    let squared = number.checked_mul(number);
    squared.ok_or_else(|| Failure::fatal("overflow", format!("{number} is too large")))
}

#[tokio::test]
async fn a_started_task_gives_its_typed_result() {
    let bed = bed().await;
    let running = Running::start(bed.worker().lane("sums").task(SQUARE, square));
    let run = bed.client.start(SQUARE, &12).tag("app.by", "ada").priority(3).await.unwrap();
    assert!(run.created());
    assert_eq!(run.result().await.unwrap(), 144);
    let snapshot = run.describe().await.unwrap();
    assert_eq!((snapshot.lane_id.as_str(), snapshot.priority), ("sums", 3));
    assert_eq!(snapshot.payload_encoding.as_deref(), Some("json"));

    let error = bed.client.start(SQUARE, &i64::MAX).await.unwrap().result().await.unwrap_err();
    let Error::NotCompleted { state, category, reason, .. } = error else { panic!("{error}") };
    assert_eq!((state, category.as_deref()), (PublicState::Failed, Some("overflow")));
    assert_eq!(reason.unwrap(), format!("{} is too large", i64::MAX));
    running.stop().await;
}

#[tokio::test]
async fn the_same_key_gives_the_first_run() {
    let bed = bed().await;
    let first = bed.client.start(SQUARE, &3).idempotency_key("k").await.unwrap();
    let again = bed.client.start(SQUARE, &3).idempotency_key("k").await.unwrap();
    assert_eq!((first.id(), again.created()), (again.id(), false));
    let other = bed.client.start(SQUARE, &4).idempotency_key("k").await.unwrap_err();
    assert_eq!((other.code(), other.retryable()), ("idempotency_key_reused", false));
}

#[tokio::test]
async fn a_policy_is_sent_along() {
    let bed = bed().await;
    let start = bed.client.start(SQUARE, &3).retry(Retry::never()).requires("gpu");
    let policy = start.into_submission().unwrap().policy.unwrap();
    assert_eq!(policy.retry_policy.max_retries, 0);
    assert_eq!(policy.timeout_policy.attempt_timeout_ms, Some(9_000));
    assert!(policy.routing_requirements.required_capabilities.contains("gpu"));
}

#[tokio::test]
async fn a_cancelled_run_says_so() {
    let bed = bed().await;
    let run = bed.client.start(SQUARE, &3).delay(Duration::from_secs(60)).await.unwrap();
    run.cancel("not wanted").await.unwrap();
    let error = run.result().await.unwrap_err();
    assert_eq!(error.to_string(), format!("execution {} is cancelled: not wanted", run.id()));
}

#[tokio::test]
async fn events_are_followed_from_a_cursor() {
    let bed = bed().await;
    let run = bed.client.start(SQUARE, &3).await.unwrap();
    let mut events = bed.client.events(EventFilter::default(), StartAt::Oldest).await.unwrap();
    let submitted = events.next().await.unwrap();
    assert_eq!(submitted.event_type, EventType::Submitted);
    let running = Running::start(bed.worker().lane("sums").task(SQUARE, square));
    assert_eq!(run.result().await.unwrap(), 9);
    running.stop().await;
    let start = StartAt::After(submitted.cursor);
    let event_types = vec![EventType::Claimed, EventType::Completed];
    let filter = EventFilter { event_types, ..EventFilter::default() };
    let mut events = bed.client.events(filter, start).await.unwrap();
    let seen = [events.next().await.unwrap(), events.next().await.unwrap()];
    assert_eq!(seen.map(|event| event.event_type), [EventType::Claimed, EventType::Completed]);
}

#[tokio::test]
async fn a_client_of_a_namespace_sees_only_that() {
    let bed = bed().await;
    let run = bed.client.start(SQUARE, &3).await.unwrap();
    let tenant = Client::embedded_in(Arc::clone(&bed.engine) as _, "tenant");
    assert!(tenant.describe(run.id()).await.unwrap().is_none());
    let own = tenant.start(SQUARE, &4).await.unwrap();
    assert_eq!(own.describe().await.unwrap().namespace.as_str(), "tenant");
}
