//! The test kit, used as the tests of a program would.

use std::time::Duration;

use ff_sdk::testing::TestKit;
use ff_sdk::{Attempt, Ctx, Failure, Input, Outcome, Retry, Task, Worker};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const PARENT: Task<u32, u32> = Task::new("parent");
const CHILD: Task<u32, u32> = Task::new("child").lane("children");
const FLAKY: Task<(), u32> = Task::new("flaky").retry(Retry::fixed(DAY).max(30));
const BROKEN: Task<(), ()> = Task::new("broken").retry(Retry::never());

async fn parent(ctx: Ctx, Input(count): Input<u32>) -> Outcome<u32> {
    let mut sum = 0;
    for number in 0..count {
        sum += ctx.spawn(format!("child-{number}"), CHILD, &number).await?.result().await?;
    }
    Ok(sum)
}

async fn child(Input(number): Input<u32>) -> Outcome<u32> {
    Ok(number * 10)
}

async fn flaky(attempt: Attempt, Input(()): Input<()>) -> Outcome<u32> {
    match attempt.index {
        index @ 20.. => Ok(index),
        _ => Err(Failure::retry("not_yet", "it is too early")),
    }
}

async fn broken(Input(()): Input<()>) -> Outcome<()> {
    panic!("it never works")
}

fn kit() -> TestKit {
    let worker = |client| {
        let worker = Worker::new(client).task(PARENT, parent).task(CHILD, child);
        worker.task(FLAKY, flaky).task(BROKEN, broken)
    };
    TestKit::new(worker).unwrap()
}

#[tokio::test]
async fn a_handler_may_wait_for_what_it_has_started() {
    let kit = kit();
    assert_eq!(kit.run(PARENT, &4).await.unwrap(), 60);
    assert_eq!(kit.count("child").await.unwrap(), 4);
    kit.assert_submitted(CHILD, &3).await.unwrap();
}

#[tokio::test]
#[should_panic(expected = "child 9 was not submitted, but:\n  parent 1\n  child 0")]
async fn what_was_not_submitted_is_shown_with_what_was() {
    let kit = kit();
    kit.run(PARENT, &1).await.unwrap();
    kit.assert_submitted(CHILD, &9).await.unwrap();
}

#[tokio::test]
async fn time_is_skipped_and_counted() {
    let kit = kit();
    let start = kit.now();
    assert_eq!(kit.run(FLAKY, &()).await.unwrap(), 20);
    assert_eq!(kit.now().since(start), 20 * DAY);
}

#[tokio::test]
async fn time_passes_in_the_order_of_what_falls_due() {
    let kit = kit();
    let run = kit.client().start(FLAKY, &()).await.unwrap();
    kit.advance(5 * DAY).await.unwrap();
    assert_eq!(run.describe().await.unwrap().retry_count, 6);
    kit.advance(15 * DAY).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 20);
}

#[tokio::test]
async fn failures_and_endless_waits_are_errors() {
    let kit = kit();
    let failed = kit.run(BROKEN, &()).await.unwrap_err();
    assert_eq!(failed.code(), "not_completed");
    assert!(failed.to_string().ends_with("the handler panicked: it never works"), "{failed}");
    let run = kit.client().start(CHILD, &1).requires("gpu").await.unwrap();
    let stuck = kit.result(&run).await.unwrap_err();
    assert!(stuck.to_string().contains("does not end by itself: "), "{stuck}");
}
