//! Random operations give the same answers and the same rows as the memory store.

use ff_conformance::model::Model;

use crate::conformance::open;

/// More with `FF_MODEL_SEQUENCES`; `FF_MODEL_SEED` runs a single one.
const SEQUENCES: u64 = 1_600;
const STEPS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_behaves_as_the_model() {
    let seeds = ff_conformance::model::seeds(SEQUENCES);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.db").to_str().unwrap().to_owned();
    let model = Model::new(|setup| async move { open(&path, setup).await }).await;
    let sequences = seeds.end - seeds.start;
    if let Err(difference) = model.check_seeds(seeds, STEPS).await {
        panic!("{difference}");
    }
    println!("{sequences} sequences of {STEPS} operations, no difference");
}
