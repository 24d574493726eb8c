//! What happens when nobody resumes a suspended execution in time.

use std::time::Duration;

use ff_core::condition::ResumeCondition;
use ff_core::contracts::{
    EventType, SignalEffect, SuspendArgs, SuspensionReason, TIMEOUT_SIGNAL, TimeoutBehavior,
    WaitEnd, WaitpointBinding,
};
use ff_core::engine_backend::SuspensionOperations;
use ff_core::state::PublicState;

use super::waits::{accepted, gate};
use super::{Fixture, code, item};

fn timed(behavior: TimeoutBehavior) -> SuspendArgs {
    gate().timeout(Duration::from_secs(10), behavior)
}

pub async fn ends(f: &Fixture) {
    for (behavior, state) in [
        (TimeoutBehavior::Fail, PublicState::Failed),
        (TimeoutBehavior::Cancel, PublicState::Cancelled),
        (TimeoutBehavior::Expire, PublicState::Expired),
    ] {
        let (id, details) = f.suspended(timed(behavior)).await;
        assert_eq!(details.timeout_at, Some(f.now().after_ms(10_000)));
        let why = f.backend.explain(&id).await.unwrap();
        let at = format!("At {} (in 10.0 s) it ", f.now().after_ms(10_000).to_rfc3339());
        assert!(why.words.contains(&at), "{}", why.words);
        f.advance(9_999).await;
        assert_eq!(f.state(&id).await, PublicState::Suspended);
        f.advance(1).await;
        let seen = f.snapshot(&id).await;
        assert_eq!(seen.public_state, state);
        let reason = seen.failure_reason.or(seen.cancellation_reason);
        assert_eq!(reason.as_deref(), Some("suspension_timeout"));
        assert_eq!(f.suspension(&id).await.end, Some(WaitEnd::TimedOut));
        let late = f.signal(&id, &details.waitpoints[0], "go").await;
        assert_eq!(code(&late), "target_not_signalable");
        assert!(f.try_claim().await.is_none());
    }
}

pub async fn auto_resume(f: &Fixture) {
    for args in [
        timed(TimeoutBehavior::AutoResumeWithTimeoutSignal),
        SuspendArgs::new(ResumeCondition::TimeoutOnly)
            .timeout(Duration::from_secs(10), TimeoutBehavior::AutoResumeWithTimeoutSignal),
    ] {
        let (id, details) = f.suspended(args).await;
        f.advance(10_000).await;
        assert_eq!(f.state(&id).await, PublicState::Waiting);
        if let Some(waitpoint) = details.waitpoints.first() {
            assert_eq!(code(&f.signal(&id, waitpoint, "go").await), "waitpoint_closed");
        }
        let (claimed, signals) = f.resumed(&id).await;
        assert_eq!(signals, [TIMEOUT_SIGNAL]);
        assert_eq!(claimed.resume_signals[0].signal_category, "timeout");
        assert_eq!(f.suspension(&id).await.end, Some(WaitEnd::AutoResumed));
        f.backend.complete(&claimed.handle, None).await.unwrap();
    }
}

/// Nobody from outside can pretend that time has run out.
pub async fn timeout_signal_is_reserved(f: &Fixture) {
    let (id, details) = f.suspended(timed(TimeoutBehavior::AutoResumeWithTimeoutSignal)).await;
    let forged = f.signal(&id, &details.waitpoints[0], TIMEOUT_SIGNAL).await;
    assert_eq!(code(&forged), "invalid_input");
    assert_eq!(f.state(&id).await, PublicState::Suspended);
}

pub async fn escalate(f: &Fixture) {
    let (id, details) = f.suspended(timed(TimeoutBehavior::Escalate)).await;
    f.advance(10_000).await;
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Suspended);
    assert_eq!(f.backend.explain(&id).await.unwrap().rule, "paused_by_operator");
    let wait = f.suspension(&id).await;
    assert_eq!((wait.timeout_at, wait.end), (None, None));
    assert_eq!(wait.reason, SuspensionReason::WaitingForOperatorReview);
    // It is told once, and waits on.
    f.advance(3_600_000).await;
    let told = f.events(&id).await;
    let escalations = told.iter().filter(|event| **event == EventType::Escalated).count();
    assert_eq!(escalations, 1);
    accepted(f.signal(&id, &details.waitpoints[0], "go").await);
    assert_eq!(f.resumed(&id).await.1, ["go"]);
}

/// A signal and a time-out in one transaction, in both orders: one of them ends the wait.
pub async fn races_signal(f: &Fixture) {
    for behavior in [TimeoutBehavior::Fail, TimeoutBehavior::AutoResumeWithTimeoutSignal] {
        for signal_first in [true, false] {
            let (id, details) = f.suspended(timed(behavior)).await;
            f.clock.step(10_000);
            let waitpoint = &details.waitpoints[0];
            let (signalled, swept) = if signal_first {
                tokio::join!(f.signal(&id, waitpoint, "go"), f.backend.engine().sweep())
            } else {
                let (swept, signalled) =
                    tokio::join!(f.backend.engine().sweep(), f.signal(&id, waitpoint, "go"));
                (signalled, swept)
            };
            swept.unwrap();
            f.advance(0).await;
            let end = f.suspension(&id).await.end.unwrap();
            match (signalled, behavior) {
                (Ok(_), _) => {
                    assert_eq!(end, WaitEnd::Satisfied);
                    let (claimed, signals) = f.resumed(&id).await;
                    assert_eq!(signals, ["go"]);
                    f.backend.complete(&claimed.handle, None).await.unwrap();
                }
                (Err(error), TimeoutBehavior::Fail) => {
                    assert_eq!(error.code(), "target_not_signalable");
                    assert_eq!(end, WaitEnd::TimedOut);
                    assert_eq!(f.state(&id).await, PublicState::Failed);
                }
                (Err(error), _) => {
                    assert_eq!(error.code(), "waitpoint_closed");
                    assert_eq!(end, WaitEnd::AutoResumed);
                    let (claimed, signals) = f.resumed(&id).await;
                    assert_eq!(signals, [TIMEOUT_SIGNAL]);
                    f.backend.complete(&claimed.handle, None).await.unwrap();
                }
            }
        }
    }
}

/// The timer of a wait that is over does not touch the next one.
pub async fn old_timers(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let early = f.pending(&handle, "gate").await.waitpoint;
    accepted(f.signal(&id, &early, "go").await);
    let waitpoint_id = early.waitpoint_id;
    let met =
        timed(TimeoutBehavior::Fail).waitpoints([WaitpointBinding::UsePending { waitpoint_id }]);
    f.backend.suspend(&handle, met).await.unwrap();
    f.advance(9_000).await;
    let args = timed(TimeoutBehavior::Fail);
    let first = super::waits::put(f.backend.suspend(&handle, args).await);
    accepted(f.signal(&id, &first.waitpoints[0], "go").await);
    let (claimed, _) = f.resumed(&id).await;
    f.advance(5_000).await;
    let args = timed(TimeoutBehavior::Fail);
    let second = super::waits::put(f.backend.suspend(&claimed.handle, args).await);
    f.advance(5_000).await;
    assert_eq!(f.state(&id).await, PublicState::Suspended);
    let effect = accepted(f.signal(&id, &second.waitpoints[0], "go").await);
    assert_eq!(effect, SignalEffect::ResumeConditionSatisfied);
}
