//! A clock that steps back while a sweep waits for a lock, between its scan and its decision.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_core::contracts::Submission;
use ff_core::engine::EngineConfig;
use ff_core::engine::clock::ManualClock;
use ff_core::engine_backend::{EngineBackend, TimerOperations};
use ff_core::state::PublicState;
use ff_core::types::ExecutionId;
use sqlx::{Executor, PgPool};

use crate::database::{Schema, pool, url};

/// A transaction that waited for longer than this asks for the time again.
const STALE: Duration = Duration::from_millis(20);

/// Returns once something has waited for a lock in a schema's tables for long enough.
pub async fn wait_for_a_waiter(pool: &PgPool, schema: &str) {
    let sql = "SELECT count(*) FROM pg_locks AS l JOIN pg_locks AS held USING (pid) \
               JOIN pg_class AS c ON c.oid = held.relation \
               JOIN pg_namespace AS n ON n.oid = c.relnamespace \
               WHERE NOT l.granted AND n.nspname = $1";
    let mut since = None;
    loop {
        let waiting: i64 =
            sqlx::query_scalar(sql).bind(schema).fetch_one(pool).await.expect("counted");
        if waiting == 0 {
            since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() > 2 * STALE {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_found_before_a_step_back_stay_armed() {
    let schema = Schema::new();
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let engine = EngineConfig { manual_sweeps: true, ..EngineConfig::default() };
    let options = PostgresOptions { clock: Some(clock.clone()), engine, ..schema.options() };
    let backend = PostgresBackend::open(options).await.expect("open");
    let second = Duration::from_secs(1);
    let items = vec![
        Submission::new("lane", "kind").delay(second),
        Submission::new("lane", "kind").deadline(second),
    ];
    let accepted = backend.submit(items).await.expect("submit");
    let ids: Vec<ExecutionId> =
        accepted.iter().filter_map(|outcome| outcome.execution_id().cloned()).collect();
    let states = async || {
        let mut states = Vec::new();
        for id in &ids {
            let seen = backend.describe_execution(id).await.expect("read").expect("it is there");
            states.push(seen.public_state);
        }
        states
    };
    clock.advance(second);

    let pool = pool(&url(), 2).await;
    let mut other = pool.begin().await.expect("a transaction");
    let lock = format!("SELECT FROM {}.ff_exec_core FOR UPDATE", schema.0);
    other.execute(&*lock).await.expect("locked");
    let sweeping = tokio::spawn({
        let backend = backend.clone();
        async move { backend.engine().sweep().await }
    });
    wait_for_a_waiter(&pool, &schema.0).await;
    clock.step(-500);
    other.rollback().await.expect("unlocked");
    sweeping.await.expect("no panic").expect("swept");

    assert_eq!(states().await, [PublicState::Delayed, PublicState::Waiting], "not due any more");
    assert_eq!(backend.check_timers(false).await.expect("checked").missing, []);
    clock.step(500);
    backend.engine().sweep().await.expect("swept");
    assert_eq!(states().await, [PublicState::Waiting, PublicState::Expired]);
    backend.close().await;
    pool.close().await;
    schema.drop().await;
}
