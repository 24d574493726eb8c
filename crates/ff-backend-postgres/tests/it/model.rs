//! Random operations give the same answers and the same rows as the memory store.

use ff_conformance::model::Model;

use crate::conformance::open;
use crate::database::Schema;

/// More with `FF_MODEL_SEQUENCES`.
const SEQUENCES: u64 = 512;
const STEPS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_behaves_as_the_model() {
    let wanted = std::env::var("FF_MODEL_SEQUENCES").ok().and_then(|count| count.parse().ok());
    let schema = Schema::new();
    // One after the other: of two transactions at once, one skips what the other has locked, and
    // takes the next best.
    let writers = 1;
    let model = Model::new(|setup| open(&schema, setup, writers)).await;
    let sequences = wanted.unwrap_or(SEQUENCES);
    if let Err(difference) = model.check_seeds(0..sequences, STEPS).await {
        panic!("{difference}");
    }
    drop(model);
    schema.drop().await;
    println!("{sequences} sequences of {STEPS} operations, no difference");
}
