//! A disk that refuses to flush: nothing is acknowledged after that, wherever SQLite met the
//! refusal. What the kernel had not written yet may be gone, and a later flush that succeeds does
//! not bring it back, so only opening the files anew helps.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ff_backend_sqlite::{SqliteBackend, SqliteOptions, Synchronous};
use ff_core::contracts::{ListExecutionsArgs, Submission};
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::EngineError;
use ff_core::store::Query;

const CONTROL: &str = "FF_TEST_FSYNC";

/// Runs one of the ignored tests below in a process whose flushes can be made to fail.
fn on_a_bad_disk(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let shim = folder.path().join("failing_fsync.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/failing_fsync.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(&source).arg("-ldl");
    assert!(compiler.status().expect("a C compiler").success());
    let mut child = Command::new(std::env::current_exe().expect("this test"));
    child.args(["--exact", &format!("flush::{name}"), "--ignored", "--nocapture"]);
    child.env("LD_PRELOAD", &shim).env(CONTROL, folder.path().join("control"));
    let output = child.output().expect("a process");
    let told = String::from_utf8_lossy(&output.stdout);
    let cause = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{cause}");
}

struct Disk {
    path: PathBuf,
    control: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let control = PathBuf::from(std::env::var_os(CONTROL).expect("a path"));
        let folder = control.parent().unwrap().canonicalize().unwrap();
        Self { path: folder.join("a.db"), control }
    }

    async fn open(&self, synchronous: Synchronous) -> Arc<SqliteBackend> {
        let mut options = SqliteOptions::new(self.path.to_str().unwrap());
        options.synchronous = synchronous;
        SqliteBackend::open(options).await.unwrap()
    }

    fn fail(&self, suffix: &str) {
        let path = format!("{}{suffix}", self.path.display());
        std::fs::write(&self.control, path).unwrap();
    }

    fn heal(&self) {
        std::fs::remove_file(&self.control).unwrap();
    }
}

async fn submit(backend: &SqliteBackend) -> Result<(), EngineError> {
    let item = Submission::new("flush", "test").payload(vec![7; 900_000]);
    backend.submit(vec![item]).await.map(drop)
}

/// Submits until the write-ahead log is checkpointed, and wants the engine to stop then.
async fn stops_at_the_checkpoint(synchronous: Synchronous, suffix: &str) {
    let disk = Disk::new();
    let backend = disk.open(synchronous).await;
    // The first commit begins the log, and flushes that itself.
    submit(&backend).await.unwrap();
    disk.fail(suffix);
    let mut accepted = 1;
    let refused = loop {
        match submit(&backend).await {
            Ok(()) => accepted += 1,
            Err(refused) => break refused,
        }
        // The log is checkpointed at 32 MiB.
        assert!(accepted < 60, "acknowledged behind a flush that failed");
    };
    assert_eq!(refused.code(), "transport", "{refused}");
    assert!(refused.to_string().contains("refused to flush"), "{refused}");
    disk.heal();
    submit(&backend).await.expect_err("a flush that succeeds later proves nothing");
    backend.engine().query(Query::Log).await.expect_err("not ready");
    backend.close().await;
    assert_eq!(found(&disk).await, accepted, "what was acknowledged is there, and nothing else");
}

async fn found(disk: &Disk) -> usize {
    let backend = disk.open(Synchronous::Full).await;
    let args = ListExecutionsArgs { limit: 100, ..ListExecutionsArgs::default() };
    backend.list_executions(args).await.unwrap().executions.len()
}

#[test]
fn a_flush_of_the_file_that_fails_in_a_checkpoint_stops_the_engine() {
    on_a_bad_disk("child_fails_on_the_file");
}

#[test]
fn a_flush_of_the_log_that_fails_in_a_checkpoint_stops_the_engine() {
    on_a_bad_disk("child_fails_on_the_log");
}

#[test]
fn a_flush_that_fails_in_a_commit_leaves_its_outcome_unknown() {
    on_a_bad_disk("child_fails_in_a_commit");
}

#[tokio::test]
#[ignore = "runs as a child of other tests"]
async fn child_fails_on_the_file() {
    stops_at_the_checkpoint(Synchronous::Full, "").await;
}

#[tokio::test]
#[ignore = "runs as a child of other tests"]
async fn child_fails_on_the_log() {
    stops_at_the_checkpoint(Synchronous::Normal, "-wal").await;
}

#[tokio::test]
#[ignore = "runs as a child of other tests"]
async fn child_fails_in_a_commit() {
    let disk = Disk::new();
    let backend = disk.open(Synchronous::Full).await;
    submit(&backend).await.unwrap();
    disk.fail("-wal");
    let unknown = submit(&backend).await.expect_err("not flushed");
    assert_eq!(unknown.code(), "outcome_unknown", "{unknown}");
    disk.heal();
    let refused = submit(&backend).await.expect_err("a later flush proves nothing");
    assert_eq!(refused.code(), "transport", "{refused}");
    backend.engine().query(Query::Log).await.expect_err("not ready");
    let log = || std::fs::metadata(format!("{}-wal", disk.path.display())).unwrap().len();
    let before = log();
    backend.close().await;
    // A checkpoint copies what it finds in the log without looking at checksums; a start does.
    assert_eq!(log(), before, "the log stays for the next start");
    assert!((1..=2).contains(&found(&disk).await));
}
