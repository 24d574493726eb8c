//! Two engines look at the same schedules: every due time has one run, whoever was first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_core::contracts::{
    BackfillScheduleArgs, ListExecutionsArgs, MissedPolicy, OverlapPolicy, PutScheduleArgs,
    ScheduleId, ScheduleTemplate, Timing, TriggerScheduleArgs,
};
use ff_core::engine::clock::{Clock, ManualClock};
use ff_core::engine_backend::{EngineBackend, ScheduleOperations};
use ff_core::types::TimestampMs;

use crate::database::Schema;

const MINUTE: Duration = Duration::from_secs(60);
const MINUTES: usize = 40;

/// How many runs each due time has.
async fn runs(engine: &PostgresBackend) -> BTreeMap<String, usize> {
    let args = ListExecutionsArgs { limit: 1_000, ..ListExecutionsArgs::default() };
    let page = engine.list_executions(args).await.expect("list");
    assert!(page.next_cursor.is_none());
    let mut runs = BTreeMap::new();
    for run in &page.executions {
        let snapshot = engine.describe_execution(&run.execution_id).await.expect("describe");
        let due = snapshot.expect("it is there").tags["schedule.due_at"].clone();
        *runs.entry(due).or_default() += 1;
    }
    runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_due_time_has_one_run_whoever_looks() {
    let schema = Schema::new();
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let open = || async {
        let options = PostgresOptions { clock: Some(clock.clone() as _), ..schema.options() };
        PostgresBackend::open(options).await.expect("open")
    };
    let engines = [open().await, open().await];
    let id = ScheduleId::new("default", "minutely");
    let template = ScheduleTemplate::new("lane", "kind");
    let mut schedule = PutScheduleArgs::new(id.clone(), Timing::every(MINUTE), template);
    schedule.overlap = OverlapPolicy::Allow;
    schedule.missed = MissedPolicy::All { max: 100 };
    let began = clock.now();
    engines[0].put_schedule(schedule).await.expect("put");
    for minute in 0..MINUTES {
        clock.advance(if minute % 10 == 9 { 3 * MINUTE } else { MINUTE });
        // Both at once, beside the sweepers that each of them has.
        let [one, other] = engines.each_ref().map(|engine| engine.engine().sweep());
        let (one, other) = tokio::join!(one, other);
        one.and(other).expect("sweep");
    }
    let passed = clock.now().since(began).as_secs() / 60;
    let found = runs(&engines[1]).await;
    assert_eq!(found.len() as u64, passed, "a run for each minute: {found:?}");
    assert!(found.values().all(|count| *count == 1), "{found:?}");
    let seen = engines[1].describe_schedule(&id, 0).await.expect("describe").expect("it exists");
    assert_eq!((seen.started, seen.overlapped), (passed, 0));

    // The same request on both engines, and a range that was run already.
    let trigger = TriggerScheduleArgs { schedule_id: id.clone(), request_id: Some("once".into()) };
    let [one, other] = engines.each_ref().map(|engine| engine.trigger_schedule(trigger.clone()));
    let (one, other) = tokio::join!(one, other);
    assert_eq!(one.expect("trigger"), other.expect("trigger"));
    let (from, until) = (TimestampMs(began.0 + 1), clock.now());
    let range = BackfillScheduleArgs { schedule_id: id.clone(), from, until };
    engines[0].backfill_schedule(range).await.expect("backfill");
    engines[1].engine().sweep().await.expect("sweep");
    let seen = engines[0].describe_schedule(&id, 0).await.expect("describe").expect("it exists");
    assert_eq!((seen.started, seen.backfills.len()), (passed + 1, 0));
    for engine in &engines {
        engine.close().await;
    }
    schema.drop().await;
}
