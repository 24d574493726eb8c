//! `flowfabric doctor`, on stores that something has happened to.

use std::sync::Arc;
use std::time::Duration;

use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_core::backend::CapabilitySet;
use ff_core::contracts::{ClaimArgs, EventFilter, EventType, PutQuotaArgs, Submission};
use ff_core::engine::StartAt;
use ff_core::engine::clock::ManualClock;
use ff_core::engine_backend::{EngineBackend, LimitOperations};
use ff_core::engine_error::EngineError;
use ff_core::operations::Operation;
use ff_core::rows::{LimitStateRow, Standing};
use ff_core::store::{Change, Needs, Query, Scan, World};
use ff_core::types::{LaneId, QuotaId, WorkerId, WorkerInstanceId};
use serde_json::Value;

use crate::command;

fn parsed(ran: &command::Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
}

fn found(checks: &Value, name: &str) -> String {
    let mut checks = checks["checks"].as_array().expect("checks").iter();
    let check = checks.find(|one| one["check"] == name).expect(name);
    check["found"].as_str().unwrap_or_default().to_owned()
}

fn claim() -> ClaimArgs {
    ClaimArgs {
        lanes: vec![LaneId::new("lane")],
        capabilities: CapabilitySet::default(),
        worker_id: WorkerId::new("w"),
        worker_instance_id: WorkerInstanceId::new("w-1"),
        lease_ttl_ms: 30_000,
        max: 1,
        wait: Duration::ZERO,
    }
}

/// A store in which a worker died years ago with work in hand, and nobody has looked since.
async fn forgotten(path: &str) {
    let mut options = SqliteOptions::new(path);
    options.clock = Arc::new(ManualClock::new(1_600_000_000_000));
    let engine = SqliteBackend::open(options).await.expect("a store");
    engine.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    assert_eq!(engine.claim_many(claim()).await.expect("claim").len(), 1);
    engine.close().await;
}

#[test]
fn a_store_is_mended_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(forgotten(&format!("{data}/flowfabric.db")));
    let doctor = ["doctor", "--data", data, "--repair", "--old", "36500d", "-o", "json"];
    let mended = command::run(&doctor, &[]);
    let checks = parsed(&mended);
    let found = |name: &str| found(&checks, name);
    assert_eq!(found("backlog"), "1 waiting, 0 active", "the dead worker's is handed out again");
    assert_eq!(found("leases"), "0 expired and still held");
    assert_eq!(found("timers"), "none is late");
    assert_eq!(found("counters"), "all are right, those of 0 open flows too");
    assert!(mended.stderr.contains("overdue"), "{}", mended.stderr);
    let old = command::run(&["doctor", "--data", data], &[]);
    assert!(old.code == 1 && old.stderr.contains("try:"), "{}", old.stderr);
    assert!(old.stdout.contains("oldest waiting"), "{}", old.stdout);
}

/// Whatever is overdue stays so until a server runs or a repair is asked for.
#[test]
fn a_look_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let path = format!("{data}/flowfabric.db");
    runtime.block_on(forgotten(&path));
    for _ in 0..3 {
        let looked = command::run(&["doctor", "--data", data, "-o", "json"], &[]);
        let checks = parsed(&looked);
        assert_eq!(found(&checks, "backlog"), "0 waiting, 1 active", "{}", looked.stderr);
        assert_eq!(found(&checks, "leases"), "1 expired and still held");
        assert!(found(&checks, "timers").ends_with(" s late"), "{}", looked.stdout);
    }
    let events = runtime.block_on(async {
        let mut options = SqliteOptions::new(&path);
        options.engine.manual_sweeps = true;
        let engine = SqliteBackend::open(options).await.expect("a store");
        let mut events =
            engine.subscribe(EventFilter::default(), StartAt::Oldest).await.expect("the log");
        let mut types = Vec::new();
        while let Some(event) = events.try_next().await.expect("events") {
            types.push(event.event_type);
        }
        engine.close().await;
        types
    });
    assert_eq!(events, [EventType::Submitted, EventType::Claimed]);
}

/// A store that has lost its timers: work waits for a delay that is over, and a worker has died.
async fn without_timers(path: &str) {
    let mut options = SqliteOptions::new(path);
    options.clock = Arc::new(ManualClock::new(1_600_000_000_000));
    let engine = SqliteBackend::open(options).await.expect("a store");
    let delayed = Submission::new("lane", "kind").delay(Duration::from_secs(60));
    engine.submit(vec![Submission::new("lane", "kind"), delayed]).await.expect("submit");
    assert_eq!(engine.claim_many(claim()).await.expect("claim").len(), 1);
    let lost =
        engine.submit_with(|sqlite| Ok((sqlite.execute("DELETE FROM ff_timer", [])?, vec![])));
    assert_eq!(lost.await.expect("deleted").0, 2);
    engine.close().await;
}

#[test]
fn missing_timers_are_told_and_armed_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(without_timers(&format!("{data}/flowfabric.db")));
    let sick = command::run(&["doctor", "--data", data, "-o", "json"], &[]);
    assert_eq!(sick.code, 1, "{}", sick.stderr);
    assert!(found(&parsed(&sick), "waits").starts_with("2 would wait for ever: the lease timer"));
    assert!(sick.stderr.contains("--repair"), "{}", sick.stderr);
    let doctor = ["doctor", "--data", data, "--repair", "-o", "json"];
    let mended = command::run(&doctor, &[]);
    assert_eq!(mended.stderr.matches("armed again: ").count(), 2, "{}", mended.stderr);
    let checks = parsed(&mended);
    assert_eq!(found(&checks, "waits"), "0 wait for a time, and each has a timer");
    assert_eq!(found(&checks, "leases"), "0 expired and still held");
    assert_eq!(found(&checks, "backlog"), "2 waiting, 0 active", "both can be handed out");
    // They have been waiting for years, which no repair can change.
    assert!(mended.code == 1 && !mended.stderr.contains("--repair"), "{}", mended.stderr);
}

/// Somebody has written into the table by hand.
struct ByHand(LimitStateRow);

impl Operation for ByHand {
    type Reply = ();

    const NAME: &'static str = "by_hand";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<LimitStateRow>(&self.0.key);
    }

    fn decide(&self, _: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        change.update(&self.0);
        Ok(((), change))
    }
}

/// A store in which a quota counts two permits that nobody holds, and work waits for one of them.
async fn miscounted(path: &str) {
    let engine = SqliteBackend::open(SqliteOptions::new(path)).await.expect("a store");
    let quota = PutQuotaArgs {
        quota_id: QuotaId::new("cap"),
        lane_id: Some(LaneId::new("lane")),
        concurrency: Some(2),
        ..PutQuotaArgs::default()
    };
    engine.put_quota(quota).await.expect("a quota");
    engine.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    let first = engine.claim_many(claim()).await.expect("claim").remove(0);
    engine.complete(&first.handle, None).await.expect("complete");
    let scans = vec![Scan::of::<LimitStateRow>(Vec::new()).limit(1)];
    let rows = engine.engine().query(Query::Records { keys: Vec::new(), scans }).await;
    let mut state: LimitStateRow = rows.expect("rows").records().expect("rows").remove(0);
    let Standing::Quota(permits) = &mut state.standing.0 else { panic!("a quota's key") };
    permits.in_use = 2;
    engine.engine().run(None, ByHand(state)).await.expect("written");
    engine.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    assert!(engine.claim_many(claim()).await.expect("claim").is_empty());
    engine.close().await;
}

#[test]
fn counters_that_are_wrong_are_told_and_mended() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(miscounted(&format!("{data}/flowfabric.db")));
    let wrong = "1 are wrong: in_use of quota cap says 2 and is 0";
    let sick = command::run(&["doctor", "--data", data, "-o", "json"], &[]);
    assert_eq!(sick.code, 1, "{}", sick.stderr);
    assert_eq!(found(&parsed(&sick), "counters"), wrong);
    let mended = command::run(&["doctor", "--data", data, "--repair", "-o", "json"], &[]);
    assert_eq!(mended.code, 0, "{}{}", mended.stdout, mended.stderr);
    assert!(mended.stderr.contains("mended: in_use of quota cap says 2 and is 0"));
    assert!(!mended.stderr.contains('\u{1b}'), "no bars into a pipe: {}", mended.stderr);
    let checks = parsed(&mended);
    assert_eq!(found(&checks, "counters"), "all are right, those of 0 open flows too");
    assert_eq!(found(&checks, "backlog"), "1 waiting, 0 active", "it can be handed out again");
}
