//! A server that was restored to an earlier state while an engine was at work: the commits after
//! the restore point are lost, and transaction ids are given out a second time.

use std::sync::Arc;
use std::time::Duration;

use ff_backend_postgres::PostgresBackend;
use ff_core::contracts::{ClaimArgs, EventFilter, Submission};
use ff_core::engine::StartAt;
use ff_core::engine_backend::EngineBackend;
use ff_core::types::WorkerInstanceId;
use ff_testkit::postgres::{Cluster, ClusterOptions};

use crate::database::{claim_from, options};

fn cluster() -> Cluster {
    let options = ClusterOptions { durable: true, archive: true, ..ClusterOptions::default() };
    Cluster::start(options).expect("a private server")
}

async fn open(cluster: &Cluster) -> Arc<PostgresBackend> {
    PostgresBackend::open(options(&cluster.url())).await.expect("open")
}

fn claim_by(worker: &str) -> ClaimArgs {
    let worker_instance_id = WorkerInstanceId::new(worker);
    ClaimArgs { worker_instance_id, ..claim_from("lane", 1, Duration::ZERO) }
}

fn psql(cluster: &Cluster, sql: &str) -> String {
    cluster.psql(&cluster.url(), sql).expect(sql)
}

/// The transactions that wrote the only execution and its attempt.
fn writers(cluster: &Cluster) -> String {
    psql(cluster, "SELECT e.xmin, a.xmin FROM ff_exec_core AS e, ff_attempt AS a")
}

/// Uses up transaction ids until the next transaction is this one.
fn forward_to(cluster: &Cluster, wanted: u64) {
    loop {
        let next = psql(cluster, "SELECT pg_snapshot_xmax(pg_current_snapshot())");
        let next: u64 = next.parse().expect("a number");
        assert!(next <= wanted, "transaction {wanted} is past: {next}");
        if next == wanted {
            return;
        }
        psql(cluster, "SELECT pg_current_xact_id()");
    }
}

/// The row that the engine remembers and the row that is stored have the same transaction id, and
/// are not the same: the lost one was leased to one worker, the stored one is leased to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_lost_commits_is_refused() {
    let mut cluster = cluster();
    let backend = open(&cluster).await;
    backend.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    cluster.back_up().expect("back up");
    cluster.create_restore_point("before").expect("restore point");
    for _ in 0..5 {
        psql(&cluster, "SELECT pg_current_xact_id()");
    }
    let lost = backend.claim_many(claim_by("first")).await.expect("claim").remove(0);
    let written = writers(&cluster);
    let claimed: u64 = written.split('|').next().expect("two").parse().expect("a number");

    cluster.restore("before").expect("restore");
    let other = open(&cluster).await;
    forward_to(&cluster, claimed);
    let claimed = other.claim_many(claim_by("second")).await.expect("claim").remove(0);
    assert_eq!(writers(&cluster), written, "the transaction id has come again");

    let refused = backend.complete(&lost.handle, None).await.expect_err("a lost lease");
    assert_eq!(refused.code(), "stale_lease");
    let stored = psql(&cluster, "SELECT public_state, version FROM ff_exec_core");
    assert_eq!(stored, "running|2", "nothing was written from a row of the lost history");
    other.complete(&claimed.handle, None).await.expect("the lease that stands");
    backend.close().await;
    other.close().await;
}

/// The same worker gets the same execution again, under the same attempt and epoch. What it still
/// does for the lost lease must not end the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_not_taken_for_one_that_was_lost() {
    let mut cluster = cluster();
    let backend = open(&cluster).await;
    backend.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    cluster.back_up().expect("back up");
    cluster.create_restore_point("before").expect("restore point");
    let lost = backend.claim_many(claim_by("worker")).await.expect("claim").remove(0);

    cluster.restore("before").expect("restore");
    let claimed = backend.claim_many(claim_by("worker")).await.expect("claim").remove(0);
    assert_eq!(lost.handle.lease_epoch(), claimed.handle.lease_epoch());
    for refused in [
        backend.progress(&lost.handle, Some(1), None).await.map(drop),
        backend.complete(&lost.handle, None).await.map(drop),
    ] {
        assert_eq!(refused.expect_err("a lost lease").code(), "stale_lease");
    }
    backend.complete(&claimed.handle, None).await.expect("the lease that stands");
    let late = backend.complete(&lost.handle, None).await.map(drop).expect_err("a lost lease");
    assert!(["stale_lease", "execution_not_active"].contains(&late.code()), "{late:?}");
    backend.close().await;
}

/// Three events are lost and five come: the numbers of the lost ones belong to others then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_of_lost_commits_is_refused() {
    let mut cluster = cluster();
    let backend = open(&cluster).await;
    let any = EventFilter::default();
    let submit = |count: usize| {
        let backend = backend.clone();
        async move {
            for _ in 0..count {
                // A lane is one shard of the log.
                backend.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
            }
        }
    };
    submit(4).await;
    let end = || async { backend.subscribe(any.clone(), StartAt::Latest).await.expect("open") };
    let kept = end().await.cursor();
    cluster.back_up().expect("back up");
    cluster.create_restore_point("before").expect("restore point");
    submit(3).await;
    // One reader holds a cursor, another is still at it.
    let mut reading = end().await;
    let lost = reading.cursor();

    cluster.restore("before").expect("restore");
    submit(5).await;
    let resumed = backend.subscribe(any.clone(), StartAt::After(lost)).await;
    assert_eq!(resumed.map(drop).unwrap_err().code(), "cursor_from_other_history");
    assert_eq!(reading.try_next().await.unwrap_err().code(), "cursor_from_other_history");
    let mut rest = backend.subscribe(any.clone(), StartAt::After(kept)).await.expect("it stands");
    let mut count = 0;
    while rest.try_next().await.expect("events").is_some() {
        count += 1;
    }
    assert_eq!(count, 5, "a cursor from before the restore point goes on");
    backend.close().await;
}
