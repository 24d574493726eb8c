//! Many callers at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ff_core::contracts::{
    ClaimArgs, ClaimedExecution, EventFilter, EventType, PauseLaneArgs, Submission,
};
use ff_core::engine::StartAt;
use ff_core::state::PublicState;
use ff_core::types::{LaneId, WorkerInstanceId};
use tokio::task::JoinSet;

use super::{Fixture, LANE, claim_args, item};

const TASKS: usize = 16;

/// Runs one future per task at the same time and collects what they return.
async fn together<T: Send + 'static, Fut: Future<Output = T> + Send + 'static>(
    task: impl Fn(usize) -> Fut,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for at in 0..TASKS {
        tasks.spawn(task(at));
    }
    tasks.join_all().await
}

pub async fn claims_hand_out_once(f: &Fixture) {
    f.backend.submit((0..400).map(|_| item()).collect()).await.unwrap();
    let claimed = together(|at| {
        let f = f.clone();
        async move {
            let mut mine: Vec<ClaimedExecution> = Vec::new();
            loop {
                let args = ClaimArgs {
                    worker_instance_id: WorkerInstanceId::new(format!("worker-{at}")),
                    max: 1 + at % 3,
                    ..claim_args()
                };
                let some = f.backend.claim_many(args).await.unwrap();
                if some.is_empty() {
                    return mine;
                }
                mine.extend(some);
            }
        }
    })
    .await;
    let all: Vec<_> = claimed.iter().flatten().map(|one| one.execution_id.clone()).collect();
    assert_eq!(all.len(), 400);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 400, "handed out twice");
}

pub async fn completes_count_once(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let answers = together(|at| {
        let (backend, handle) = (f.backend.clone(), handle.clone());
        async move { backend.complete(&handle, Some(vec![(at % 4) as u8])).await.is_ok() }
    })
    .await;
    let accepted = answers.into_iter().filter(|ok| *ok).count();
    assert_eq!(accepted, TASKS / 4, "exactly those with the recorded result are told that it is");
    use EventType::{Claimed, Completed, Submitted};
    assert_eq!(f.events(&id).await, [Submitted, Claimed, Completed]);

    // Completing and cancelling race: one of them wins and the history says which.
    for _ in 0..20 {
        let (id, handle) = f.start(item()).await;
        let (backend, me, own) = (f.backend.clone(), f.clone(), id.clone());
        let complete = tokio::spawn(async move { backend.complete(&handle, None).await.is_ok() });
        let cancel = tokio::spawn(async move { me.cancel_execution(&own).await.is_ok() });
        let (completed, cancelled) = (complete.await.unwrap(), cancel.await.unwrap());
        assert!(completed != cancelled, "both or neither won");
        let expected = if completed { PublicState::Completed } else { PublicState::Cancelled };
        assert_eq!(f.state(&id).await, expected);
        assert_eq!(f.events(&id).await.len(), 3);
    }
}

/// A claim that is about to wait. The other tasks are let run so that it really does.
async fn waiting_claim(f: &Fixture) -> tokio::task::JoinHandle<Vec<ClaimedExecution>> {
    let backend = f.backend.clone();
    let args = ClaimArgs { wait: Duration::from_secs(600), ..claim_args() };
    let claim = tokio::spawn(async move { backend.claim_many(args).await.unwrap() });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    claim
}

/// Much less than a waiting claim's own interval of looking, so only a wake-up can make it.
const WAKE_UP: Duration = Duration::from_secs(10);

async fn woken(claim: tokio::task::JoinHandle<Vec<ClaimedExecution>>) -> ClaimedExecution {
    let claimed = tokio::time::timeout(WAKE_UP, claim).await.expect("nobody woke the claim");
    claimed.unwrap().remove(0)
}

pub async fn long_poll(f: &Fixture) {
    let claim = waiting_claim(f).await;
    let id = f.submit(item()).await;
    assert_eq!(woken(claim).await.execution_id, id);

    let claim = waiting_claim(f).await;
    let later = f.submit(item().delay(Duration::from_secs(1))).await;
    f.advance(1_000).await;
    assert_eq!(woken(claim).await.execution_id, later);

    let claims = [waiting_claim(f).await, waiting_claim(f).await];
    f.revoke(&id).await.unwrap();
    f.revoke(&later).await.unwrap();
    let mut ids = BTreeSet::new();
    for claim in claims {
        ids.insert(woken(claim).await.execution_id);
    }
    assert_eq!(ids, BTreeSet::from([id, later]));
}

pub async fn long_poll_resumed_lane(f: &Fixture) {
    let lane_id = LaneId::new(LANE);
    let args = PauseLaneArgs { lane_id: lane_id.clone(), reason: "".into(), by: "".into() };
    f.backend.pause_lane(args).await.unwrap();
    let id = f.submit(item()).await;
    let claim = waiting_claim(f).await;
    f.backend.resume_lane(&lane_id, "").await.unwrap();
    assert_eq!(woken(claim).await.execution_id, id);
}

pub async fn subscriber_sees_everything(f: &Fixture) {
    const EACH: usize = 10;
    let filter = EventFilter::default();
    let mut log = f.backend.subscribe(filter, StartAt::Latest).await.unwrap();
    let reader = tokio::spawn(async move {
        let mut events = Vec::new();
        while events.len() < TASKS * EACH * 3 {
            events.push(log.next().await.unwrap());
        }
        (events, log)
    });
    together(|at| {
        let f = f.clone();
        async move {
            let lane = format!("lane-{at}");
            for _ in 0..EACH {
                f.submit(Submission::new(lane.clone(), "kind")).await;
                let claimed = f.backend.claim_many(super::claim_from(&lane)).await.unwrap();
                f.backend.complete(&claimed[0].handle, None).await.unwrap();
            }
        }
    })
    .await;
    let (events, mut log) = reader.await.unwrap();
    assert!(log.try_next().await.unwrap().is_none(), "more events than transitions");
    let mut versions: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for event in &events {
        versions.entry(event.execution_id.clone().unwrap()).or_default().push(event.version);
    }
    assert_eq!(versions.len(), TASKS * EACH);
    assert!(versions.values().all(|seen| *seen == [1, 2, 3]), "out of order or repeated");
    let cursors: BTreeSet<_> = events.iter().map(|event| &event.cursor).collect();
    assert_eq!(cursors.len(), events.len());
}
