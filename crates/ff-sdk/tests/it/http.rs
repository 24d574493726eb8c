//! The same client and worker through a server.

use std::sync::Arc;
use std::time::Duration;

use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_core::contracts::{EventFilter, EventType};
use ff_core::engine::StartAt;
use ff_core::state::PublicState;
use ff_sdk::transport::HttpOptions;
use ff_sdk::{Client, Ctx, Failure, Input, Outcome, Retry, Task, Worker};
use tokio::sync::mpsc;

use crate::bed::Running;
use crate::place::Served;

const DIVIDE: Task<(u32, u32), u32> =
    Task::new("divide").lane("sums").retry(Retry::fixed(Duration::from_millis(1)).max(1));

async fn divide(Input((a, b)): Input<(u32, u32)>) -> Outcome<u32> {
    a.checked_div(b).ok_or_else(|| Failure::fatal("zero", format!("{a} cannot be divided by 0")))
}

/// A server on an engine whose time passes.
struct Here {
    backend: Arc<SqliteBackend>,
    served: Served,
    _folder: tempfile::TempDir,
}

impl Here {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("served.db").display().to_string();
        let backend = SqliteBackend::open(SqliteOptions::new(path)).await.unwrap();
        let served = Served::start(backend.clone()).await;
        Self { backend, served, _folder: folder }
    }

    fn client(&self) -> Client {
        Client::http(self.served.options()).unwrap()
    }

    async fn stop(self) {
        self.served.stop().await;
        self.backend.close().await;
    }
}

#[tokio::test]
async fn typed_tasks_work_through_a_server() {
    let here = Here::start().await;
    let client = here.client();
    let running = Running::start(Worker::new(client.clone()).lane("sums").task(DIVIDE, divide));
    let run = client.start(DIVIDE, &(42, 6)).idempotency_key("once").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    let again = client.start(DIVIDE, &(42, 6)).idempotency_key("once").await.unwrap();
    assert_eq!((again.id(), again.created()), (run.id(), false));

    let failed = client.start(DIVIDE, &(1, 0)).await.unwrap();
    let error = failed.result().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("execution {} is failed: 1 cannot be divided by 0", failed.id())
    );
    assert_eq!(failed.describe().await.unwrap().failure_category.as_deref(), Some("zero"));
    running.stop().await;
    here.stop().await;
}

#[tokio::test]
async fn many_executions_are_claimed_and_told_in_batches() {
    let here = Here::start().await;
    let client = here.client();
    let items = (0..500).map(|n| client.start(DIVIDE, &(n, 1)).into_submission().unwrap());
    client.submit(items.collect()).await.unwrap();
    let last = client.start(DIVIDE, &(500, 1)).await.unwrap();
    let worker = Worker::new(client).lane("sums").concurrency(100).task(DIVIDE, divide);
    let running = Running::start(worker);
    assert_eq!(last.result().await.unwrap(), 500);
    running.stop().await;
    let counts = ff_core::engine_backend::EngineBackend::counts(&*here.backend).await.unwrap();
    assert_eq!(counts[0].counts[&PublicState::Completed], 501);
    here.stop().await;
}

#[tokio::test]
async fn a_cancelled_execution_stops_its_handler_through_a_server() {
    let here = Here::start().await;
    let client = here.client();
    let (say, mut heard) = mpsc::unbounded_channel();
    let handler = move |ctx: Ctx| {
        let say = say.clone();
        async move {
            ctx.progress(10, "begun").await?;
            say.send("begun")?;
            ctx.cancelled().await;
            say.send("stopped")?;
            Outcome::Ok(())
        }
    };
    const LONG: Task<(), ()> = Task::new("long");
    let worker = Worker::new(client.clone()).lease(Duration::from_millis(300));
    let running = Running::start(worker.handle(LONG.kind(), handler));
    let run = client.start(LONG, &()).await.unwrap();
    assert_eq!(heard.recv().await, Some("begun"));
    assert_eq!(run.describe().await.unwrap().progress.unwrap().percent, Some(10));
    run.cancel("not wanted").await.unwrap();
    assert_eq!(heard.recv().await, Some("stopped"));
    assert_eq!(run.finished().await.unwrap().public_state, PublicState::Cancelled);
    running.stop().await;
    here.stop().await;
}

#[tokio::test]
async fn events_are_followed_through_a_server() {
    let here = Here::start().await;
    let client = here.client();
    let filter = EventFilter {
        event_types: vec![EventType::Submitted, EventType::Cancelled],
        ..EventFilter::default()
    };
    let mut latest = client.events(filter.clone(), StartAt::Latest).await.unwrap();
    let run = client.start(DIVIDE, &(1, 1)).await.unwrap();
    run.cancel("not wanted").await.unwrap();
    let submitted = latest.next().await.unwrap();
    assert_eq!(submitted.execution_id.as_ref(), Some(run.id()));
    assert_eq!(latest.next().await.unwrap().event_type, EventType::Cancelled);
    let mut after = client.events(filter, StartAt::After(submitted.cursor)).await.unwrap();
    assert_eq!(after.next().await.unwrap().event_type, EventType::Cancelled);
    here.stop().await;
}

#[tokio::test]
async fn what_a_server_refuses_keeps_its_code() {
    let here = Here::start().await;
    let client = here.client();
    let run = client.start(DIVIDE, &(1, 1)).await.unwrap();
    run.cancel("not wanted").await.unwrap();
    let id = ff_core::types::ExecutionId::from_parts(0, uuid::Uuid::now_v7());
    assert!(client.describe(&id).await.unwrap().is_none());
    assert_eq!(client.cancel(&id, "").await.unwrap_err().code(), "not_found");
    let nowhere = client.start(DIVIDE, &(1, 1)).lane("").await.unwrap_err();
    assert_eq!((nowhere.code(), nowhere.retryable()), ("invalid_input", false));
    let stranger = Client::http(HttpOptions::new(&here.served.url).token("wrong")).unwrap();
    let refused = stranger.start(DIVIDE, &(1, 1)).await.unwrap_err();
    assert!(!refused.retryable() && refused.to_string().contains("unauthorized"), "{refused}");
    here.stop().await;
    let away = client.describe(&id).await.unwrap_err();
    assert!(away.retryable(), "{away}");
    let wrong = Client::http(HttpOptions::new("ftp://x")).unwrap_err();
    assert_eq!(wrong.code(), "invalid_config");
}
