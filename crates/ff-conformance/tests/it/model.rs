//! The model against itself: two memory stores must agree, or the model is not deterministic.

use ff_conformance::model::{Model, check};

use crate::exercises::memory;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_agrees_with_memory() {
    let model = Model::new(memory).await;
    model.check_seeds(0..320, 40).await.unwrap_or_else(|difference| panic!("{difference}"));
}

#[tokio::test]
async fn one_seed_runs_alone() {
    check(7, 200, memory).await.unwrap_or_else(|difference| panic!("{difference}"));
}
