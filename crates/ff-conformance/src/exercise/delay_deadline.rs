//! Time: delays, deadlines and time-outs of attempts.

use std::time::Duration;

use ff_core::backend::HandleKind;
use ff_core::contracts::{EventType, FailureClass};
use ff_core::policy::ExecutionPolicy;
use ff_core::state::{AttemptOutcome, PublicState};

use super::{Fixture, code, failure, item, retries};

pub async fn delayed_submission(f: &Fixture) {
    let id = f.submit(item().delay(Duration::from_millis(500))).await;
    assert_eq!(f.state(&id).await, PublicState::Delayed);
    f.advance(499).await;
    assert!(f.try_claim().await.is_none());
    f.advance(1).await;
    assert_eq!(f.state(&id).await, PublicState::Waiting);
    assert_eq!(f.claim().await.execution_id, id);
    assert_eq!(f.events(&id).await, [EventType::Submitted, EventType::Ready, EventType::Claimed]);
    let now = f.submit(item().delay(Duration::ZERO)).await;
    assert_eq!(f.claim().await.execution_id, now);
}

pub async fn holder_delays(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    f.backend.progress(&handle, Some(10), None).await.unwrap();
    let until = f.backend.delay(&handle, Duration::from_millis(700)).await.unwrap();
    assert_eq!(until, f.now().after_ms(700));
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Delayed);
    assert_eq!((seen.not_before, seen.lease), (Some(until), None));
    assert_eq!(code(&f.backend.complete(&handle, None).await), "execution_not_active");
    f.advance(700).await;
    let again = f.claim().await;
    assert_eq!(again.handle.kind(), HandleKind::Resumed);
    assert_eq!(again.attempt_index, 0, "the same attempt goes on");
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.progress.unwrap().percent, Some(10));
    assert_eq!(seen.retry_count, 0, "a delay is not a failure");
    f.backend.delay(&again.handle, Duration::ZERO).await.unwrap();
    assert_eq!(f.claim().await.execution_id, id);
}

pub async fn deadline_in_every_state(f: &Fixture) {
    let due = || item().policy(retries(3, 60_000)).deadline(Duration::from_secs(10));
    let active = f.start(due()).await;
    let (backoff, handle) = f.start(due()).await;
    f.backend.fail(&handle, failure(FailureClass::Retryable)).await.unwrap();
    let (put_down, handle) = f.start(due()).await;
    f.backend.delay(&handle, Duration::from_secs(60)).await.unwrap();
    let delayed = f.submit(due().delay(Duration::from_secs(60))).await;
    let waiting = f.submit(due()).await;
    f.advance(9_999).await;
    for id in [&active.0, &backoff, &put_down, &delayed, &waiting] {
        assert!(!f.state(id).await.is_finished(), "expired too early");
    }
    f.advance(1).await;
    for id in [&active.0, &backoff, &put_down, &delayed, &waiting] {
        let seen = f.snapshot(id).await;
        assert_eq!(seen.public_state, PublicState::Expired);
        assert_eq!(seen.failure_reason.as_deref(), Some("execution_deadline"));
        assert_eq!(f.events(id).await.last(), Some(&EventType::Expired));
    }
    let attempt = &f.snapshot(&active.0).await.attempts[0];
    assert_eq!(attempt.outcome, Some(AttemptOutcome::DeadlineExceeded));
    assert_eq!(code(&f.backend.complete(&active.1, None).await), "execution_not_active");
    f.advance(60_000).await;
    assert!(f.try_claim().await.is_none(), "nothing comes back");
}

pub async fn delay_keeps_deadline(f: &Fixture) {
    let mut policy = ExecutionPolicy::default();
    policy.timeout_policy.execution_deadline_ms = Some(10_000);
    let (id, handle) = f.start(item().policy(policy)).await;
    let deadline = f.snapshot(&id).await.deadline_at;
    assert_eq!(deadline, Some(f.now().after_ms(10_000)), "a policy may set it too");
    f.backend.delay(&handle, Duration::from_secs(8)).await.unwrap();
    assert_eq!(f.snapshot(&id).await.deadline_at, deadline);
    f.advance(8_000).await;
    let claimed = f.claim().await;
    f.advance(2_000).await;
    assert_eq!(f.state(&id).await, PublicState::Expired);
    assert!(f.backend.complete(&claimed.handle, None).await.is_err());
}

pub async fn attempt_timeout(f: &Fixture) {
    let mut policy = retries(1, 0);
    policy.timeout_policy.attempt_timeout_ms = Some(5_000);
    let (id, handle) = f.start(item().policy(policy)).await;
    f.advance(4_999).await;
    assert_eq!(f.state(&id).await, PublicState::Active);
    f.advance(1).await;
    let seen = f.snapshot(&id).await;
    assert_eq!((seen.public_state, seen.retry_count), (PublicState::Waiting, 1));
    assert_eq!(seen.attempts[0].outcome, Some(AttemptOutcome::TimedOut));
    assert!(f.backend.complete(&handle, None).await.is_err());
    // Each claim may run for the whole time, also when the attempt goes on.
    let claimed = f.claim().await;
    f.advance(3_000).await;
    f.revoke(&id).await.unwrap();
    let resumed = f.claim().await;
    assert_eq!(resumed.attempt_index, claimed.attempt_index);
    f.advance(4_999).await;
    assert_eq!(f.state(&id).await, PublicState::Active);
    f.advance(1).await;
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Expired, "no retry was left");
    assert_eq!(seen.failure_reason.as_deref(), Some("attempt_timeout"));
}

/// Several timers of one execution that are due in the same sweep fire one after the other.
pub async fn two_timers_at_once(f: &Fixture) {
    let delayed = item().delay(Duration::from_secs(5)).deadline(Duration::from_secs(6));
    let delayed = f.submit(delayed).await;
    let mut policy = retries(3, 0);
    policy.timeout_policy.attempt_timeout_ms = Some(30_000);
    let (active, _) = f.start(item().policy(policy).deadline(Duration::from_secs(30))).await;
    f.advance(60_000).await;
    for id in [&delayed, &active] {
        assert_eq!(f.state(id).await, PublicState::Expired);
    }
    let events = f.events(&delayed).await;
    assert_eq!(events, [EventType::Submitted, EventType::Ready, EventType::Expired]);
}
