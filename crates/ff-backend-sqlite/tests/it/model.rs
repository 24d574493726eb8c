//! Random operations give the same answers and the same rows as the memory store.

use ff_conformance::model::Model;

use crate::conformance::open;

/// More with `FF_MODEL_SEQUENCES`.
const SEQUENCES: u64 = 2_000;
const STEPS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_behaves_as_the_model() {
    let wanted = std::env::var("FF_MODEL_SEQUENCES").ok().and_then(|count| count.parse().ok());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.db").to_str().unwrap().to_owned();
    let model = Model::new(|setup| async move { open(&path, setup).await }).await;
    let sequences = wanted.unwrap_or(SEQUENCES);
    if let Err(difference) = model.check_seeds(0..sequences, STEPS).await {
        panic!("{difference}");
    }
    println!("{sequences} sequences of {STEPS} operations, no difference");
}
