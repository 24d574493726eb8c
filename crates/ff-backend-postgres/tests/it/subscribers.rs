//! Subscribers that come and go while two engines write: each is given every event once, and those
//! of an execution in the order in which they happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ff_backend_postgres::PostgresBackend;
use ff_core::contracts::{EventFilter, FailArgs, FailureClass, Submission};
use ff_core::engine::StartAt;
use ff_core::engine_backend::EngineBackend;
use ff_core::types::ExecutionId;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::database::{Schema, claim_from};

const WRITERS: u64 = 64;
const ROUNDS: usize = 15;
const SUBSCRIBERS: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(120);

type Engines = [Arc<PostgresBackend>; 2];

/// Versions in the order in which they were delivered.
type Delivered = BTreeMap<ExecutionId, Vec<u64>>;

/// Submits, claims and ends work of its own, each step on a random engine. Returns its executions.
async fn write(engines: Engines, seed: u64) -> Vec<ExecutionId> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let lane = format!("lane-{seed}");
    let mut ids = Vec::new();
    for _ in 0..ROUNDS {
        let mut engine = || &*engines[rng.usize(..2)];
        let items = vec![Submission::new(&lane, "test"), Submission::new(&lane, "test")];
        let outcomes = engine().submit(items).await.expect("submit");
        ids.extend(outcomes.iter().filter_map(|outcome| outcome.execution_id().cloned()));
        let claim = claim_from(&lane, 2, Duration::from_secs(10));
        let claimed = engine().claim_many(claim).await.expect("claim");
        for one in claimed {
            match one.execution_id.uuid().as_bytes()[15] % 3 {
                0 => engine().complete(&one.handle, None).await.expect("complete"),
                1 => engine().cancel(&one.handle, "enough").await.expect("cancel"),
                _ => {
                    let class = FailureClass::Fatal;
                    let args = FailArgs { reason: "broke".into(), category: "".into(), class };
                    engine().fail(&one.handle, args).await.map(drop).expect("fail");
                }
            }
        }
    }
    ids
}

/// Follows the log until it has as many events as there are, and returns what it was given.
async fn follow(
    engines: Engines,
    seed: u64,
    mut expected: watch::Receiver<Option<usize>>,
) -> Delivered {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut delivered = Delivered::new();
    let (mut count, mut start) = (0, StartAt::Oldest);
    loop {
        let engine = &engines[rng.usize(..2)];
        let opened = engine.subscribe(EventFilter::default(), start).await;
        let mut subscription = opened.expect("subscribe");
        for _ in 0..rng.usize(1..200) {
            let everything = expected.wait_for(|all| all.is_some_and(|all| count >= all));
            let event = tokio::select! {
                event = subscription.next() => Some(event.expect("the log")),
                _ = everything => None,
            };
            let Some(event) = event else {
                let more = subscription.try_next().await.expect("the log");
                assert_eq!(more, None, "more events than transitions");
                return delivered;
            };
            count += 1;
            let id = event.execution_id.expect("only executions are touched");
            delivered.entry(id).or_default().push(event.version);
            assert_eq!(subscription.cursor(), event.cursor);
        }
        start = StartAt::After(subscription.cursor());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_delivered_once_and_in_order() {
    let seed = std::env::var("FF_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let schema = Schema::new();
    let engines = [schema.open().await, schema.open().await];
    let (tell, expected) = watch::channel(None);
    let mut subscribers = JoinSet::new();
    for at in 0..SUBSCRIBERS {
        subscribers.spawn(follow(engines.clone(), seed * 1_000 + at, expected.clone()));
    }
    let mut writers = JoinSet::new();
    for at in 0..WRITERS {
        writers.spawn(write(engines.clone(), seed * 10_000 + at));
    }
    let ids: Vec<ExecutionId> = writers.join_all().await.into_iter().flatten().collect();

    // The rows say what was committed, whatever the log says.
    let mut committed = Delivered::new();
    for id in ids {
        let told = engines[0].describe_execution(&id).await.expect("describe").expect("accepted");
        committed.insert(id, (1..=told.version).collect());
    }
    let total: usize = committed.values().map(Vec::len).sum();
    assert!(total >= WRITERS as usize * ROUNDS * 5, "{total}");
    tell.send(Some(total)).expect("the subscribers follow");
    let all = tokio::time::timeout(PATIENCE, subscribers.join_all()).await;
    for delivered in all.expect("a subscriber misses something") {
        for (id, versions) in &committed {
            assert_eq!(delivered.get(id), Some(versions), "seed {seed}: {id}");
        }
        assert_eq!(delivered.len(), committed.len(), "seed {seed}");
    }
    for engine in &engines {
        engine.close().await;
    }
    schema.drop().await;
}
