//! What is ordinary is not warned of: another engine's write that comes between, and the end.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_core::contracts::{CancelExecutionArgs, Submission};
use ff_core::engine_backend::EngineBackend;
use ff_core::types::{CancelSource, TimestampMs};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::database::{Schema, claim_from};

/// Keeps every warning and every error of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

const WRITERS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(30);

async fn open(schema: &Schema) -> Arc<PostgresBackend> {
    let options = PostgresOptions { writers: WRITERS, ..schema.options() };
    PostgresBackend::open(options).await.expect("open")
}

/// Another engine cancels what this one holds: its next write finds another row than it had kept.
async fn meet(here: &PostgresBackend, there: &PostgresBackend) {
    here.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    let work =
        here.claim_many(claim_from("lane", 1, Duration::ZERO)).await.expect("claim").remove(0);
    let args = CancelExecutionArgs {
        execution_id: work.execution_id,
        reason: "asked for".into(),
        source: CancelSource::OperatorOverride,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now: TimestampMs::now(),
    };
    there.cancel_execution(args).await.expect("cancelled");
    here.complete(&work.handle, None).await.expect_err("it was cancelled");
}

/// On one thread, so that all that is logged is heard.
#[tokio::test]
async fn nothing_is_warned_of_when_an_engine_ends() {
    let warnings = Warnings::default();
    let _heard = tracing::subscriber::set_default(warnings.clone());
    let schema = Schema::new();
    let here = open(&schema).await;
    let there = open(&schema).await;
    for _ in 0..3 {
        meet(&here, &there).await;
    }
    // Something is due all the time, before the end and after it.
    let delay = |at| Submission::new("lane", "kind").delay(Duration::from_millis(at));
    here.submit((0..200).map(delay).collect()).await.expect("submit");
    there.close().await;
    here.close().await;
    // The bells end by themselves, and so does the sweeper that has something to do. The other one
    // may sleep, and writers wait for their engines to go.
    let tasks = tokio::runtime::Handle::current().metrics();
    let ended = tokio::time::timeout(PATIENCE, async {
        while tasks.num_alive_tasks() > 2 * WRITERS + 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let ended = ended.await;
    let heard = warnings.0.lock().unwrap().clone();
    assert_eq!(heard, [""; 0]);
    assert!(ended.is_ok(), "{} tasks go on", tasks.num_alive_tasks());
    schema.drop().await;
}
