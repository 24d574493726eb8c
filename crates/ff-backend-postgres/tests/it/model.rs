//! Random operations give the same answers and the same rows as the memory store.

use std::sync::Arc;

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_conformance::exercise::Setup;
use ff_conformance::model::Model;
use ff_core::engine_backend::EngineBackend;

use crate::database::Schema;

/// More with `FF_MODEL_SEQUENCES`; `FF_MODEL_SEED` runs a single one.
const SEQUENCES: u64 = 512;
const STEPS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_behaves_as_the_model() {
    let seeds = ff_conformance::model::seeds(SEQUENCES);
    let schema = Schema::new();
    // One after the other: of two transactions at once, one skips what the other has locked, and
    // takes the next best.
    let model = Model::new(|setup: Setup| async {
        let (clock, engine) = (Some(setup.clock as _), setup.config);
        let options = PostgresOptions { clock, engine, writers: 1, ..schema.options() };
        PostgresBackend::open(options).await.expect("open") as Arc<dyn EngineBackend>
    })
    .await;
    let sequences = seeds.end - seeds.start;
    if let Err(difference) = model.check_seeds(seeds, STEPS).await {
        panic!("{difference}");
    }
    drop(model);
    schema.drop().await;
    println!("{sequences} sequences of {STEPS} operations, no difference");
}
