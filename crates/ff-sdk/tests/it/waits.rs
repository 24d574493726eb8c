//! Handlers that wait hold nothing, and go on with what they waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ff_core::contracts::EventType;
use ff_core::state::PublicState;
use ff_core::token::WaitpointToken;
use ff_sdk::testing::TestKit;
use ff_sdk::{Ctx, Input, Outcome, State, Task, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::bed::{Running, bed};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Serialize, Deserialize)]
struct Decision {
    approved: bool,
    by: String,
}

const APPROVAL: Task<String, String> = Task::new("approval");
const PATIENT: Task<(), Option<u32>> = Task::new("patient");
const BY_LINK: Task<(), u32> = Task::new("by-link");

type Begun = Arc<AtomicUsize>;

async fn approval(
    ctx: Ctx,
    State(begun): State<Begun>,
    Input(what): Input<String>,
) -> Outcome<String> {
    begun.fetch_add(1, Ordering::SeqCst);
    let first: Decision = ctx.wait_for_signal("first").await?;
    let second: Decision = ctx.wait_for_signal("second").await?;
    let approved = first.approved && second.approved;
    Ok(format!("{what}: {approved} by {} and {}", first.by, second.by))
}

async fn patient(ctx: Ctx, Input(()): Input<()>) -> Outcome<Option<u32>> {
    ctx.wait_for_signal_within("answer", DAY).await
}

fn kit(begun: &Begun) -> TestKit {
    let worker = |client| {
        let worker = Worker::new(client).state(begun.clone());
        worker.task(APPROVAL, approval).task(PATIENT, patient)
    };
    TestKit::new(worker).unwrap()
}

fn decision(by: &str) -> Decision {
    Decision { approved: true, by: by.to_owned() }
}

#[tokio::test]
async fn a_handler_begins_again_with_each_signal_and_keeps_those_before() {
    let begun = Begun::default();
    let kit = kit(&begun);
    let run = kit.client().start(APPROVAL, &"a raise".to_owned()).await.unwrap();
    let early = kit.client().signal(run.id(), "first", &decision("ada")).await.unwrap_err();
    assert_eq!(early.code(), "not_found");
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.describe().await.unwrap().public_state, PublicState::Suspended);
    kit.client().signal(run.id(), "first", &decision("ada")).await.unwrap();
    kit.advance(30 * DAY).await.unwrap();
    assert_eq!(run.describe().await.unwrap().public_state, PublicState::Suspended);
    kit.client().signal(run.id(), "second", &decision("bob")).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "a raise: true by ada and bob");
    assert_eq!(begun.load(Ordering::SeqCst), 3);
    assert_eq!(run.describe().await.unwrap().attempts.len(), 1);
}

#[tokio::test]
async fn a_signal_that_does_not_come_is_none() {
    let kit = kit(&Begun::default());
    let start = kit.now();
    assert_eq!(kit.run(PATIENT, &()).await.unwrap(), None);
    assert_eq!(kit.now().since(start), DAY);
    let run = kit.client().start(PATIENT, &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    kit.client().signal(run.id(), "answer", &42).await.unwrap();
    assert_eq!(kit.result(&run).await.unwrap(), Some(42));
}

#[tokio::test]
async fn a_signal_of_another_shape_fails_clearly() {
    let kit = kit(&Begun::default());
    let run = kit.client().start(PATIENT, &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    kit.client().signal(run.id(), "answer", &"forty-two").await.unwrap();
    kit.run_until_idle().await.unwrap();
    let end = run.describe().await.unwrap();
    assert_eq!(end.failure_category.as_deref(), Some("invalid_signal"));
    assert!(end.failure_reason.unwrap().starts_with("the signal \"answer\" does not carry a u32"));
}

#[tokio::test]
async fn whoever_has_the_token_of_a_waitpoint_may_signal_it_before_anybody_waits() {
    let (say, mut tokens) = mpsc::unbounded_channel::<WaitpointToken>();
    let handler = move |ctx: Ctx, Input(()): Input<()>| {
        let say = say.clone();
        async move {
            if !say.is_closed() {
                let made = ctx.waitpoint("answer", DAY).await?;
                say.send(made.token.ok_or_else(|| anyhow::anyhow!("there is no token"))?)?;
            }
            ctx.wait_for_signal("answer").await
        }
    };
    let kit = TestKit::new(|client| Worker::new(client).task(BY_LINK, handler)).unwrap();
    let run = kit.client().start(BY_LINK, &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    let token = tokens.recv().await.unwrap();
    tokens.close();
    kit.client().signal_by_token(token, "answer", &7).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
}

#[tokio::test]
async fn a_waiting_execution_takes_no_slot() {
    let bed = bed().await;
    let worker = bed.worker().concurrency(1).state(Begun::default());
    let running = Running::start(worker.task(APPROVAL, approval).task(PATIENT, patient));
    let first = bed.client.start(APPROVAL, &"x".to_owned()).await.unwrap();
    let second = bed.client.start(PATIENT, &()).await.unwrap();
    bed.happened(first.id(), EventType::Suspended).await;
    bed.happened(second.id(), EventType::Suspended).await;
    bed.client.signal(second.id(), "answer", &1).await.unwrap();
    assert_eq!(second.result().await.unwrap(), Some(1));
    for name in ["first", "second"] {
        // It is handed out again between the two.
        while bed.client.signal(first.id(), name, &decision(name)).await.is_err() {
            bed.happened(first.id(), EventType::Suspended).await;
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(first.result().await.unwrap(), "x: true by first and second");
    running.stop().await;
}
