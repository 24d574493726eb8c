//! Callers that lose interest: whatever they were in the middle of, no connection stays behind in
//! an open transaction and the engine goes on.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ff_backend_postgres::PostgresBackend;
use ff_core::contracts::{ListExecutionsArgs, Submission};
use ff_core::engine_backend::EngineBackend;
use ff_core::state::PublicState;
use ff_core::types::ExecutionId;
use sqlx::PgPool;
use tokio::task::JoinSet;

use crate::database::{Database, claim_from, options, pool};

const CALLS: usize = 10_000;
const TASKS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Polls a future at most so often and then drops it.
async fn polled<F: Future>(future: F, mut polls: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Drops the future after a few polls or after a moment.
async fn interrupted<F: Future>(future: F, rng: &mut fastrand::Rng) -> Option<F::Output> {
    if rng.bool() {
        return polled(future, rng.u32(0..16)).await;
    }
    let moment = Duration::from_micros(rng.u64(0..4_000));
    tokio::time::timeout(moment, future).await.ok()
}

/// Many calls of which most are never answered. Returns how many were.
async fn call(backend: Arc<PostgresBackend>, seed: u64) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed);
    let lane = format!("lane-{}", seed % 4);
    let mut handles = Vec::new();
    let mut ids: Vec<ExecutionId> = Vec::new();
    let mut answered = 0;
    for _ in 0..CALLS / TASKS {
        match rng.u32(..5) {
            0 => {
                let items = (0..rng.u32(1..20)).map(|_| Submission::new(&lane, "test")).collect();
                if let Some(outcomes) = interrupted(backend.submit(items), &mut rng).await {
                    let outcomes = outcomes.expect("submit");
                    ids.extend(outcomes.iter().filter_map(|one| one.execution_id().cloned()));
                    answered += 1;
                }
            }
            1 => {
                let args = claim_from(&lane, 4, Duration::from_millis(rng.u64(..20)));
                if let Some(claimed) = interrupted(backend.claim_many(args), &mut rng).await {
                    let claimed = claimed.expect("claim").into_iter();
                    handles.extend(claimed.map(|one| one.handle));
                    answered += 1;
                }
            }
            2 => {
                if let Some(handle) = handles.pop() {
                    let done = interrupted(backend.complete(&handle, Some(vec![1])), &mut rng);
                    answered += done.await.map_or(0, |done| done.map(|()| 1).expect("complete"));
                }
            }
            3 => {
                if let Some(id) = rng.choice(&ids) {
                    let told = interrupted(backend.describe_execution(id), &mut rng).await;
                    let told = told.map(|told| told.expect("describe").expect("accepted"));
                    answered += usize::from(told.is_some());
                }
            }
            _ => {
                let page = ListExecutionsArgs { limit: 100, ..Default::default() };
                let page = interrupted(backend.list_executions(page), &mut rng).await;
                answered += page.map_or(0, |page| page.map(|_| 1).expect("list"));
            }
        }
    }
    answered
}

/// The engine's connections that are in a transaction and do nothing.
async fn idle_in_transaction(pool: &PgPool) -> Vec<String> {
    let sql = "SELECT coalesce(query, '') FROM pg_stat_activity WHERE state LIKE 'idle in trans%' \
               AND datname = current_database() AND application_name LIKE 'flowfabric%'";
    sqlx::query_scalar(sql).fetch_all(pool).await.expect("activity")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_leave_nothing_behind() {
    let seed = std::env::var("FF_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    // A database of its own, because the connections of other tests are none of its business.
    let database = Database::create().await;
    let backend = PostgresBackend::open(options(&database.url())).await.expect("open");
    let watcher = pool(&database.url(), 1).await;
    let mut tasks = JoinSet::new();
    for at in 0..TASKS as u64 {
        tasks.spawn(call(backend.clone(), seed * 1_000 + at));
    }
    let answered: usize = tasks.join_all().await.into_iter().sum();
    println!("seed {seed}: {answered} of {CALLS} calls were answered");
    assert!(answered > 0 && answered < CALLS * 9 / 10, "too many or too few were dropped");

    let ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name LIKE 'flowfabric%'";
    let connections: i64 = sqlx::query_scalar(ours).fetch_one(&watcher).await.expect("activity");
    assert!(connections > 0, "the engine's connections cannot be told from others");
    let started = Instant::now();
    // What was accepted is still being written: a transaction may be seen between two statements.
    loop {
        let stuck = idle_in_transaction(&watcher).await;
        if stuck.is_empty() {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "seed {seed}: {stuck:?}");
    }

    let submitted = backend.submit(vec![Submission::new("after", "test")]).await.expect("submit");
    let args = claim_from("after", 1, Duration::from_secs(10));
    let claimed = backend.claim_many(args).await.expect("claim");
    backend.complete(&claimed[0].handle, None).await.expect("complete");
    let id = submitted[0].execution_id().expect("accepted");
    let told = backend.describe_execution(id).await.expect("describe").expect("accepted");
    assert_eq!(told.public_state, PublicState::Completed);
    backend.close().await;
    watcher.close().await;
    database.drop().await;
}
