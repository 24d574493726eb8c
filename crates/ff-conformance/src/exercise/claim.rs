//! The one door to work.

use std::collections::BTreeSet;

use ff_core::backend::{CapabilitySet, ClaimPolicy, HandleKind};
use ff_core::contracts::{ClaimArgs, EventType, Submission};
use ff_core::policy::ExecutionPolicy;
use ff_core::state::{AttemptType, PublicState};
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};

use super::{Fixture, LANE, LEASE_MS, claim_args, claim_from, item};

pub async fn oldest_first(f: &Fixture) {
    let mut submitted = Vec::new();
    for _ in 0..5 {
        submitted.push(f.submit(item()).await);
        f.advance(1).await;
    }
    for id in submitted {
        assert_eq!(f.claim().await.execution_id, id);
    }
    assert!(f.try_claim().await.is_none());
}

pub async fn priority_first(f: &Fixture) {
    let old = f.submit(item()).await;
    let urgent = f.submit(item().priority(9)).await;
    let middle = f.submit(item().priority(5)).await;
    let args = ClaimArgs { max: 3, ..claim_args() };
    let claimed = f.backend.claim_many(args).await.unwrap();
    let ids: Vec<_> = claimed.iter().map(|one| one.execution_id.clone()).collect();
    assert_eq!(ids, [urgent, middle, old]);
    for one in claimed {
        f.backend.complete(&one.handle, None).await.unwrap();
    }

    // One point of priority is worth ten minutes of waiting, so nothing starves.
    let patient = f.submit(item()).await;
    f.advance(10 * 60 * 1000 + 1).await;
    let newer = f.submit(item().priority(1)).await;
    assert_eq!(f.claim().await.execution_id, patient);
    assert_eq!(f.claim().await.execution_id, newer);
}

fn requiring(tokens: &[&str]) -> Submission {
    let mut policy = ExecutionPolicy::default();
    policy.routing_requirements.required_capabilities =
        tokens.iter().map(|token| (*token).to_owned()).collect();
    item().policy(policy)
}

pub async fn capabilities(f: &Fixture) {
    let both = f.submit(requiring(&["gpu", "ssd"]).priority(9)).await;
    let gpu = f.submit(requiring(&["gpu"]).priority(5)).await;
    let plain = f.submit(item()).await;
    let offering = |tokens: &[&str]| ClaimArgs {
        capabilities: CapabilitySet::new(tokens.iter().copied()),
        ..claim_args()
    };
    // Work that this worker cannot do does not stand in the way of work that it can.
    let claimed = f.backend.claim_many(offering(&[])).await.unwrap();
    assert_eq!(claimed[0].execution_id, plain);
    assert!(f.backend.claim_many(offering(&["ssd"])).await.unwrap().is_empty());
    let claimed = f.backend.claim_many(offering(&["gpu", "tpu"])).await.unwrap();
    assert_eq!(claimed[0].execution_id, gpu);
    let claimed = f.backend.claim_many(offering(&["tpu", "ssd", "gpu"])).await.unwrap();
    assert_eq!(claimed[0].execution_id, both);
    assert_eq!(f.snapshot(&both).await.required_capabilities, ["gpu", "ssd"]);
}

pub async fn many_lanes(f: &Fixture) {
    for lane in ["a", "b", "c"] {
        for _ in 0..3 {
            f.submit(Submission::new(lane, "kind")).await;
        }
    }
    let lanes = vec![LaneId::new("a"), LaneId::new("b"), LaneId::new("a")];
    let args = ClaimArgs { lanes, max: 4, ..claim_args() };
    let first = f.backend.claim_many(args.clone()).await.unwrap();
    let rest = f.backend.claim_many(args.clone()).await.unwrap();
    assert_eq!((first.len(), rest.len()), (4, 2));
    let all: BTreeSet<_> = first.iter().chain(&rest).map(|one| &one.execution_id).collect();
    assert_eq!(all.len(), 6, "something was handed out twice");
    assert!(f.backend.claim_many(args).await.unwrap().is_empty());
    assert_eq!(f.backend.claim_many(claim_from("c")).await.unwrap().len(), 1);
}

pub async fn everything_a_worker_needs(f: &Fixture) {
    let mut work = item().payload(b"in".to_vec()).priority(3).tag("team.name", "blue");
    work.payload_encoding = Some("json".into());
    let id = f.submit(work.deadline(std::time::Duration::from_secs(60))).await;
    f.advance(5).await;
    let claimed = f.claim().await;
    assert_eq!(claimed.execution_id, id);
    assert_eq!(&*claimed.payload, b"in");
    assert_eq!(claimed.payload_encoding.as_deref(), Some("json"));
    assert_eq!((claimed.priority, claimed.attempt_index), (3, 0));
    assert_eq!(claimed.tags["team.name"], "blue");
    assert_eq!(claimed.attempt_type, AttemptType::Initial);
    assert_eq!(claimed.lease_expires_at, f.now().after_ms(u64::from(LEASE_MS)));
    assert_eq!(claimed.deadline_at, Some(claimed.created_at.after_ms(60_000)));
    assert_eq!(claimed.handle.kind(), HandleKind::Fresh);

    let seen = f.snapshot(&id).await;
    let lease = seen.lease.unwrap();
    assert_eq!(seen.public_state, PublicState::Active);
    assert_eq!(seen.started_at, Some(f.now()));
    assert_eq!(lease.worker_instance_id, "worker-1");
    assert_eq!(lease.expires_at, claimed.lease_expires_at);
    assert_eq!(lease.lease_epoch, claimed.lease_epoch.0);
    assert_eq!(f.events(&id).await, [EventType::Submitted, EventType::Claimed]);
    let by = f.history(&id).await[1].by.clone();
    assert_eq!(by.as_deref(), Some("worker-1"));
}

pub async fn nothing_to_claim(f: &Fixture) {
    let policy = ClaimPolicy::new(
        WorkerId::new("worker"),
        WorkerInstanceId::new("worker-1"),
        LEASE_MS,
        None,
    );
    let none = CapabilitySet::default();
    let lane = LaneId::new(LANE);
    assert!(f.backend.claim(&lane, &none, policy.clone()).await.unwrap().is_none());
    let id = f.submit(item()).await;
    let handle = f.backend.claim(&lane, &none, policy.clone()).await.unwrap().unwrap();
    assert_eq!(handle.execution_id(), id);
    assert!(f.backend.claim(&lane, &none, policy).await.unwrap().is_none());
}
