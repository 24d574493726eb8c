//! What every backend must do, on files and in shared memory.

use std::sync::Arc;

use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_conformance::exercise::{Setup, exercise};
use ff_core::engine_backend::EngineBackend;

pub(crate) async fn open(uri: &str, setup: Setup) -> Arc<dyn EngineBackend> {
    let mut options = SqliteOptions::new(uri);
    options.clock = setup.clock;
    options.engine = setup.config;
    SqliteBackend::open(options).await.expect("open")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_files() {
    let folder = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicU32::new(0);
    exercise(|setup| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = folder.path().join(format!("{number}.db")).to_str().unwrap().to_owned();
        async move { open(&path, setup).await }
    })
    .await;
}

#[tokio::test]
async fn in_shared_memory() {
    exercise(|setup| async move { open(":memory:", setup).await }).await;
}
