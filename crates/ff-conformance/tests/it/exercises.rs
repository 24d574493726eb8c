//! The memory store, which says what the others must do, does it itself.

use std::sync::Arc;

use ff_conformance::exercise::{Setup, exercise};
use ff_core::engine_backend::EngineBackend;
use ff_core::store::memory::MemoryBackend;

pub fn memory(setup: Setup) -> std::future::Ready<Arc<dyn EngineBackend>> {
    std::future::ready(MemoryBackend::new(setup.clock, setup.config))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_every_exercise() {
    exercise(memory).await;
}
