//! Everything that a handler and a client can do, in the same process and through a server: one
//! body for both, so that neither way can lack what the other has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use ff_core::backend::CapabilitySet;
use ff_core::contracts::{
    ClaimArgs, EventFilter, EventType, ListWorkersArgs, SignalEffect, SignalOutcome,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::WorkerOperations;
use ff_core::state::PublicState;
use ff_core::token::WaitpointToken;
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};
use ff_sdk::{Ctx, Failure, Input, Outcome, Retry, State, Task};
use tokio::sync::mpsc;

use crate::bed::Running;
use crate::place::{Place, both_ways};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const ORDER: Task<u32, String> = Task::new("order").retry(Retry::fixed(Duration::ZERO).max(5));
const NAP: Task<(), u32> = Task::new("nap");
const ASK: Task<String, String> = Task::new("ask");
const PATIENT: Task<(), Option<u32>> = Task::new("patient");
const PARENT: Task<u32, u32> = Task::new("parent");
const CHILD: Task<u32, u32> = Task::new("child");
const LONG: Task<(), ()> = Task::new("long");

type Count = Arc<AtomicUsize>;

both_ways!(
    a_step_is_done_once,
    a_sleep_holds_nothing,
    signals_are_waited_for,
    a_signal_may_not_come,
    a_token_is_enough_to_signal,
    what_resumed_an_execution_comes_with_its_claim,
    what_a_handler_says_is_heard,
    progress_is_shown,
    children_are_started_once,
    a_cancelled_handler_is_told,
    many_are_submitted_and_followed,
    a_worker_is_known_while_it_runs,
);

async fn order(ctx: Ctx, State(done): State<Count>, Input(id): Input<u32>) -> Outcome<String> {
    let charge = ctx.step("charge", || async { Ok(done.fetch_add(1, Ordering::SeqCst) + 1) });
    let charge = charge.await?;
    let bytes = ctx.step("bytes", || async { Ok(vec![0u8, 255]) }).await?;
    if ctx.attempt() < 2 {
        return Err(Failure::retry("closed", "the warehouse is closed"));
    }
    Ok(format!("charge {charge} of {id}, {bytes:?}"))
}

async fn a_step_is_done_once(place: Place) {
    let done = Count::default();
    let run = place.client.start(ORDER, &7).await.unwrap();
    let running = Running::start(place.worker().state(done.clone()).task(ORDER, order));
    assert_eq!(run.result().await.unwrap(), "charge 1 of 7, [0, 255]");
    running.stop().await;
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert_eq!(run.describe().await.unwrap().attempts.len(), 3);
}

async fn nap(ctx: Ctx, State(begun): State<Count>, Input(()): Input<()>) -> Outcome<u32> {
    begun.fetch_add(1, Ordering::SeqCst);
    ctx.sleep("first", DAY).await?;
    ctx.sleep("second", 30 * DAY).await?;
    Ok(ctx.attempt())
}

async fn a_sleep_holds_nothing(place: Place) {
    let begun = Count::default();
    let worker = place.worker().concurrency(1).state(begun.clone());
    let run = place.client.start(NAP, &()).await.unwrap();
    let running = Running::start(worker.task(NAP, nap));
    while run.describe().await.unwrap().public_state != PublicState::Completed {
        let asleep = run.describe().await.unwrap().public_state == PublicState::Delayed;
        if asleep {
            place.advance(DAY).await;
        }
        tokio::task::yield_now().await;
    }
    running.stop().await;
    assert_eq!(run.result().await.unwrap(), 0);
    assert_eq!(begun.load(Ordering::SeqCst), 3);
}

async fn ask(ctx: Ctx, Input(what): Input<String>) -> Outcome<String> {
    let by: String = ctx.wait_for_signal("answer").await?;
    Ok(format!("{what}: {by}"))
}

async fn signals_are_waited_for(place: Place) {
    let running = Running::start(place.worker().task(ASK, ask));
    let run = place.client.start(ASK, &"a raise".to_owned()).await.unwrap();
    place.happened(run.id(), EventType::Suspended).await;
    let other = place.client.signal(run.id(), "question", &"why").await.unwrap_err();
    assert_eq!(other.code(), "not_found");
    let signalled = place.client.signal(run.id(), "answer", &"ada").await.unwrap();
    let SignalOutcome::Accepted { effect, .. } = signalled else { panic!("{signalled:?}") };
    assert_eq!(effect, SignalEffect::ResumeConditionSatisfied);
    assert_eq!(run.result().await.unwrap(), "a raise: ada");
    running.stop().await;
}

async fn patient(ctx: Ctx, Input(()): Input<()>) -> Outcome<Option<u32>> {
    ctx.wait_for_signal_within("answer", DAY).await
}

async fn a_signal_may_not_come(place: Place) {
    let running = Running::start(place.worker().task(PATIENT, patient));
    let run = place.client.start(PATIENT, &()).await.unwrap();
    place.happened(run.id(), EventType::Suspended).await;
    place.advance(DAY).await;
    assert_eq!(run.result().await.unwrap(), None);
    running.stop().await;
}

async fn a_token_is_enough_to_signal(place: Place) {
    let (say, mut tokens) = mpsc::unbounded_channel::<WaitpointToken>();
    let handler = move |ctx: Ctx, Input(_): Input<String>| {
        let say = say.clone();
        async move {
            let made = ctx.waitpoint("answer", DAY).await?;
            say.send(made.token.ok_or_else(|| anyhow::anyhow!("there is no token"))?)?;
            ctx.wait_for_signal::<String>("answer").await
        }
    };
    let run = place.client.start(ASK, &String::new()).await.unwrap();
    let running = Running::start(place.worker().task(ASK, handler));
    let token = tokens.recv().await.unwrap();
    place.client.signal_by_token(token, "answer", &"by link").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "by link");
    running.stop().await;
    let forged = WaitpointToken::new("forged".to_owned());
    assert!(place.client.signal_by_token(forged, "answer", &1).await.is_err());
}

async fn what_resumed_an_execution_comes_with_its_claim(place: Place) {
    let running = Running::start(place.worker().task(ASK, ask));
    let run = place.client.start(ASK, &"x".to_owned()).await.unwrap();
    place.happened(run.id(), EventType::Suspended).await;
    running.stop().await;
    place.client.signal(run.id(), "answer", &"ada").await.unwrap();
    let claimed = place.transport.claim(ClaimArgs {
        lanes: vec![LaneId::new("default")],
        capabilities: CapabilitySet::default(),
        worker_id: WorkerId::new("w"),
        worker_instance_id: WorkerInstanceId::new("w-1"),
        lease_ttl_ms: 30_000,
        max: 1,
        wait: Duration::ZERO,
    });
    let claimed = claimed.await.unwrap().remove(0);
    let [signal] = &claimed.resume_signals[..] else { panic!("{:?}", claimed.resume_signals) };
    assert_eq!((&*signal.signal_name, &*signal.waitpoint_key), ("answer", "answer"));
    assert_eq!(signal.payload.as_deref(), Some(&b"\"ada\""[..]));
}

async fn what_a_handler_says_is_heard(place: Place) {
    const SPEAK: Task<(), ()> = Task::new("speak").retry(Retry::fixed(Duration::ZERO));
    let handler = |ctx: Ctx| async move {
        ctx.stream("token", "one").await?;
        ctx.stream("bytes", vec![0u8, 255]).await?;
        ctx.log(format!("attempt {}", ctx.attempt())).await?;
        ensure!(ctx.attempt() > 0, "it fails once");
        anyhow::Ok(())
    };
    let run = place.client.start(SPEAK, &()).await.unwrap();
    let mut frames = place.client.follow(run.id());
    let running = Running::start(place.worker().handle("speak", handler));
    let mut heard = Vec::new();
    while let Some(frame) = frames.next().await.unwrap() {
        heard.push((frame.frame_type, frame.payload.to_vec()));
    }
    running.stop().await;
    let said = |attempt: u32| {
        [
            ("token".to_owned(), b"one".to_vec()),
            ("bytes".to_owned(), vec![0, 255]),
            ("log".to_owned(), format!("attempt {attempt}").into_bytes()),
        ]
    };
    assert_eq!(heard, [said(0), said(1)].concat());
}

async fn progress_is_shown(place: Place) {
    let handler = |ctx: Ctx, Input(()): Input<()>| async move {
        ctx.progress(40, "packing").await?;
        Outcome::Ok(())
    };
    let running = Running::start(place.worker().task(LONG, handler));
    let run = place.client.start(LONG, &()).await.unwrap();
    run.result().await.unwrap();
    running.stop().await;
    let shown = run.describe().await.unwrap().progress.unwrap();
    assert_eq!((shown.percent, shown.message.as_deref()), (Some(40), Some("packing")));
}

async fn parent(ctx: Ctx, Input(count): Input<u32>) -> Outcome<u32> {
    let mut sum = 0;
    for number in 0..count {
        let child = ctx.spawn(format!("child-{number}"), CHILD, &number).await?;
        // Whoever begins again is given the same child.
        let again = ctx.spawn(format!("child-{number}"), CHILD, &number).await?;
        if child.id() != again.id() {
            return Err(Failure::fatal("twice", "two children were started"));
        }
        sum += child.result().await?;
    }
    Ok(sum)
}

async fn child(Input(number): Input<u32>) -> Outcome<u32> {
    Ok(number * 10)
}

async fn children_are_started_once(place: Place) {
    let worker = place.worker().task(PARENT, parent).task(CHILD, child);
    let running = Running::start(worker);
    let run = place.client.start(PARENT, &4).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 60);
    running.stop().await;
}

async fn a_cancelled_handler_is_told(place: Place) {
    let (say, mut heard) = mpsc::unbounded_channel();
    let handler = move |ctx: Ctx, Input(()): Input<()>| {
        let say = say.clone();
        async move {
            say.send("begun")?;
            ctx.cancelled().await;
            say.send("stopped")?;
            Outcome::Ok(())
        }
    };
    let running = Running::start(place.worker().task(LONG, handler));
    let run = place.client.start(LONG, &()).await.unwrap();
    assert_eq!(heard.recv().await, Some("begun"));
    run.cancel("not wanted").await.unwrap();
    // The next renewal tells it.
    place.clock.advance(Duration::from_secs(11));
    assert_eq!(heard.recv().await, Some("stopped"));
    let error = run.result().await.unwrap_err();
    assert_eq!(error.to_string(), format!("execution {} is cancelled: not wanted", run.id()));
    running.stop().await;
}

async fn many_are_submitted_and_followed(place: Place) {
    let client = &place.client;
    let item = |n: &u32| client.start(CHILD, n).idempotency_key(format!("n{n}")).into_submission();
    let items: Vec<_> = [1, 2, 3, 2].iter().map(|n| item(n).unwrap()).collect();
    let filter = EventFilter {
        event_types: vec![EventType::Submitted, EventType::Completed],
        ..EventFilter::default()
    };
    let mut events = client.events(filter.clone(), StartAt::Latest).await.unwrap();
    let outcomes = client.submit(items).await.unwrap();
    let ids: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.execution_id()).collect();
    assert_eq!((ids.len(), ids[3]), (4, ids[1]));
    let running = Running::start(place.worker().task(CHILD, child));
    for (id, number) in ids.iter().zip([10, 20, 30]) {
        let run = client.run::<u32>((*id).clone());
        assert_eq!(run.result().await.unwrap(), number);
    }
    running.stop().await;
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(events.next().await.unwrap());
    }
    assert_eq!(seen[2].event_type, EventType::Submitted);
    assert!(seen[3..].iter().all(|event| event.event_type == EventType::Completed));
    let start = StartAt::After(seen[4].cursor.clone());
    let mut after = client.events(filter, start).await.unwrap();
    assert_eq!(after.next().await.unwrap().execution_id, seen[5].execution_id);
}

async fn a_worker_is_known_while_it_runs(place: Place) {
    let known = async || {
        let workers = place.engine.list_workers(ListWorkersArgs::default()).await.unwrap();
        let names = workers.into_iter().map(|worker| (worker.worker_id.0, worker.capabilities));
        names.collect::<Vec<_>>()
    };
    let worker = place.worker().name("cook").capabilities(["stove"]).task(CHILD, child);
    let running = Running::start(worker);
    place.said(EventType::WorkerRegistered).await;
    let stove = BTreeSet::from(["stove".to_owned()]);
    assert_eq!(known().await, [("cook".to_owned(), stove)]);
    running.stop().await;
    assert_eq!(known().await, []);
}
