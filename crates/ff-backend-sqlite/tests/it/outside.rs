//! What happens to the files from outside: other writers, other names, files that go away, and who
//! may read them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ff_backend_sqlite::{SqliteBackend, SqliteError, rusqlite};
use ff_core::contracts::Submission;
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::EngineError;
use ff_core::store::Query;

async fn open(path: &Path) -> Arc<SqliteBackend> {
    SqliteBackend::new(path.to_str().expect("a plain path")).await.expect("open")
}

async fn try_submit(backend: &SqliteBackend) -> Result<(), EngineError> {
    backend.submit(vec![Submission::new("outside", "test")]).await.map(drop)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Runs one of the ignored tests below in a process of its own.
fn child(name: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", &format!("outside::{name}"), "--ignored", "--nocapture"]);
    command.env("FF_TEST_PATH", path);
    command
}

fn passes(mut command: Command) -> bool {
    let output = command.output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "{text}");
    print!("{text}");
    output.status.success()
}

fn given_path() -> PathBuf {
    PathBuf::from(std::env::var_os("FF_TEST_PATH").expect("a path"))
}

#[tokio::test]
#[ignore = "runs as a child of other tests"]
async fn child_opens_the_engine() {
    open(&given_path()).await.close().await;
}

#[test]
#[ignore = "runs as a child of other tests"]
fn child_reads_with_plain_sqlite() {
    let connection = rusqlite::Connection::open(given_path()).unwrap();
    let count = "SELECT count(*) FROM ff_exec_core";
    let found: i64 = connection.query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(found, 1);
}

#[tokio::test]
async fn an_event_of_another_writer_does_not_block_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let backend = open(&path).await;
    try_submit(&backend).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    let add = "INSERT INTO ff_event (seq, at_ms, event_type) \
               SELECT max(seq) + 1, 1, 'lane_paused' FROM ff_event";
    for _ in 0..3 {
        assert_eq!(other.execute(add, []).unwrap(), 1);
        try_submit(&backend).await.expect("the engine goes on behind the other's event");
    }
    let count = "SELECT count(*), max(seq) FROM ff_event";
    let found: (i64, i64) = other.query_row(count, [], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
    assert_eq!(found, (7, 7), "numbered without a hole");
}

#[tokio::test]
async fn an_event_of_the_callers_own_closure_is_counted() {
    let backend = SqliteBackend::new(":memory:").await.unwrap();
    let add = "INSERT INTO ff_event (seq, at_ms, event_type) \
               SELECT coalesce(max(seq), 0) + 1, 1, 'lane_paused' FROM ff_event";
    let work = move |connection: &rusqlite::Connection| {
        connection.execute(add, [])?;
        Ok(((), vec![Submission::new("outside", "test")]))
    };
    backend.submit_with(work).await.expect("submitted behind it");
}

#[tokio::test]
async fn one_file_has_one_engine_under_whatever_name() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("a.db"), folder.path().join("dangling.db"));
    std::os::unix::fs::symlink("a.db", &link).unwrap();
    let backend = open(&link).await;
    assert!(path.is_file() && beside(&path, "-wal").is_file(), "made where the link points");
    let hard = folder.path().join("hard.db");
    std::fs::hard_link(&path, &hard).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap().path();
        if entry.extension().is_some_and(|extension| extension == "lock") {
            std::fs::remove_file(entry).unwrap();
        }
    }
    for name in [&path, &link, &hard] {
        let here = SqliteBackend::new(name.to_str().unwrap()).await.map(drop);
        assert!(matches!(here, Err(SqliteError::InUse(_))), "{}: {here:?}", name.display());
        assert!(!passes(child("child_opens_the_engine", name)), "{}", name.display());
    }
    backend.close().await;
    assert!(passes(child("child_opens_the_engine", &path)));
    open(&path).await.close().await;
}

/// A process that closes any descriptor of a file loses the locks that SQLite holds on it; the
/// next connection of another process would then take the write-ahead log for left over.
#[tokio::test]
async fn a_refused_opener_leaves_the_locks_of_sqlite_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let backend = open(&path).await;
    try_submit(&backend).await.unwrap();
    SqliteBackend::new(path.to_str().unwrap()).await.map(drop).expect_err("in use");
    assert!(passes(child("child_reads_with_plain_sqlite", &path)));
    assert!(beside(&path, "-wal").is_file(), "the other process was not the last to use it");
    try_submit(&backend).await.unwrap();

    // The same for a connection of the caller's own that outlives the engine.
    let own = rusqlite::Connection::open(&path).unwrap();
    own.execute_batch("DELETE FROM ff_exec_core WHERE rowid > 1").unwrap();
    backend.close().await;
    assert!(passes(child("child_reads_with_plain_sqlite", &path)));
    assert!(beside(&path, "-wal").is_file(), "the caller's connection still uses it");
    drop(own);
}

/// The engine refuses, and says that it is not ready, once its files are not where they were.
async fn notices(disturb: impl FnOnce(&Path), words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let path = data.join("a.db");
    let backend = open(&path).await;
    try_submit(&backend).await.unwrap();
    backend.engine().query(Query::Log).await.expect("ready");
    disturb(&path);
    let not_ready = backend.engine().query(Query::Log).await.expect_err("not ready");
    assert!(not_ready.to_string().contains(words), "{not_ready}");
    let refused = try_submit(&backend).await.expect_err("nothing is acknowledged");
    assert_eq!(refused.code(), "transport", "{refused}");
    assert!(refused.to_string().contains(words), "{refused}");
    backend.counts().await.expect_err("reads are refused as well");
    backend.close().await;
}

#[tokio::test]
async fn files_that_go_away_are_noticed() {
    notices(|path| std::fs::remove_file(path).unwrap(), "was removed or moved away").await;
    notices(|path| std::fs::rename(path, path.with_file_name("b")).unwrap(), "moved away").await;
    let log = |path: &Path| std::fs::remove_file(beside(path, "-wal")).unwrap();
    notices(log, "a.db-wal was removed").await;
    let replaced = |path: &Path| {
        let copy = path.with_file_name("copy");
        std::fs::copy(path, &copy).unwrap();
        std::fs::rename(copy, path).unwrap();
    };
    notices(replaced, "was replaced by another file").await;
    let folder = |path: &Path| {
        let data = path.parent().unwrap();
        std::fs::rename(data, data.with_file_name("elsewhere")).unwrap();
    };
    notices(folder, "was removed or moved away").await;
}

/// A write that comes first after the file has gone is refused, and nothing of it is kept.
#[tokio::test]
async fn a_file_that_was_moved_away_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let backend = open(&path).await;
    try_submit(&backend).await.unwrap();
    std::fs::rename(&path, &moved).unwrap();
    let refused = try_submit(&backend).await.expect_err("the file is gone");
    assert_eq!(refused.code(), "transport", "{refused}");
    // Another file takes its place while the engine still holds the old one.
    std::fs::write(&path, b"").unwrap();
    backend.close().await;
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "what is there now is left alone");
    let left = std::fs::metadata(beside(&path, "-wal")).map_or(0, |log| log.len());
    assert_eq!(left, 0, "no log is left that the next one would take for its own");
    assert!(passes(child("child_reads_with_plain_sqlite", &moved)));
}

#[tokio::test]
async fn only_the_owner_can_read_new_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let backend = open(&path).await;
    try_submit(&backend).await.unwrap();
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
        seen.push(entry.file_name().into_string().unwrap());
    }
    seen.sort();
    assert_eq!(seen[..3], ["a.db", "a.db-shm", "a.db-wal"]);
}
