//! Kills engines, workers and servers under load; and the harness's own workload without kills.

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
    let run = chaos(&["run", "--kills", &kills().to_string()]);
    assert!(run.passed, "the run did not pass:\n{}", run.output);
    // What never happened was not checked either.
    for kind in ["plant", "signal", "step", "append", "report", "sweep", "trigger"] {
        let happened = run.output.lines().any(|line| line.trim_start().starts_with(kind));
        assert!(happened || kills() < 100, "nobody could {kind}:\n{}", run.output);
    }
}

/// Engines, workers and the server itself, each a fifth as often as the one process of SQLite.
#[test]
fn postgres_survives_kills() {
    let each = (kills() / 5).max(1).to_string();
    let engines = ["postgres", "--engine-kills", &each, "--worker-kills", &each];
    let run = chaos(&[&engines[..], &["--server-kills", &each]].concat());
    assert!(run.passed, "the run did not pass:\n{}", run.output);
}

/// Servers and workers that know nothing but HTTP, on both stores, among clients whose tokens are
/// revoked and clients that are slow. Of two servers one knows a token for five seconds after the
/// other has revoked it.
#[test]
fn http_survives_kills() {
    let each = (kills() / 20).max(2).to_string();
    for (store, revoked_ms) in [("sqlite", "2000"), ("postgres", "7000")] {
        let few = ["http", "--store", store, "--server-kills", &each, "--worker-kills", &each];
        let longer = ["--revoked-ms", revoked_ms, "--min-ms", "200", "--max-ms", "800"];
        let run = chaos(&[&few[..], &longer[..]].concat());
        assert!(run.passed, "the run on {store} did not pass:\n{}", run.output);
        // What was never tried was not refused either.
        let vacuous = run.output.contains("refused later than 2000 ms: 0");
        assert!(!vacuous || kills() < 100, "no revoked token was tried again:\n{}", run.output);
    }
}

/// A flow of 2,000 nodes side by side and one of 1,000 behind each other, in one process.
#[test]
fn large_flows_survive_kills() {
    let kills = (kills() / 8).max(2).to_string();
    let run = chaos(&["large", "--width", "2000", "--depth", "1000", "--kills", &kills]);
    assert!(run.passed, "the run did not pass:\n{}", run.output);
}

/// A harness that has never found anything proves nothing.
#[test]
fn a_server_that_forgets_commits_is_found_out() {
    let few = ["postgres", "--engine-kills", "2", "--worker-kills", "2", "--server-kills", "8"];
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let run = chaos(&[&few[..], &["--lossy", "yes", "--dir", dir]].concat());
    assert!(!run.passed, "nothing was found:\n{}", run.output);
    let found = ["cursor_from_other_history", "Lost: ", "Gap: ", "DoubleAccepted: "];
    assert!(found.iter().any(|words| run.output.contains(words)), "{}", run.output);
}

/// Of two servers one knows a token for up to five seconds after the other has revoked it, which a
/// run that allows no time at all must find.
#[test]
fn a_token_that_outlives_its_revocation_is_found_out() {
    let few = ["http", "--store", "postgres", "--server-kills", "1", "--worker-kills", "4"];
    let strict = ["--revoked-ms", "0", "--min-ms", "600", "--max-ms", "1200"];
    let folder = tempfile::tempdir().unwrap();
    let dir = ["--dir", folder.path().to_str().unwrap()];
    let run = chaos(&[&few[..], &strict[..], &dir[..]].concat());
    assert!(!run.passed && run.output.contains("Trespass: "), "{}", run.output);
}

struct Run {
    passed: bool,
    output: String,
}

/// Runs the harness's own program, with the seed that the environment asks for.
fn chaos(args: &[&str]) -> Run {
    let seed = std::env::var("FF_CHAOS_SEED").unwrap_or("1".to_owned());
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-chaos"));
    let output = command.args(args).args(["--seed", &seed]).output().expect("the harness starts");
    let (report, progress) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let (passed, output) = (output.status.success(), format!("{progress}\n{report}"));
    println!("{output}");
    Run { passed, output }
}

fn kills() -> u32 {
    let wanted = std::env::var("FF_CHAOS_KILLS").ok();
    wanted.map_or(100, |kills| kills.parse().expect("FF_CHAOS_KILLS is a number"))
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
