//! What every backend must do, each time in a schema of its own.

use std::sync::{Arc, Mutex};

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_conformance::exercise::{Setup, exercise};
use ff_core::engine_backend::EngineBackend;

use crate::database::Schema;

pub(crate) async fn open(schema: &Schema, setup: Setup, writers: usize) -> Arc<dyn EngineBackend> {
    let (clock, engine) = (Some(setup.clock as _), setup.config);
    let options = PostgresOptions { clock, engine, writers, ..schema.options() };
    PostgresBackend::open(options).await.expect("open")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_does_what_every_backend_does() {
    let schemas = Mutex::new(Vec::new());
    exercise(|setup| {
        let schemas = &schemas;
        async move {
            let schema = Schema::new();
            let backend = open(&schema, setup, 2).await;
            schemas.lock().unwrap().push(schema);
            backend
        }
    })
    .await;
    for schema in schemas.into_inner().unwrap() {
        schema.drop().await;
    }
}
