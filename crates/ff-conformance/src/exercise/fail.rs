//! Failure, and what the policy makes of it.

use ff_core::contracts::{EventType, FailArgs, FailOutcome, FailureClass};
use ff_core::policy::Backoff;
use ff_core::state::{AttemptOutcome, AttemptType, PublicState};

use super::{Fixture, failure, item, retries};

pub async fn retry_count(f: &Fixture) {
    let id = f.submit(item().policy(retries(2, 1_000))).await;
    for attempt in 0..2 {
        let claimed = f.claim().await;
        assert_eq!(claimed.attempt_index, attempt);
        let failed = f.backend.fail(&claimed.handle, failure(FailureClass::Retryable)).await;
        let delay_until = f.now().after_ms(1_000);
        assert_eq!(failed.unwrap(), FailOutcome::RetryScheduled { delay_until });
        let seen = f.snapshot(&id).await;
        assert_eq!(seen.public_state, PublicState::Delayed);
        assert_eq!(seen.retry_count, attempt + 1);
        assert_eq!(seen.not_before, Some(delay_until));
        f.advance(999).await;
        assert!(f.try_claim().await.is_none(), "handed out before its time");
        f.advance(1).await;
    }
    let last = f.claim().await;
    assert_eq!(last.attempt_type, AttemptType::Retry);
    let failed = f.backend.fail(&last.handle, failure(FailureClass::Retryable)).await;
    assert_eq!(failed.unwrap(), FailOutcome::TerminalFailed);
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Failed);
    assert_eq!(seen.failure_reason.as_deref(), Some("it broke"));
    assert_eq!(seen.failure_category.as_deref(), Some("broken"));
    let outcomes: Vec<_> = seen.attempts.iter().filter_map(|attempt| attempt.outcome).collect();
    use AttemptOutcome::{Failed, Retry};
    assert_eq!(outcomes, [Retry, Retry, Failed]);
    let events = f.events(&id).await;
    let retried = events.iter().filter(|event| **event == EventType::RetryScheduled).count();
    assert_eq!((retried, events.last()), (2, Some(&EventType::Failed)));
}

pub async fn backoff_bounds(f: &Fixture) {
    let mut policy = retries(5, 0);
    for jitter in [false, true] {
        policy.retry_policy.backoff = Backoff::Exponential {
            initial_delay_ms: 100,
            max_delay_ms: 500,
            multiplier: 2.0,
            jitter,
        };
        f.submit(item().policy(policy.clone())).await;
        for full in [100, 200, 400, 500, 500] {
            let claimed = f.claim().await;
            let failed = f.backend.fail(&claimed.handle, failure(FailureClass::Retryable)).await;
            let FailOutcome::RetryScheduled { delay_until } = failed.unwrap() else {
                panic!("a retry was left");
            };
            let delay = delay_until.0 - f.now().0;
            let least = if jitter { full / 2 } else { full };
            assert!((least..=full).contains(&delay), "{delay} ms, expected {least} to {full}");
            f.advance(500).await;
        }
        let claimed = f.claim().await;
        f.backend.complete(&claimed.handle, None).await.unwrap();
    }
}

pub async fn categories(f: &Fixture) {
    let mut policy = retries(3, 0);
    policy.retry_policy.retryable_categories = ["network".to_owned()].into();
    let (_, handle) = f.start(item().policy(policy)).await;
    let network = FailArgs { category: "network".into(), ..failure(FailureClass::Retryable) };
    let failed = f.backend.fail(&handle, network).await.unwrap();
    assert!(matches!(failed, FailOutcome::RetryScheduled { .. }));
    // A back-off of zero makes it claimable at once.
    let claimed = f.claim().await;
    let failed = f.backend.fail(&claimed.handle, failure(FailureClass::Retryable)).await;
    assert_eq!(failed.unwrap(), FailOutcome::TerminalFailed);
}

pub async fn fatal(f: &Fixture) {
    let (id, handle) = f.start(item().policy(retries(9, 0))).await;
    let failed = f.backend.fail(&handle, failure(FailureClass::Fatal)).await.unwrap();
    assert_eq!(failed, FailOutcome::TerminalFailed);
    assert_eq!(f.state(&id).await, PublicState::Failed);
    assert!(f.backend.result(&id).await.unwrap().is_none());
}

pub async fn repeated(f: &Fixture) {
    let (id, handle) = f.start(item().policy(retries(1, 1_000))).await;
    let fail = |handle| f.backend.fail(handle, failure(FailureClass::Retryable));
    let first = fail(&handle).await.unwrap();
    let before = f.picture(&id).await;
    assert_eq!(fail(&handle).await.unwrap(), first, "a repeat gets the first answer");
    assert_eq!(f.picture(&id).await, before);
    f.advance(1_000).await;
    let claimed = f.claim().await;
    let before = f.picture(&id).await;
    assert_eq!(fail(&handle).await.unwrap(), first, "also while the next attempt runs");
    assert_eq!(f.picture(&id).await, before);
    assert_eq!(fail(&claimed.handle).await.unwrap(), FailOutcome::TerminalFailed);
    let before = f.picture(&id).await;
    assert_eq!(fail(&claimed.handle).await.unwrap(), FailOutcome::TerminalFailed);
    assert_eq!(f.picture(&id).await, before);
}
