//! Keeping, losing and taking back leases.

use ff_core::backend::HandleKind;
use ff_core::contracts::{EventType, RenewOutcome, RevokeLeaseArgs, RevokeLeaseResult};
use ff_core::policy::ExecutionPolicy;
use ff_core::state::{AttemptOutcome, AttemptType, PublicState};
use ff_core::types::WorkerInstanceId;

use super::{Fixture, LEASE_MS, item, revoke_args};

const LEASE: u64 = LEASE_MS as u64;

pub async fn renew(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let (other, lost) = f.start(item()).await;
    f.cancel_execution(&other).await.unwrap();
    for _ in 0..5 {
        f.advance(LEASE - 1).await;
        let outcomes = f.backend.renew_many(&[handle.clone(), lost.clone()]).await.unwrap();
        let RenewOutcome::Renewed { expires_at } = outcomes[0] else {
            panic!("the lease was lost: {outcomes:?}");
        };
        assert_eq!(expires_at, f.now().after_ms(LEASE));
        assert!(matches!(outcomes[1], RenewOutcome::Lost(_)), "each handle is told its own");
    }
    assert_eq!(f.state(&id).await, PublicState::Active);
    f.backend.complete(&handle, None).await.unwrap();
    // A renewal is not a transition.
    assert_eq!(f.snapshot(&id).await.version, 3);
}

pub async fn expiry(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    f.advance(LEASE - 1).await;
    assert_eq!(f.state(&id).await, PublicState::Active);
    f.advance(1).await;
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Waiting);
    assert_eq!((seen.reclaim_count, seen.retry_count), (1, 0));
    assert!(seen.lease.is_none());
    assert_eq!(seen.attempts[0].outcome, Some(AttemptOutcome::LeaseExpired));
    let again = f.claim().await;
    assert_eq!(again.execution_id, id);
    assert_eq!(again.attempt_type, AttemptType::Reclaim);
    assert_eq!(again.handle.kind(), HandleKind::Reclaimed);
    assert_eq!(again.attempt_index, 1);
    assert!(again.lease_epoch > handle.lease_epoch());
    use EventType::{Claimed, LeaseExpired, Submitted};
    assert_eq!(f.events(&id).await, [Submitted, Claimed, LeaseExpired, Claimed]);
    // The old lease's timer must not take the new lease.
    f.advance(LEASE - 1).await;
    assert_eq!(f.state(&id).await, PublicState::Active);
}

pub async fn renew_after_expiry(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    // The clock alone decides, whether or not anybody has swept.
    f.clock.step(i64::from(LEASE_MS));
    let outcomes = f.backend.renew_many(std::slice::from_ref(&handle)).await.unwrap();
    assert!(matches!(outcomes[0], RenewOutcome::Lost(_)));
    assert!(f.backend.complete(&handle, None).await.is_err());
    f.advance(0).await;
    assert_eq!(f.state(&id).await, PublicState::Waiting);
}

pub async fn reclaim_cap(f: &Fixture) {
    let mut policy = ExecutionPolicy::default();
    policy.timeout_policy.max_reclaim_count = 2;
    let (id, _) = f.start(item().policy(policy)).await;
    for _ in 0..2 {
        f.advance(LEASE).await;
        assert_eq!(f.claim().await.execution_id, id);
    }
    f.advance(LEASE).await;
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Failed);
    assert_eq!(seen.failure_reason.as_deref(), Some("max_reclaims_exceeded"));
    assert_eq!(seen.reclaim_count, 2);
    assert!(f.try_claim().await.is_none());
}

pub async fn revoke(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    f.backend.progress(&handle, Some(40), Some("far".into())).await.unwrap();
    let revoked = f.backend.revoke_lease(revoke_args(&id)).await.unwrap();
    let RevokeLeaseResult::Revoked { lease_id, lease_epoch } = revoked else {
        panic!("nothing was revoked: {revoked:?}");
    };
    let old = handle.lease_epoch().0;
    assert!(lease_id.ends_with(&format!(":{}:0:{old}", id.uuid())), "{lease_id}");
    assert_eq!(lease_epoch, (old + 1).to_string());
    assert_eq!(f.state(&id).await, PublicState::Waiting);
    let again = f.claim().await;
    assert_eq!(again.handle.kind(), HandleKind::Resumed, "the attempt goes on");
    assert_eq!(again.attempt_index, 0);
    assert!(again.lease_epoch.0 > old + 1);
    let progress = f.snapshot(&id).await.progress.unwrap();
    assert_eq!((progress.percent, progress.message.as_deref()), (Some(40), Some("far")));
    f.backend.complete(&again.handle, None).await.unwrap();
    use EventType::{Claimed, Completed, LeaseRevoked, Submitted};
    assert_eq!(f.events(&id).await, [Submitted, Claimed, LeaseRevoked, Claimed, Completed]);
}

pub async fn revoke_mismatch(f: &Fixture) {
    let id = f.submit(item()).await;
    let reason = |result| match result {
        RevokeLeaseResult::AlreadySatisfied { reason } => reason,
        other => panic!("expected nothing to be revoked, got {other:?}"),
    };
    let idle = f.backend.revoke_lease(revoke_args(&id)).await.unwrap();
    assert_eq!(reason(idle), "no_active_lease");
    let claimed = f.claim().await;
    let before = f.picture(&id).await;
    let other = RevokeLeaseArgs {
        worker_instance_id: WorkerInstanceId::new("worker-2"),
        ..revoke_args(&id)
    };
    let other = f.backend.revoke_lease(other).await.unwrap();
    assert_eq!(reason(other), "different_worker_instance_id");
    let wrong = RevokeLeaseArgs { expected_lease_id: Some("lease".into()), ..revoke_args(&id) };
    assert_eq!(reason(f.backend.revoke_lease(wrong).await.unwrap()), "lease_id_mismatch");
    assert_eq!(f.picture(&id).await, before);
    f.backend.complete(&claimed.handle, None).await.unwrap();
    let done = f.picture(&id).await;
    let finished = f.backend.revoke_lease(revoke_args(&id)).await.unwrap();
    assert_eq!(reason(finished), "no_active_lease");
    assert_eq!(f.picture(&id).await, done);
}
