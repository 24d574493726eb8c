//! Files as they are met in the wild: in use, damaged, foreign, newer, full, and opened again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ff_backend_sqlite::{SqliteBackend, SqliteError, SqliteOptions, Synchronous};
use ff_core::backend::CapabilitySet;
use ff_core::contracts::{
    ClaimArgs, ClaimedExecution, Durability, EventFilter, PauseLaneArgs, Submission, SubmitOutcome,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::EngineBackend;
use ff_core::state::{LaneState, PublicState};
use ff_core::types::{ExecutionId, LaneId, WorkerId, WorkerInstanceId};

async fn open(path: &Path) -> Arc<SqliteBackend> {
    SqliteBackend::new(path.to_str().expect("a plain path")).await.expect("open")
}

async fn refused(path: &Path) -> SqliteError {
    match SqliteBackend::new(path.to_str().expect("a plain path")).await {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

async fn submit(backend: &SqliteBackend, payload: &[u8]) -> ExecutionId {
    let item = Submission::new("files", "test").payload(payload);
    let outcomes = backend.submit(vec![item]).await.expect("submit");
    outcomes[0].execution_id().expect("accepted").clone()
}

async fn claim(backend: &SqliteBackend, max: usize) -> Vec<ClaimedExecution> {
    let args = ClaimArgs {
        lanes: vec![LaneId::new("files")],
        capabilities: CapabilitySet::default(),
        worker_id: WorkerId::new("w"),
        worker_instance_id: WorkerInstanceId::new("w-1"),
        lease_ttl_ms: 60_000,
        max,
        wait: Duration::ZERO,
    };
    backend.claim_many(args).await.expect("claim")
}

#[tokio::test]
async fn everything_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let backend = open(&path).await;
    assert_eq!(backend.engine().store().durability(), Durability::PowerLoss);
    let large = vec![7; 300_000];
    let done = submit(&backend, &large).await;
    let claimed = claim(&backend, 1).await;
    assert_eq!(&*claimed[0].payload, &large[..]);
    backend.complete(&claimed[0].handle, Some(large.clone())).await.unwrap();
    let waiting = submit(&backend, b"small").await;
    let args = PauseLaneArgs { lane_id: LaneId::new("files"), reason: "x".into(), by: "".into() };
    backend.pause_lane(args).await.unwrap();
    let mut events = backend.subscribe(EventFilter::default(), StartAt::Oldest).await.unwrap();
    let cursor = events.next().await.unwrap().cursor;
    backend.close().await;

    let backend = open(&path).await;
    assert_eq!(backend.result(&done).await.unwrap().as_deref(), Some(&large[..]));
    assert_eq!(backend.payload(&waiting).await.unwrap().as_deref(), Some(&b"small"[..]));
    assert_eq!(backend.list_lanes().await.unwrap()[0].state, LaneState::Paused);
    assert!(claim(&backend, 1).await.is_empty(), "a paused lane stays paused");
    backend.resume_lane(&LaneId::new("files"), "").await.unwrap();
    assert_eq!(claim(&backend, 9).await.len(), 1);
    let start = StartAt::After(cursor);
    let mut events = backend.subscribe(EventFilter::default(), start).await.unwrap();
    let mut types = Vec::new();
    while let Some(event) = events.try_next().await.unwrap() {
        types.push(event.event_type.as_str());
    }
    let expected = ["claimed", "completed", "submitted", "lane_paused", "lane_resumed", "claimed"];
    assert_eq!(types, expected);
}

#[tokio::test]
async fn rows_are_found_after_somebody_else_has_moved_them() {
    let folder = tempfile::tempdir().unwrap();
    let backend = open(&folder.path().join("a.db")).await;
    let first = submit(&backend, b"1").await;
    let mut held = Vec::new();
    for payload in [b"2", b"3", b"4"] {
        submit(&backend, payload).await;
    }
    held.extend(claim(&backend, 4).await);
    backend.complete(&held.remove(0).handle, None).await.unwrap();
    let gone = first.uuid();
    let pool = backend.pool_for_test();
    let delete = "DELETE FROM ff_exec_core WHERE execution_id = ?1";
    let deleted = sqlx::query(delete).bind(gone.as_bytes().to_vec()).execute(pool).await.unwrap();
    assert_eq!(deleted.rows_affected(), 1);
    // Numbers the rows anew from 1.
    sqlx::query("VACUUM").execute(pool).await.unwrap();
    for one in held {
        let result = one.payload.to_vec();
        backend.complete(&one.handle, Some(result.clone())).await.unwrap();
        let stored = backend.result(&one.execution_id).await.unwrap();
        assert_eq!(stored.as_deref(), Some(&result[..]));
    }
}

#[tokio::test]
async fn rows_that_move_together_keep_their_own_histories() {
    let folder = tempfile::tempdir().unwrap();
    let backend = open(&folder.path().join("a.db")).await;
    let items = (0..40).map(|_| Submission::new("files", "test")).collect();
    backend.submit(items).await.unwrap();
    let claimed = claim(&backend, 40).await;
    assert_eq!(claimed.len(), 40);
    // A run, single ones, and one that stays behind in the middle.
    let mut running = tokio::task::JoinSet::new();
    for at in (0..10).chain([39, 12, 14]).chain(20..30) {
        let (backend, handle) = (backend.clone(), claimed[at].handle.clone());
        running.spawn(async move { backend.complete(&handle, None).await });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap().unwrap();
    }
    for (at, one) in claimed.iter().enumerate() {
        let history = backend.history(&one.execution_id, 0, 10).await.unwrap();
        let types: Vec<_> = history.iter().map(|event| event.event_type.as_str()).collect();
        let completed = matches!(at, 0..10 | 12 | 14 | 20..30 | 39);
        let expected = ["submitted", "claimed", "completed"];
        assert_eq!(types, expected[..if completed { 3 } else { 2 }], "execution {at}");
    }
}

#[tokio::test]
async fn a_second_opener_is_told_that_the_file_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let backend = open(&path).await;
    let error = refused(&path).await;
    assert!(matches!(error, SqliteError::InUse(_)), "{error}");
    assert!(error.to_string().contains("another FlowFabric process"), "{error}");
    drop(backend);
    open(&path).await;
}

#[tokio::test]
async fn what_is_not_our_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.db");
    std::fs::write(&text, "this is a letter, not a database ".repeat(100)).unwrap();
    assert!(matches!(refused(&text).await, SqliteError::Corrupt(..)));
    assert!(std::fs::read(&text).unwrap().starts_with(b"this is a letter"));

    let newer = folder.path().join("newer.db");
    let other = rusqlite_at(&newer, "PRAGMA user_version = 99");
    drop(other);
    assert!(matches!(refused(&newer).await, SqliteError::NewerSchema { found: 99, .. }));

    let foreign = folder.path().join("foreign.db");
    drop(rusqlite_at(&foreign, "CREATE TABLE ff_lane (colour TEXT)"));
    assert!(matches!(refused(&foreign).await, SqliteError::ForeignTables(_)));

    let nowhere = folder.path().join("no/such/folder/a.db");
    assert!(matches!(refused(&nowhere).await, SqliteError::Open(_)));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    open(&path).await.close().await;
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    // The superuser may write whatever the permissions say; for everybody else it must be refused.
    if std::fs::OpenOptions::new().write(true).open(&path).is_err() {
        assert!(matches!(refused(&path).await, SqliteError::ReadOnly(_)));
    } else {
        open(&path).await;
    }
}

#[tokio::test]
async fn a_damaged_page_is_a_typed_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let backend = open(&path).await;
    for _ in 0..200 {
        submit(&backend, &[1; 400]).await;
    }
    backend.close().await;
    let mut bytes = std::fs::read(&path).unwrap();
    for byte in &mut bytes[8 * 4096..] {
        *byte = 0xA5;
    }
    std::fs::write(&path, bytes).unwrap();
    match SqliteBackend::new(path.to_str().unwrap()).await {
        Err(error) => assert!(matches!(error, SqliteError::Corrupt(..)), "{error}"),
        Ok(backend) => {
            let item = Submission::new("files", "test");
            let error = backend.submit(vec![item]).await.expect_err("the tables are damaged");
            assert_eq!(error.code(), "corruption", "{error}");
        }
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let backend = open(&folder.path().join("a.db")).await;
    let before = submit(&backend, b"before").await;
    limit_pages(&backend, 1).await;
    let item = || Submission::new("files", "test").payload(vec![9; 900_000]);
    let error = backend.submit(vec![item()]).await.expect_err("there is no room");
    assert!(error.retryable() && error.to_string().contains("disk is full"), "{error}");
    let still = backend.describe_execution(&before).await.unwrap().expect("reads go on");
    assert_eq!(still.public_state, PublicState::Waiting);
    limit_pages(&backend, 1_000_000).await;
    let outcome = backend.submit(vec![item()]).await.expect("room again").remove(0);
    assert!(matches!(outcome, SubmitOutcome::Created { .. }));
    let counts = backend.counts().await.unwrap();
    assert_eq!(counts[0].counts[&PublicState::Waiting], 2, "the refused one left nothing");
}

/// Tells the writer's own connection how many pages the file may have: SQLite then answers as it
/// does when the disk is full.
async fn limit_pages(backend: &SqliteBackend, pages: u32) {
    let limit = move |connection: &ff_backend_sqlite::rusqlite::Connection| {
        let sql = format!("PRAGMA max_page_count = {pages}");
        connection.query_row(&sql, [], |_| Ok(()))?;
        Ok(((), vec![]))
    };
    backend.submit_with(limit).await.expect("set the limit");
}

#[tokio::test]
async fn normal_durability_is_declared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let mut options = SqliteOptions::new(path.to_str().unwrap());
    options.synchronous = Synchronous::Normal;
    let backend = SqliteBackend::open(options).await.unwrap();
    assert_eq!(backend.engine().store().durability(), Durability::ProcessCrash);
}

#[tokio::test]
async fn calls_after_close_are_told_so() {
    let backend = SqliteBackend::new(":memory:").await.unwrap();
    backend.close().await;
    let error = backend.submit(vec![Submission::new("l", "k")]).await.expect_err("closed");
    assert!(error.to_string().contains("closed"), "{error}");
    let error = backend.counts().await.expect_err("closed");
    assert!(error.to_string().contains("closed"), "{error}");
}

fn rusqlite_at(path: &Path, sql: &str) -> ff_backend_sqlite::rusqlite::Connection {
    let connection = ff_backend_sqlite::rusqlite::Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
    connection
}
