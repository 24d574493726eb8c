//! What a step has done is not done again, whatever ends the handler in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use ff_core::contracts::EventType;
use ff_core::state::PublicState;
use ff_sdk::testing::TestKit;
use ff_sdk::{Ctx, Input, Outcome, Retry, State, Task, Worker};

use crate::bed::{Running, bed};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const ORDER: Task<u32, (String, String)> =
    Task::new("order").retry(Retry::fixed(Duration::from_secs(1)).max(5));
const MONTH: Task<(), usize> = Task::new("month");
const SAME: Task<(), (u32, u32)> = Task::new("same");

/// Counts what was really done.
#[derive(Clone, Default)]
struct Done {
    charged: Arc<AtomicUsize>,
    sent: Arc<AtomicUsize>,
}

async fn order(
    ctx: Ctx,
    State(done): State<Done>,
    Input(id): Input<u32>,
) -> Outcome<(String, String)> {
    let charge = ctx.step("charge", || async {
        let number = done.charged.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(format!("charge {number} of {id}"))
    });
    let charge = charge.await?;
    let parcel = ctx.step("send", || async {
        let tries = done.sent.fetch_add(1, Ordering::SeqCst) + 1;
        ensure_third(tries)?;
        Ok(format!("parcel of try {tries}"))
    });
    Ok((charge, parcel.await?))
}

fn ensure_third(tries: usize) -> anyhow::Result<()> {
    ensure!(tries == 3, "the warehouse is closed");
    Ok(())
}

/// Sleeps thirty times and counts how often it was begun.
async fn month(ctx: Ctx, State(done): State<Done>, Input(()): Input<()>) -> Outcome<usize> {
    done.sent.fetch_add(1, Ordering::SeqCst);
    for day in 0..30 {
        let charge = || async { Ok(done.charged.fetch_add(1, Ordering::SeqCst)) };
        ctx.step(format!("charge-{day}"), charge).await?;
        ctx.sleep(format!("night-{day}"), DAY).await?;
    }
    Ok(done.charged.load(Ordering::SeqCst))
}

async fn same(ctx: Ctx, Input(()): Input<()>) -> Outcome<(u32, u32)> {
    let first = ctx.step("name", || async { Ok(1) }).await?;
    let second = ctx.step("name", || async { Ok(2) }).await?;
    Ok((first, second))
}

fn worker(worker: Worker, done: &Done) -> Worker {
    let worker = worker.state(done.clone());
    worker.task(ORDER, order).task(MONTH, month).task(SAME, same)
}

fn kit(done: &Done) -> TestKit {
    TestKit::new(|client| worker(Worker::new(client), done)).unwrap()
}

#[tokio::test]
async fn a_step_that_is_done_is_not_done_again_by_later_attempts() {
    let done = Done::default();
    let result = kit(&done).run(ORDER, &7).await.unwrap();
    assert_eq!(result, ("charge 1 of 7".to_owned(), "parcel of try 3".to_owned()));
    assert_eq!(done.charged.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_handler_sleeps_for_a_month_in_no_time() {
    let done = Done::default();
    let kit = kit(&done);
    let start = kit.now();
    assert_eq!(kit.run(MONTH, &()).await.unwrap(), 30);
    assert_eq!(kit.now().since(start), 30 * DAY);
    assert_eq!(done.sent.load(Ordering::SeqCst), 31, "it begins again after each night");
}

#[tokio::test]
async fn a_name_stands_for_one_result() {
    assert_eq!(kit(&Done::default()).run(SAME, &()).await.unwrap(), (1, 1));
}

#[tokio::test]
async fn a_step_whose_type_has_changed_fails_clearly() {
    let shift = |ctx: Ctx| async move {
        let before = ctx.step("number", || async { Ok("seven".to_owned()) }).await;
        assert!(before.is_ok() || ctx.attempt() > 0);
        let after: Outcome<u32> = ctx.step("number", || async { Ok(7) }).await;
        after
    };
    let kit = TestKit::new(|client| Worker::new(client).handle("shift", shift)).unwrap();
    const SHIFT: Task<(), u32> = Task::new("shift");
    let error = kit.run(SHIFT, &()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("what was recorded as step \"number\" is not a u32"), "{text}");
}

#[tokio::test]
async fn a_worker_that_dies_leaves_its_steps_to_the_next() {
    let bed = bed().await;
    let done = Done::default();
    let run = bed.client.start(ORDER, &7).await.unwrap();
    let running = Running::start(worker(bed.worker(), &done));
    bed.happened(run.id(), EventType::RetryScheduled).await;
    running.stop().await;
    let running = Running::start(worker(bed.worker(), &done));
    while bed.snapshot(run.id()).await.public_state != PublicState::Completed {
        bed.advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    running.stop().await;
    assert_eq!(run.result().await.unwrap().0, "charge 1 of 7");
    assert_eq!(done.charged.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_record_that_could_not_be_made_is_made_again_and_the_work_is_not() {
    let bed = bed().await;
    bed.spy.fail_steps.store(2, Ordering::SeqCst);
    let done = Done::default();
    done.sent.store(2, Ordering::SeqCst);
    let run = bed.client.start(ORDER, &7).await.unwrap();
    let running = Running::start(worker(bed.worker(), &done));
    assert_eq!(run.result().await.unwrap().1, "parcel of try 3");
    running.stop().await;
    assert_eq!(done.charged.load(Ordering::SeqCst), 1);
    assert_eq!(bed.snapshot(run.id()).await.attempts.len(), 1);
}

#[tokio::test]
async fn what_a_handler_says_is_heard_in_order_and_over_attempts() {
    let bed = bed().await;
    let handler = |ctx: Ctx| async move {
        for word in ["one", "two"] {
            ctx.stream("token", word).await?;
        }
        ctx.log(format!("attempt {}", ctx.attempt())).await?;
        ensure!(ctx.attempt() > 0, "it fails once");
        anyhow::Ok(())
    };
    const SPEAK: Task<(), ()> = Task::new("speak").retry(Retry::fixed(Duration::ZERO));
    let run = bed.client.start(SPEAK, &()).await.unwrap();
    let mut frames = bed.client.follow(run.id());
    let running = Running::start(bed.worker().handle("speak", handler));
    let mut heard = Vec::new();
    while let Some(frame) = frames.next().await.unwrap() {
        let text = String::from_utf8(frame.payload.to_vec()).unwrap();
        heard.push(format!("{}: {text}", frame.frame_type));
    }
    running.stop().await;
    let said = [
        "token: one",
        "token: two",
        "log: attempt 0",
        "token: one",
        "token: two",
        "log: attempt 1",
    ];
    assert_eq!(heard, said);
}
