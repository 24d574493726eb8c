//! Kills the SQLite engine under load, and the harness's own workload on the memory store.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ff_chaos::workload::{self, Load};
use ff_chaos::{checker, evidence};
use ff_core::engine::EngineConfig;
use ff_core::engine::clock::SystemClock;
use ff_core::store::memory::MemoryBackend;
use tokio::runtime::Runtime;

/// `FF_CHAOS_KILLS` and `FF_CHAOS_SEED` ask for a longer run, or for another one.
#[test]
fn sqlite_survives_kills() {
    let setting = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let output = Command::new(env!("CARGO_BIN_EXE_ff-chaos"))
        .args(["run", "--kills", &setting("FF_CHAOS_KILLS", "100")])
        .args(["--seed", &setting("FF_CHAOS_SEED", "1")])
        .output()
        .expect("the harness starts");
    let (report, progress) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{progress}\n{report}");
    assert!(output.status.success(), "the run did not pass:\n{progress}\n{report}");
}

/// The same load and the same checks without a kill: what they report is never the harness's own.
#[test]
fn the_memory_store_passes_without_kills() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Runtime::new().unwrap();
    let backend = engine
        .block_on(async { MemoryBackend::new(Arc::new(SystemClock), EngineConfig::default()) });
    for seed in 0..3 {
        // Dropping a runtime waits until nothing of it runs any more, as a kill would.
        let clients = Runtime::new().unwrap();
        let load = workload::run_until_killed(backend.clone(), dir.path(), Load::alone(seed));
        let ended = clients
            .block_on(async { tokio::time::timeout(Duration::from_millis(300), load).await });
        assert!(ended.is_err(), "the load ended by itself: {ended:?}");
    }
    let evidence = engine.block_on(async {
        let patience = Duration::from_secs(30);
        workload::drain(backend.clone(), dir.path(), 9, patience).await.unwrap();
        evidence::collect(backend, dir.path()).await.unwrap()
    });
    let report = checker::check(&evidence, 3);
    assert!(report.passed(), "{report}{:#?}", report.violations);
}
