//! What every backend must do, each time in a schema of its own.

use std::sync::{Arc, Mutex};

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_conformance::exercise::exercise;
use ff_core::engine_backend::EngineBackend;

use crate::database::Schema;

/// Runs every exercise in a schema of its own, with the options changed in some way.
async fn exercise_with(change: impl Fn(PostgresOptions) -> PostgresOptions) {
    let schemas = Mutex::new(Vec::new());
    exercise(|setup| {
        let (schemas, change) = (&schemas, &change);
        async move {
            let schema = Schema::new();
            let (clock, engine) = (Some(setup.clock as _), setup.config);
            let options = PostgresOptions { clock, engine, ..schema.options() };
            let backend = PostgresBackend::open(change(options)).await.expect("open");
            schemas.lock().unwrap().push(schema);
            backend as Arc<dyn EngineBackend>
        }
    })
    .await;
    for schema in schemas.into_inner().unwrap() {
        schema.drop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_does_what_every_backend_does() {
    exercise_with(|options| options).await;
}

/// Nothing that a transaction pooler would not keep: no prepared statement outlives its
/// transaction, no session is changed, nobody listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_so_it_does_with_the_settings_for_a_pooler() {
    let pooled = |options| PostgresOptions { statement_cache: 0, listen: false, ..options };
    exercise_with(pooled).await;
}
