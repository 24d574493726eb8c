//! A file that was copied back: what happened after the copy is lost, and its numbers come again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ff_backend_sqlite::SqliteBackend;
use ff_core::backend::CapabilitySet;
use ff_core::contracts::{ClaimArgs, Event, EventFilter, Submission};
use ff_core::engine::StartAt;
use ff_core::engine_backend::EngineBackend;
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};

async fn open(path: &Path) -> Arc<SqliteBackend> {
    SqliteBackend::new(path.to_str().expect("a plain path")).await.expect("open")
}

async fn submit(backend: &SqliteBackend, count: usize) {
    for _ in 0..count {
        backend.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    }
}

async fn events(backend: &SqliteBackend, start: StartAt) -> Result<Vec<Event>, &'static str> {
    let opened = backend.subscribe(EventFilter::default(), start).await;
    let mut subscription = opened.map_err(|error| error.code())?;
    let mut events = Vec::new();
    while let Some(event) = subscription.try_next().await.map_err(|error| error.code())? {
        events.push(event);
    }
    Ok(events)
}

#[tokio::test]
async fn a_cursor_of_the_lost_history_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.db"), folder.path().join("copy.db"));
    let backend = open(&path).await;
    submit(&backend, 4).await;
    backend.close().await;
    std::fs::copy(&path, &copy).unwrap();

    let backend = open(&path).await;
    let kept = events(&backend, StartAt::Oldest).await.unwrap().pop().unwrap().cursor;
    submit(&backend, 3).await;
    let lost = events(&backend, StartAt::Oldest).await.unwrap().pop().unwrap().cursor;
    backend.close().await;
    std::fs::copy(&copy, &path).unwrap();

    let backend = open(&path).await;
    submit(&backend, 5).await;
    let refused = events(&backend, StartAt::After(lost)).await;
    assert_eq!(refused.unwrap_err(), "cursor_from_other_history");
    let rest = events(&backend, StartAt::After(kept)).await.unwrap();
    assert_eq!(rest.len(), 5, "a cursor from before the copy goes on");
    backend.close().await;
}

#[tokio::test]
async fn a_lease_of_the_lost_history_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.db"), folder.path().join("copy.db"));
    let claim = |backend: Arc<SqliteBackend>| async move {
        let args = ClaimArgs {
            lanes: vec![LaneId::new("lane")],
            capabilities: CapabilitySet::default(),
            worker_id: WorkerId::new("w"),
            worker_instance_id: WorkerInstanceId::new("w-1"),
            lease_ttl_ms: 60_000,
            max: 1,
            wait: Duration::ZERO,
        };
        backend.claim_many(args).await.expect("claim").remove(0).handle
    };
    let backend = open(&path).await;
    submit(&backend, 1).await;
    backend.close().await;
    std::fs::copy(&path, &copy).unwrap();
    let backend = open(&path).await;
    let lost = claim(backend.clone()).await;
    backend.close().await;
    std::fs::copy(&copy, &path).unwrap();

    let backend = open(&path).await;
    let handle = claim(backend.clone()).await;
    assert_eq!(lost.lease_epoch(), handle.lease_epoch());
    let refused = backend.complete(&lost, None).await.unwrap_err();
    assert_eq!(refused.code(), "stale_lease");
    backend.complete(&handle, None).await.unwrap();
    backend.close().await;
}
