//! A server that is away: clear errors, bounded waiting, and recovery when it comes back.

use std::time::{Duration, Instant};

use ff_backend_postgres::{PostgresBackend, PostgresError};
use ff_core::contracts::Submission;
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::EngineError;
use ff_testkit::postgres::{Cluster, ClusterOptions};
use sqlx::{Connection, Executor, PgConnection};

use crate::database::{claim_from, options};

/// More than the engine waits, with room for a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_is_said_at_once() {
    let outcome = PostgresBackend::connect("postgres://nobody@127.0.0.1:1/nothing").await;
    assert!(matches!(outcome, Err(PostgresError::Unreachable(_))));
    let outcome = PostgresBackend::connect("not a URL").await;
    assert!(matches!(outcome, Err(PostgresError::Url(_))));
    let mut options = options("postgres://nobody@127.0.0.1:1/nothing");
    options.schema = Some("a -c fsync=off".into());
    assert!(matches!(PostgresBackend::open(options).await, Err(PostgresError::Url(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_outlives_its_server() {
    let mut cluster = Cluster::start(ClusterOptions { durable: true, ..ClusterOptions::default() })
        .expect("a private server");
    let backend = PostgresBackend::open(options(&cluster.url())).await.expect("open");
    let submit = || backend.submit(vec![Submission::new("lane", "kind")]);
    submit().await.expect("submit");

    cluster.kill().expect("kill");
    let asked = Instant::now();
    let (written, read) = tokio::join!(submit(), backend.counts());
    assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
    for error in [written.map(drop), read.map(drop)].map(Result::unwrap_err) {
        assert!(matches!(error, EngineError::Transport { .. }), "{error:?}");
        assert!(error.retryable());
    }

    cluster.restart().expect("restart");
    submit().await.expect("it is found again");
    let claimed = backend.claim_many(claim_from("lane", 10, Duration::ZERO)).await.expect("claim");
    assert_eq!(claimed.len(), 2);
    backend.close().await;
    let refused = submit().await.unwrap_err();
    assert_eq!(refused.code(), "transport");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_lose_commits_is_refused() {
    let mut options = options(&crate::database::url());
    options.durable = true;
    match PostgresBackend::open(options).await {
        Err(PostgresError::NotDurable { setting: "fsync" }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a server with fsync off was accepted"),
    }
}

/// Ends the engine's connections that wait like this, until there was one.
async fn cut_off(psql: impl Fn(&str) -> String, waiting: &str) {
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE {waiting} AND application_name = 'flowfabric'"
    );
    let deadline = Instant::now() + PATIENCE;
    while psql(&end).trim().is_empty() {
        assert!(Instant::now() < deadline, "nobody waits: {waiting}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The commit is kept, and its answer never comes: the engine finds out before it answers, whether
/// the commit was sent by itself or with the only statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_looked_up() {
    let cluster = Cluster::start(ClusterOptions { durable: true, ..ClusterOptions::default() });
    let cluster = cluster.expect("a private server");
    let url = cluster.url();
    let psql = |sql: &str| cluster.psql(&url, sql).expect(sql);
    let backend = PostgresBackend::open(options(&url)).await.expect("open");
    backend.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    let claimed = backend.claim_many(claim_from("lane", 1, Duration::ZERO)).await.expect("claim");

    // From now on a commit waits for a standby that does not exist, after it was written here.
    psql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    psql("SELECT pg_reload_conf()");
    // The process that makes checkpoints tells the others, once it has read the settings.
    psql("CHECKPOINT");
    let completing = backend.clone();
    let handle = claimed[0].handle.clone();
    let completed = tokio::spawn(async move { completing.complete(&handle, None).await });
    cut_off(psql, "wait_event = 'SyncRep'").await;
    completed.await.expect("no panic").expect("it was committed");
    let history = backend.history(&claimed[0].execution_id, 0, 10).await.expect("history");
    assert_eq!(history.len(), 3, "{history:?}");

    let submitting = backend.clone();
    let submitted =
        tokio::spawn(async move { submitting.submit(vec![Submission::new("lane", "kind")]).await });
    cut_off(psql, "wait_event = 'SyncRep'").await;
    let outcomes = submitted.await.expect("no panic").expect("it was committed");
    let id = outcomes[0].execution_id().expect("an id");
    let history = backend.history(id, 0, 10).await.expect("history");
    assert_eq!(history.len(), 1, "{history:?}");
    backend.close().await;
}

/// The connection is lost before the statement has done anything: it is done once, by another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_was_cut_off_is_run_again() {
    let cluster = Cluster::start(ClusterOptions { durable: true, ..ClusterOptions::default() });
    let cluster = cluster.expect("a private server");
    let url = cluster.url();
    let psql = |sql: &str| cluster.psql(&url, sql).expect(sql);
    let backend = PostgresBackend::open(options(&url)).await.expect("open");
    backend.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    let claimed = backend.claim_many(claim_from("lane", 1, Duration::ZERO)).await.expect("claim");

    let mut holding = PgConnection::connect(&url).await.expect("connect");
    holding.execute("BEGIN; SELECT head FROM ff_event_shard FOR UPDATE").await.expect("lock");
    let completing = backend.clone();
    let handle = claimed[0].handle.clone();
    let completed = tokio::spawn(async move { completing.complete(&handle, None).await });
    cut_off(psql, "wait_event_type = 'Lock'").await;
    holding.execute("ROLLBACK").await.expect("unlock");
    completed.await.expect("no panic").expect("it is run again");
    let history = backend.history(&claimed[0].execution_id, 0, 10).await.expect("history");
    assert_eq!(history.len(), 3, "{history:?}");
    backend.close().await;
}
