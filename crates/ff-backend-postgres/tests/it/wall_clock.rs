//! The wall clock of a real server is set while an engine is at work: each timer fires once.

use std::sync::Arc;
use std::time::Duration;

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_core::condition::{ResumeCondition, SignalMatcher};
use ff_core::contracts::{
    ClaimedExecution, Event, EventFilter, EventType, OverlapPolicy, PutScheduleArgs, ScheduleId,
    ScheduleTemplate, Submission, SuspendArgs, TimeoutBehavior, Timing,
};
use ff_core::engine::{StartAt, Subscription};
use ff_core::engine_backend::{
    EngineBackend, ScheduleOperations, SuspensionOperations, TimerOperations,
};
use ff_core::store::Query;
use ff_testkit::postgres::{Cluster, ClusterOptions};
use sqlx::Executor;

use crate::clocks::wait_for_a_waiter;
use crate::database::{claim_from, options, pool};

const MINUTE: Duration = Duration::from_secs(60);
/// In seconds. Everything that waits for a minute is due by then, and a schedule once.
const LATER: i64 = 90;

/// What each lane waits for.
const EXPECTED: [(&str, EventType); 5] = [
    ("deadline", EventType::Expired),
    ("delayed", EventType::Ready),
    ("leased", EventType::LeaseExpired),
    ("scheduled", EventType::Submitted),
    ("suspended", EventType::Failed),
];

async fn start(backend: &PostgresBackend, lane: &str) -> ClaimedExecution {
    backend.submit(vec![Submission::new(lane, "kind")]).await.expect("submit");
    backend.claim_many(claim_from(lane, 1, Duration::ZERO)).await.expect("claim").remove(0)
}

/// Makes one of each that waits for a minute, and returns the lease.
async fn arm(backend: &PostgresBackend) -> ClaimedExecution {
    let items = vec![
        Submission::new("delayed", "kind").delay(MINUTE),
        Submission::new("deadline", "kind").deadline(MINUTE),
    ];
    backend.submit(items).await.expect("submit");
    let suspended = start(backend, "suspended").await;
    let go = ResumeCondition::Single { waitpoint_key: "go".into(), matcher: SignalMatcher::Any };
    let args = SuspendArgs::new(go).without_tokens().timeout(MINUTE, TimeoutBehavior::Fail);
    backend.suspend(&suspended.handle, args).await.expect("suspend");
    let id = ScheduleId::new("default", "minutely");
    let template = ScheduleTemplate::new("scheduled", "kind");
    let schedule = PutScheduleArgs::new(id, Timing::every(MINUTE), template);
    let schedule = PutScheduleArgs { overlap: OverlapPolicy::Allow, ..schedule };
    backend.put_schedule(schedule).await.expect("put");
    start(backend, "leased").await
}

async fn follow(backend: &Arc<PostgresBackend>) -> Subscription {
    let event_types = EXPECTED.iter().map(|(_, event)| *event).collect();
    let filter = EventFilter { event_types, ..EventFilter::default() };
    backend.subscribe(filter, StartAt::Oldest).await.expect("subscribe")
}

/// The lane and the type of an event that a timer caused.
fn fired(event: &Event) -> Option<(&'static str, EventType)> {
    let lane = event.lane_id.as_ref()?.as_str();
    EXPECTED.into_iter().find(|expected| *expected == (lane, event.event_type))
}

async fn fired_so_far(backend: &Arc<PostgresBackend>) -> Vec<(&'static str, EventType)> {
    let mut events = follow(backend).await;
    let mut all = Vec::new();
    while let Some(event) = events.try_next().await.expect("events") {
        all.extend(fired(&event));
    }
    all.sort_unstable_by_key(|(lane, _)| *lane);
    all
}

async fn nothing_is_missing(backend: &PostgresBackend) {
    assert_eq!(backend.check_timers(false).await.expect("checked").missing, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_timer_fires_once_however_the_servers_clock_is_set() {
    let options_of_server = ClusterOptions { own_clock: true, ..ClusterOptions::default() };
    let cluster = Cluster::start(options_of_server).expect("a private server");
    let clock = cluster.clock().expect("it has a clock of its own");
    // Without notifications the sweeper looks every second.
    let options = PostgresOptions { listen: false, ..options(&cluster.url()) };
    let backend = PostgresBackend::open(options).await.expect("open");
    let leased = arm(&backend).await;
    nothing_is_missing(&backend).await;

    // The sweeper finds everything due and waits for a lock; then it is not due any more.
    let pool = pool(&cluster.url(), 2).await;
    let mut other = pool.begin().await.expect("a transaction");
    other.execute("SELECT FROM ff_exec_core FOR UPDATE").await.expect("locked");
    clock.set_offset(LATER).expect("set");
    wait_for_a_waiter(&pool, "public").await;
    clock.set_offset(0).expect("set");
    other.rollback().await.expect("unlocked");
    backend.engine().sweep().await.expect("swept");
    assert_eq!(fired_so_far(&backend).await, [], "nothing is due by the server's clock");
    nothing_is_missing(&backend).await;
    backend.progress(&leased.handle, Some(1), None).await.expect("the lease stands");

    clock.set_offset(LATER).expect("set");
    // The engine asks the server for the time at least once a second; here it does so at once.
    backend.engine().query(Query::NextDue(None)).await.expect("asked");
    let refused = backend.complete(&leased.handle, None).await.expect_err("it has expired");
    assert!(["lease_expired", "stale_lease"].contains(&refused.code()), "{refused:?}");
    let mut events = follow(&backend).await;
    let mut seen = Vec::new();
    while seen.len() < EXPECTED.len() {
        seen.extend(fired(&events.next().await.expect("an event")));
    }

    for offset in [-LATER, 0, LATER] {
        clock.set_offset(offset).expect("set");
        backend.engine().sweep().await.expect("swept");
        nothing_is_missing(&backend).await;
    }
    assert_eq!(fired_so_far(&backend).await, EXPECTED, "each of them once");
    pool.close().await;
    backend.close().await;
}
