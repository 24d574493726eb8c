//! Everything that waits for a time has a timer: a look that comes too early leaves it armed, one
//! that was lost is found and armed again, and rows that were written by hand get theirs.

use std::collections::BTreeSet;
use std::time::Duration;

use ff_core::backend::HandleKind;
use ff_core::contracts::{
    EventType, FailureClass, ListWorkersArgs, PutQuotaArgs, RateLimit, TimeoutBehavior,
};
use ff_core::engine_backend::{
    BulkOperations, LimitOperations, ScheduleOperations, TimerOperations, WorkerOperations,
};
use ff_core::rows::{AttemptKey, AttemptRow, ExecutionRow, TimerKey, TimerRow};
use ff_core::state::{
    AttemptState, AttemptType, EligibilityState, LifecyclePhase, OwnershipState, PublicState,
};
use ff_core::store::{Change, Query, Write};
use ff_core::types::ExecutionId;

use super::counter::ByHand;
use super::waits::gate;
use super::{Fixture, bulk, claim_from, failure, item, new_id, quota, retries, schedule, worker};

pub(super) async fn timers(f: &Fixture) -> Vec<TimerRow> {
    let query = Query::Timers { after: None, limit: 1_000 };
    f.backend.engine().query(query).await.unwrap().timers
}

async fn write(f: &Fixture, change: Change) {
    let by_hand = ByHand { flows: Vec::new(), change, keys: Vec::new() };
    f.backend.engine().run(None, by_hand).await.unwrap();
}

async fn missing(f: &Fixture) -> Vec<String> {
    let check = f.backend.check_timers(false).await.unwrap();
    check.missing.into_iter().map(|timer| timer.kind).collect()
}

/// The same timers, due by now.
fn too_early(f: &Fixture, timers: &[TimerRow]) -> Change {
    let mut change = Change::default();
    for timer in timers {
        let key = TimerKey { due_at: f.now(), ..timer.key };
        change.timers.push(Write::Delete(timer.key));
        change.timers.push(Write::Update(TimerRow { key, members: timer.members.clone() }));
    }
    change
}

/// Work that waits for a time in every way that executions do.
struct Waiting {
    delayed: ExecutionId,
    expiring: ExecutionId,
    leased: ExecutionId,
    timed: ExecutionId,
    suspended: ExecutionId,
    retried: ExecutionId,
}

async fn waiting(f: &Fixture) -> Waiting {
    let mut policy = retries(0, 0);
    policy.timeout_policy.attempt_timeout_ms = Some(20_000);
    let (timed, _) = f.start(item().policy(policy)).await;
    let (suspended, _) =
        f.suspended(gate().timeout(Duration::from_secs(20), TimeoutBehavior::Fail)).await;
    let (retried, handle) = f.start(item().policy(retries(1, 20_000))).await;
    f.backend.fail(&handle, failure(FailureClass::Retryable)).await.unwrap();
    let (leased, handle) = f.start(item()).await;
    f.pending(&handle, "early").await;
    let key = item().idempotency_key("lapses").delay(Duration::from_secs(20));
    let delayed = f.submit(key).await;
    let expiring = f.submit(item().deadline(Duration::from_secs(20))).await;
    Waiting { delayed, expiring, leased, timed, suspended, retried }
}

/// Whatever waits for 20 seconds has waited so long.
async fn all_has_come(f: &Fixture, waiting: &Waiting, timed: PublicState) {
    for (id, state) in [
        (&waiting.delayed, PublicState::Waiting),
        (&waiting.retried, PublicState::Waiting),
        (&waiting.expiring, PublicState::Expired),
        (&waiting.timed, timed),
        (&waiting.suspended, PublicState::Failed),
    ] {
        assert_eq!(f.state(id).await, state, "{id}");
    }
    f.advance(60_000).await;
    let seen = f.snapshot(&waiting.leased).await;
    assert_eq!((seen.public_state, seen.lease), (PublicState::Waiting, None));
}

/// A clock that steps back leaves timers in front of what they are for.
pub async fn not_due_yet(f: &Fixture) {
    let waiting = waiting(f).await;
    let timers: Vec<_> = timers(f).await;
    let kinds: BTreeSet<_> = timers.iter().map(|timer| timer.key.kind).collect();
    assert_eq!(kinds.len(), 7, "each kind that looks at executions: {kinds:?}");
    // An attempt's time is known to its timer alone.
    let moved: Vec<_> = timers
        .into_iter()
        .filter(|timer| timer.key.kind != ff_core::rows::TimerKind::AttemptTimeout)
        .collect();
    for _ in 0..2 {
        write(f, too_early(f, &moved)).await;
        f.advance(0).await;
        assert_eq!(missing(f).await, [""; 0], "they are armed again");
        assert_eq!(f.state(&waiting.delayed).await, PublicState::Delayed, "and nothing has fired");
    }
    f.advance(19_999).await;
    assert_eq!(f.state(&waiting.expiring).await, PublicState::Waiting);
    f.advance(1).await;
    all_has_come(f, &waiting, PublicState::Expired).await;
    let key = item().idempotency_key("lapses").delay(Duration::from_secs(20));
    f.clock.advance(Duration::from_secs(2 * 24 * 60 * 60));
    f.submit(key).await;
}

async fn lose_all(f: &Fixture) {
    let timers = timers(f).await.into_iter().map(|timer| Write::Delete(timer.key)).collect();
    write(f, Change { timers, ..Change::default() }).await;
}

/// Missing timers are found by a check, and armed again by a repair.
pub async fn lost_ones_are_armed_again(f: &Fixture) {
    let waiting = waiting(f).await;
    assert_eq!(missing(f).await, [""; 0]);
    lose_all(f).await;
    let mut found = missing(f).await;
    found.sort_unstable();
    let expected = [
        "attempt_timeout",
        "deadline",
        "lease",
        "lease",
        "ready",
        "ready",
        "suspension",
        "waitpoint",
    ];
    assert_eq!(found, expected);
    f.advance(20_000).await;
    assert_eq!(f.state(&waiting.delayed).await, PublicState::Delayed, "looking changes nothing");
    assert_eq!(f.backend.check_timers(true).await.unwrap().missing.len(), expected.len());
    assert_eq!(missing(f).await, [""; 0]);
    // An attempt that was not watched has its whole time from now on: here its lease ends first.
    f.advance(10_000).await;
    all_has_come(f, &waiting, PublicState::Waiting).await;
}

/// The same for what is not an execution.
pub async fn lost_ones_of_records(f: &Fixture) {
    f.backend.put_schedule(schedule::every_minute()).await.unwrap();
    f.backend.register_worker(worker::worker("silent", &[])).await.unwrap();
    let rate = Some(RateLimit { limit: 1, window_ms: 30_000 });
    f.backend.put_quota(PutQuotaArgs { rate, ..quota::quota("slow") }).await.unwrap();
    f.start(item()).await;
    let limited = f.submit(item()).await;
    assert!(f.try_claim().await.is_none());
    f.advance(0).await;
    let bulk = bulk::start(f, bulk::waiting(), bulk::cancel()).await;
    lose_all(f).await;
    let mut found = missing(f).await;
    found.sort_unstable();
    assert_eq!(found, ["bulk", "lease", "limit", "schedule", "worker"]);
    f.advance(60_000).await;
    assert_eq!(f.state(&limited).await, PublicState::RateLimited, "nobody looks");
    assert_eq!(f.backend.check_timers(true).await.unwrap().missing.len(), 5);
    f.advance(0).await;
    assert_eq!(f.state(&limited).await, PublicState::Waiting);
    assert!(schedule::described(f).await.started == 1, "its minute has come");
    let workers = f.backend.list_workers(ListWorkersArgs::default()).await.unwrap();
    assert!(workers.is_empty(), "it has been silent");
    assert!(f.backend.describe_bulk(bulk.bulk_id).await.unwrap().unwrap().finished_at.is_some());
}

fn by_hand(f: &Fixture) -> ExecutionRow {
    let id = new_id();
    ExecutionRow {
        namespace: "default".into(),
        lane: "by_hand".into(),
        kind: "kind".into(),
        capability_class: "".into(),
        tags: "{}".into(),
        raw_fields: "{}".into(),
        created_at: f.now(),
        ..ExecutionRow::blank(id.key())
    }
}

/// Rows that were inserted with SQL have no timers: whoever announces them arms them.
pub async fn of_rows_by_hand(f: &Fixture) {
    let before = ff_core::types::TimestampMs(f.now().0 - 1_000);
    let delayed = ExecutionRow {
        eligibility: EligibilityState::NotEligibleUntilTime,
        public_state: PublicState::Delayed,
        not_before: Some(before),
        ..by_hand(f)
    };
    let expired = ExecutionRow { deadline_at: Some(before), ..by_hand(f) };
    let leased = ExecutionRow {
        phase: LifecyclePhase::Active,
        ownership: OwnershipState::Leased,
        eligibility: EligibilityState::NotApplicable,
        public_state: PublicState::Active,
        attempt_state: AttemptState::RunningAttempt,
        ..by_hand(f)
    };
    let attempt = AttemptRow {
        lease_epoch: 7,
        worker_id: Some("dead".into()),
        worker_instance_id: Some("dead-1".into()),
        lease_expires_at: Some(before),
        key: AttemptKey { execution: leased.key, index: 0 },
        attempt_type: AttemptType::Initial,
        lease_nonce: 0,
        started_at: Some(before),
        ended_at: None,
        outcome: None,
        failure_reason: None,
        failure_category: None,
        retry_at: None,
        progress_percent: None,
        progress_message: None,
    };
    let mut change = Change::default();
    for row in [&delayed, &expired, &leased] {
        change.executions.push(Write::Insert(row.clone()));
    }
    change.attempts.push(Write::Insert(attempt));
    write(f, change).await;
    // Nobody has swept, and a claim comes first.
    let claimed = f.backend.claim_many(claim_from("by_hand")).await.unwrap();
    assert!(claimed.is_empty(), "it was past its deadline: {claimed:?}");
    f.advance(0).await;
    let [delayed, expired, leased] = [delayed, expired, leased].map(|row| row.key.execution_id());
    assert_eq!(f.state(&expired).await, PublicState::Expired);
    assert_eq!(f.state(&delayed).await, PublicState::Waiting);
    assert_eq!(f.state(&leased).await, PublicState::Waiting);
    assert!(f.events(&leased).await.contains(&EventType::LeaseExpired));
    let mut found = Vec::new();
    while let Some(work) = f.backend.claim_many(claim_from("by_hand")).await.unwrap().pop() {
        found.push((work.execution_id, work.handle.kind()));
    }
    assert_eq!(found.len(), 2);
    assert!(found.contains(&(leased, HandleKind::Reclaimed)));
}

/// One field of a policy that means nothing here does not cost the others.
pub async fn policies_are_read_as_far_as_they_go(f: &Fixture) {
    let stored = r#"{"retry_policy": {"max_retries": 1, "colour": "red"}, "newer": true}"#;
    let row = ExecutionRow { policy: Some(stored.into()), ..by_hand(f) };
    let mut change = Change::default();
    change.executions.push(Write::Insert(row.clone()));
    write(f, change).await;
    f.advance(0).await;
    let id = row.key.execution_id();
    let told = f.backend.check_timers(false).await.unwrap().policies;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].execution_id, id);
    assert_eq!(told[0].parts, ["newer", "retry_policy.colour"]);
    let why = f.backend.explain(&id).await.unwrap();
    assert!(why.words.contains("retry_policy.colour"), "{why:?}");
    for left in [1, 0] {
        let work = f.backend.claim_many(claim_from("by_hand")).await.unwrap().remove(0);
        f.backend.fail(&work.handle, failure(FailureClass::Retryable)).await.unwrap();
        f.advance(60_000).await;
        assert_eq!(f.state(&id).await == PublicState::Failed, left == 0, "one retry is allowed");
    }
    let kept = f.backend.engine().query(Query::Execution(row.key)).await.unwrap();
    let kept = kept.executions[0].policy.clone().unwrap();
    assert!(kept.contains("colour") && kept.contains("newer"), "the rest is kept: {kept}");
}
