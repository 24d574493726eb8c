//! Two engines with connections of their own on one schema: nothing is handed out, accepted or
//! swept twice, and each hears of what the other one did.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ff_backend_postgres::PostgresBackend;
use ff_core::contracts::{
    CancelExecutionArgs, ClaimArgs, ClaimedExecution, CreateExecutionArgs, CreateExecutionResult,
    EventFilter, EventType, RevokeLeaseArgs, SetTagsArgs, Submission, SubmitOutcome,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::EngineBackend;
use ff_core::types::{CancelSource, ExecutionId, LaneId, Namespace, TimestampMs, WorkerInstanceId};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::database::{Schema, claim_from};

const PATIENCE: Duration = Duration::from_secs(60);

struct Two {
    schema: Schema,
    engines: [Arc<PostgresBackend>; 2],
}

impl Two {
    async fn open() -> Self {
        let schema = Schema::new();
        let engines = [schema.open().await, schema.open().await];
        Self { schema, engines }
    }

    async fn close(self) {
        for engine in &self.engines {
            engine.close().await;
        }
        self.schema.drop().await;
    }

    async fn submit(&self, lane: &str, count: usize) -> BTreeSet<ExecutionId> {
        let items = (0..count).map(|_| Submission::new(lane, "test")).collect();
        let outcomes = self.engines[0].submit(items).await.expect("submit");
        outcomes.iter().map(|outcome| outcome.execution_id().expect("accepted").clone()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_execution_is_handed_out_once() {
    const EXECUTIONS: usize = 2_000;
    const TASKS: usize = 16;
    let two = Two::open().await;
    let submitted = two.submit("shared", EXECUTIONS).await;
    let handed_out = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for at in 0..2 * TASKS {
        let (engine, handed_out) = (two.engines[at % 2].clone(), handed_out.clone());
        tasks.spawn(async move {
            let mut mine = Vec::new();
            let started = Instant::now();
            while handed_out.load(Ordering::Relaxed) < EXECUTIONS && started.elapsed() < PATIENCE {
                let args = claim_from("shared", 1 + at % 7, Duration::from_millis(20));
                let claimed = engine.claim_many(args).await.expect("claim");
                handed_out.fetch_add(claimed.len(), Ordering::Relaxed);
                mine.extend(claimed.into_iter().map(|one| one.execution_id));
            }
            mine
        });
    }
    let all: Vec<ExecutionId> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(all.len(), EXECUTIONS, "handed out, with repeats");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), submitted);
    for engine in &two.engines {
        let left = engine.claim_many(claim_from("shared", 10, Duration::ZERO)).await;
        assert!(left.expect("claim").is_empty());
    }
    two.close().await;
}

fn creation(id: &ExecutionId) -> CreateExecutionArgs {
    CreateExecutionArgs {
        execution_id: id.clone(),
        namespace: Namespace::new("default"),
        lane_id: LaneId::new("create"),
        execution_kind: "test".into(),
        input_payload: vec![],
        payload_encoding: None,
        priority: 0,
        creator_identity: String::new(),
        idempotency_key: None,
        tags: Default::default(),
        policy: None,
        delay_until: None,
        execution_deadline_at: None,
        partition_id: id.partition(),
        now: TimestampMs::now(),
    }
}

const ROUNDS: usize = 100;
/// On each engine.
const CALLERS: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_is_created_once() {
    let two = Two::open().await;
    for round in 0..ROUNDS {
        let id = ExecutionId::from_parts(round as u16, Uuid::new_v4());
        let mut tasks = JoinSet::new();
        for at in 0..2 * CALLERS {
            let (engine, args) = (two.engines[at % 2].clone(), creation(&id));
            tasks.spawn(async move { engine.create_execution(args).await.expect("create") });
        }
        let mut created = 0;
        for answer in tasks.join_all().await {
            match answer {
                CreateExecutionResult::Created { execution_id, .. } => {
                    created += 1;
                    assert_eq!(execution_id, id);
                }
                CreateExecutionResult::Duplicate { execution_id } => assert_eq!(execution_id, id),
            }
        }
        assert_eq!(created, 1, "round {round}");
        let history = two.engines[0].history(&id, 0, 10).await.expect("history");
        assert_eq!(history.len(), 1, "round {round}: {history:?}");
    }
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_stands_for_one_execution() {
    let two = Two::open().await;
    for round in 0..ROUNDS {
        let mut tasks = JoinSet::new();
        for at in 0..2 * CALLERS {
            let engine = two.engines[at % 2].clone();
            let item = Submission::new("keys", "test").idempotency_key(format!("key-{round}"));
            tasks.spawn(async move { engine.submit(vec![item]).await.expect("submit").remove(0) });
        }
        let answers = tasks.join_all().await;
        let ids: BTreeSet<_> = answers.iter().map(|answer| answer.execution_id()).collect();
        assert_eq!(ids.len(), 1, "round {round}: {answers:?}");
        let is_new = |answer: &&SubmitOutcome| matches!(answer, SubmitOutcome::Created { .. });
        assert_eq!(answers.iter().filter(is_new).count(), 1, "round {round}: {answers:?}");
    }
    let submitted = two.engines[1].counts().await.expect("counts");
    let total: u64 = submitted.iter().flat_map(|lane| lane.counts.values()).sum();
    assert_eq!(total, ROUNDS as u64);
    two.close().await;
}

impl Two {
    /// Submits and claims one execution on one engine, in a lane of its own.
    async fn start(&self, engine: usize) -> ClaimedExecution {
        let lane = format!("own-{}", Uuid::new_v4().simple());
        let engine = &self.engines[engine];
        engine.submit(vec![Submission::new(&lane, "test")]).await.expect("submit");
        let claimed = engine.claim_many(claim_from(&lane, 1, PATIENCE)).await.expect("claim");
        claimed.into_iter().next().expect("it was just submitted")
    }
}

fn cancellation(id: &ExecutionId) -> CancelExecutionArgs {
    CancelExecutionArgs {
        execution_id: id.clone(),
        reason: "asked for".into(),
        source: CancelSource::OperatorOverride,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now: TimestampMs::now(),
    }
}

/// What an engine remembers of a row that it wrote is worth nothing once another one wrote it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_other_engine_did_counts() {
    let two = Two::open().await;
    for round in 0..ROUNDS {
        let (own, other) = (&two.engines[round % 2], &two.engines[(round + 1) % 2]);
        let one = two.start(round % 2).await;
        let id = &one.execution_id;
        match round % 4 {
            0 => drop(other.cancel_execution(cancellation(id)).await.expect("cancel")),
            1 => {
                let args = RevokeLeaseArgs {
                    execution_id: id.clone(),
                    expected_lease_id: None,
                    worker_instance_id: WorkerInstanceId::new(""),
                    reason: "asked for".into(),
                };
                other.revoke_lease(args).await.expect("revoke");
            }
            2 => other.complete(&one.handle, Some(vec![1])).await.expect("complete"),
            _ => {
                let args = SetTagsArgs {
                    execution_id: id.clone(),
                    tags: [("test.seen".into(), Some("yes".into()))].into(),
                };
                other.set_tags(args).await.expect("set tags");
            }
        }
        let completed = own.complete(&one.handle, Some(vec![2])).await;
        assert_eq!(completed.is_ok(), round % 4 == 3, "round {round}: {completed:?}");
        for engine in &two.engines {
            let told = engine.describe_execution(id).await.expect("describe").expect("there");
            let history = engine.history(id, 0, 100).await.expect("history");
            assert_eq!(told.version, history.len() as u64, "round {round}: {history:?}");
            let kept = engine.result(id).await.expect("result").map(|bytes| bytes.to_vec());
            let expected = [None, None, Some(vec![1]), Some(vec![2])];
            assert_eq!(kept, expected[round % 4], "round {round}");
            assert_eq!(told.tags.contains_key("test.seen"), round % 4 == 3, "round {round}");
        }
    }
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_ending_wins() {
    let two = Two::open().await;
    for round in 0..ROUNDS {
        let one = two.start(round % 2).await;
        let (id, handle) = (one.execution_id, one.handle);
        let mut tasks = JoinSet::new();
        for at in 0..2 * CALLERS {
            let (engine, id, handle) = (two.engines[at % 2].clone(), id.clone(), handle.clone());
            tasks.spawn(async move {
                match at < CALLERS {
                    true => engine.complete(&handle, Some(vec![at as u8])).await.is_ok(),
                    false => engine.cancel_execution(cancellation(&id)).await.is_ok(),
                }
            });
        }
        let accepted = tasks.join_all().await.into_iter().filter(|ok| *ok).count();
        let history = two.engines[0].history(&id, 0, 100).await.expect("history");
        assert_eq!(history.len(), 3, "round {round}: {history:?}");
        // Cancelling may be repeated; completing with another result may not.
        let expected = match history[2].event_type {
            EventType::Cancelled => CALLERS,
            _ => 1,
        };
        assert_eq!(accepted, expected, "round {round}: {history:?}");
    }
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_expires_once() {
    const EXECUTIONS: usize = 200;
    let two = Two::open().await;
    let ids = two.submit("expiring", EXECUTIONS).await;
    let filter = EventFilter { event_types: vec![EventType::LeaseExpired], ..Default::default() };
    let mut log = two.engines[0].subscribe(filter, StartAt::Latest).await.expect("subscribe");
    let args = ClaimArgs { lease_ttl_ms: 300, ..claim_from("expiring", 1_000, Duration::ZERO) };
    let claimed = two.engines[1].claim_many(args).await.expect("claim");
    assert_eq!(claimed.len(), EXECUTIONS);
    // Both sweep on their own, and on top of that as fast as they can.
    let all = async {
        let mut seen = 0;
        while seen < EXECUTIONS {
            let [one, other] = &two.engines;
            let (one, other) = tokio::join!(one.engine().sweep(), other.engine().sweep());
            one.expect("sweep");
            other.expect("sweep");
            while log.try_next().await.expect("the log").is_some() {
                seen += 1;
            }
        }
        seen
    };
    let seen = tokio::time::timeout(PATIENCE, all).await.expect("leases never expired");
    assert_eq!(seen, EXECUTIONS);
    for id in &ids {
        let history = two.engines[0].history(id, 0, 100).await.expect("history");
        let types: Vec<_> = history.iter().map(|event| event.event_type).collect();
        use EventType::{Claimed, LeaseExpired, Submitted};
        assert_eq!(types, [Submitted, Claimed, LeaseExpired], "{id}");
    }
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_worker_hears_of_work_on_the_other_engine() {
    const SOON: Duration = Duration::from_secs(2);
    let two = Two::open().await;
    let mut slowest = Duration::ZERO;
    for round in 0..20 {
        let (waiting, other) = (two.engines[round % 2].clone(), &two.engines[(round + 1) % 2]);
        let lane = format!("quiet-{round}");
        let args = claim_from(&lane, 1, Duration::from_secs(30));
        let claim = tokio::spawn(async move { waiting.claim_many(args).await.expect("claim") });
        // By the time these were answered the claim, which was asked first, waits.
        for _ in 0..5 {
            let _ = two.engines[round % 2].resume_lane(&LaneId::new(&lane), "").await;
        }
        let submitted = Instant::now();
        let outcomes = other.submit(vec![Submission::new(&lane, "test")]).await.expect("submit");
        let claimed = tokio::time::timeout(SOON, claim).await.expect("nobody woke the claim");
        slowest = slowest.max(submitted.elapsed());
        let claimed = claimed.expect("claim");
        assert_eq!(Some(&claimed[0].execution_id), outcomes[0].execution_id());
    }
    println!("the slowest wake-up took {slowest:?}");
    two.close().await;
}
