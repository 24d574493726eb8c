//! Putting work down, and every way in which it goes on.

use std::time::Duration;

use ff_core::backend::HandleKind;
use ff_core::condition::{Distinct, ResumeCondition};
use ff_core::contracts::{
    CancelExecutionArgs, DeliverSignalArgs, EventType, ListWaitpointsArgs, SignalEffect,
    SuspendArgs, SuspendOutcome, SuspensionReason, TimeoutBehavior, WaitEnd, WaitpointBinding,
    WaitpointState,
};
use ff_core::engine_backend::SuspensionOperations;
use ff_core::state::{AttemptType, PublicState};
use ff_core::types::{Namespace, WaitpointId};

use super::waits::{accepted, all_of, count, early, gate, operator, put};
use super::{Fixture, LEASE_MS, cancel_args, code, failure, item, retries};

const LEASE: u64 = LEASE_MS as u64;

pub async fn released_and_resumed(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    f.backend.progress(&handle, Some(40), None).await.unwrap();
    let args = gate().reason(SuspensionReason::WaitingForApproval);
    let details = put(f.backend.suspend(&handle, args).await);
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Suspended);
    assert_eq!(f.backend.explain(&id).await.unwrap().rule, "waiting_for_approval");
    assert!(seen.lease.is_none(), "a suspended execution holds no lease");
    assert!(f.try_claim().await.is_none());
    assert_eq!(code(&f.backend.complete(&handle, None).await), "execution_not_active");
    // Neither its old lease nor its attempt runs on.
    f.advance(10 * LEASE).await;
    assert_eq!(f.state(&id).await, PublicState::Suspended);

    let effect = accepted(f.signal(&id, &details.waitpoints[0], "go").await);
    assert_eq!(effect, SignalEffect::ResumeConditionSatisfied);
    assert_eq!(f.state(&id).await, PublicState::Waiting);
    let (claimed, signals) = f.resumed(&id).await;
    assert_eq!(signals, ["go"]);
    assert_eq!(claimed.handle.kind(), HandleKind::Resumed);
    assert_eq!(claimed.attempt_index, 0);
    assert_eq!(claimed.attempt_type, AttemptType::Initial);
    assert!(claimed.lease_epoch > handle.lease_epoch());
    assert_eq!(f.snapshot(&id).await.progress.unwrap().percent, Some(40));
    let again = f.backend.observe_signals(&claimed.handle).await.unwrap();
    assert_eq!(again, claimed.resume_signals);
    assert_eq!(code(&f.backend.observe_signals(&handle).await), "stale_lease");
    f.backend.complete(&claimed.handle, None).await.unwrap();
    use EventType::{Claimed, Completed, Resumed, SignalDelivered, Submitted, Suspended};
    let events = [Submitted, Claimed, Suspended, SignalDelivered, Resumed, Claimed, Completed];
    assert_eq!(f.events(&id).await, events);
    let seen = f.suspension(&id).await;
    assert_eq!(seen.end, Some(WaitEnd::Satisfied));
    assert_eq!(seen.waitpoints[0].state, WaitpointState::Closed);
}

/// Waitpoint, name, source, and what it does.
type Given = (usize, &'static str, &'static str, SignalEffect);

pub async fn conditions(f: &Fixture) {
    use SignalEffect::{
        AppendedToWaitpoint, AppendedToWaitpointDuplicate, ResumeConditionSatisfied,
        SignalIgnoredMatcherFailed,
    };
    let tables: [(ResumeCondition, &[Given]); 5] = [
        (
            ResumeCondition::single("a", "yes"),
            &[
                (0, "no", "ann", SignalIgnoredMatcherFailed),
                (0, "yes", "ann", ResumeConditionSatisfied),
            ],
        ),
        (
            all_of([ResumeCondition::any_signal("a"), ResumeCondition::single("b", "yes")]),
            &[
                (0, "x", "ann", AppendedToWaitpoint),
                (0, "y", "ann", AppendedToWaitpointDuplicate),
                (1, "no", "ann", SignalIgnoredMatcherFailed),
                (1, "yes", "ann", ResumeConditionSatisfied),
            ],
        ),
        (
            count(2, Distinct::Waitpoints, &["a", "b", "c"]),
            &[
                (2, "x", "ann", AppendedToWaitpoint),
                (2, "x", "bob", AppendedToWaitpointDuplicate),
                (0, "x", "ann", ResumeConditionSatisfied),
            ],
        ),
        (
            count(2, Distinct::Signals, &["a"]),
            &[(0, "x", "ann", AppendedToWaitpoint), (0, "x", "ann", ResumeConditionSatisfied)],
        ),
        (
            count(2, Distinct::Sources, &["a", "b"]),
            &[
                (0, "x", "ann", AppendedToWaitpoint),
                (1, "x", "ann", AppendedToWaitpointDuplicate),
                (1, "x", "bob", ResumeConditionSatisfied),
            ],
        ),
    ];
    for (condition, signals) in tables {
        let args = SuspendArgs::new(condition.clone()).without_tokens();
        let (id, details) = f.suspended(args).await;
        let mut counted = Vec::new();
        for (at, name, source, expected) in signals {
            let target = operator(&id, &details.waitpoints[*at]);
            let args = DeliverSignalArgs::new(target, *name).source("user", *source);
            let effect = accepted(f.backend.deliver_signal(args).await);
            assert_eq!(effect, *expected, "{condition:?} at {name:?} of {source:?}");
            if matches!(effect, AppendedToWaitpoint | ResumeConditionSatisfied) {
                counted.push((*name).to_owned());
            }
        }
        let (claimed, names) = f.resumed(&id).await;
        assert_eq!(names, counted, "{condition:?}");
        f.backend.complete(&claimed.handle, None).await.unwrap();
    }
}

pub async fn operator_only(f: &Fixture) {
    let (id, details) = f.suspended(SuspendArgs::new(ResumeCondition::OperatorOnly)).await;
    assert!(details.waitpoints.is_empty());
    f.advance(365 * 24 * 3_600_000).await;
    assert_eq!(f.state(&id).await, PublicState::Suspended);
    assert_eq!(f.resume(&id).await.unwrap(), PublicState::Waiting);
    let before = f.picture(&id).await;
    assert_eq!(code(&f.resume(&id).await), "execution_not_suspended");
    assert_eq!(f.picture(&id).await, before);
    let (claimed, signals) = f.resumed(&id).await;
    assert!(signals.is_empty());
    assert_eq!(claimed.handle.kind(), HandleKind::Resumed);
    let history = f.history(&id).await;
    let resumed = history.iter().find(|event| event.event_type == EventType::Resumed).unwrap();
    assert_eq!(resumed.by.as_deref(), Some("ann"));
    assert_eq!(resumed.details["reason"], "looks good");
    assert_eq!(f.suspension(&id).await.end, Some(WaitEnd::ResumedByOperator));
}

/// An operator may also let something go on that waits for signals.
pub async fn operator_overrides(f: &Fixture) {
    let (id, details) = f.suspended(gate()).await;
    f.resume(&id).await.unwrap();
    let late = f.signal(&id, &details.waitpoints[0], "go").await;
    assert_eq!(code(&late), "waitpoint_closed");
    assert!(f.resumed(&id).await.1.is_empty());
}

pub async fn resume_delay(f: &Fixture) {
    let (id, details) = f.suspended(gate().resume_delay(Duration::from_secs(5))).await;
    accepted(f.signal(&id, &details.waitpoints[0], "go").await);
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Delayed);
    assert_eq!(f.backend.explain(&id).await.unwrap().rule, "resume_delay");
    f.advance(4_999).await;
    assert!(f.try_claim().await.is_none());
    f.advance(1).await;
    assert_eq!(f.resumed(&id).await.1, ["go"]);
}

/// The same call again, its answer having been lost, is the same suspension.
pub async fn repeated_call(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let args = gate();
    let first = put(f.backend.suspend(&handle, args.clone()).await);
    let before = f.picture(&id).await;
    assert_eq!(put(f.backend.suspend(&handle, args.clone()).await), first);
    assert_eq!(code(&f.backend.suspend(&handle, gate()).await), "already_suspended");
    assert_eq!(f.picture(&id).await, before);
    accepted(f.signal(&id, &first.waitpoints[0], "go").await);
    assert_eq!(put(f.backend.suspend(&handle, args.clone()).await), first);
    // Somebody else has it by now.
    let (claimed, _) = f.resumed(&id).await;
    assert_eq!(put(f.backend.suspend(&handle, args).await), first);
    assert_eq!(code(&f.backend.suspend(&handle, gate()).await), "stale_lease");
    f.backend.complete(&claimed.handle, None).await.unwrap();
}

/// A wait with a name is waited for once, however often the work is run again.
pub async fn named_wait(f: &Fixture) {
    let (id, handle) = f.start(item().policy(retries(3, 0))).await;
    let named = || gate().idempotency_key("approval");
    let first = put(f.backend.suspend(&handle, named()).await);
    accepted(f.signal(&id, &first.waitpoints[0], "go").await);
    let (claimed, _) = f.resumed(&id).await;
    f.backend.fail(&claimed.handle, failure(Default::default())).await.unwrap();
    f.advance(0).await;
    let retried = f.claim().await;
    assert_eq!(retried.attempt_index, 1);
    assert!(retried.resume_signals.is_empty(), "a new attempt begins at the beginning");
    let before = f.picture(&id).await;
    let outcome = f.backend.suspend(&retried.handle, named()).await.unwrap();
    let SuspendOutcome::AlreadySatisfied { suspension_id, signals } = outcome else {
        panic!("it was waited for already: {outcome:?}");
    };
    assert_eq!(suspension_id, first.suspension_id);
    assert_eq!(signals, claimed.resume_signals);
    assert_eq!(f.picture(&id).await, before, "the lease stands");
    put(f.backend.suspend(&retried.handle, gate().idempotency_key("another")).await);
    f.cancel_execution(&id).await.unwrap();
}

/// Signals that come before anybody waits are kept.
pub async fn early_signal(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let made = f.pending(&handle, "gate").await;
    assert_eq!(made.expires_at, f.now().after_ms(60_000));
    let again = f.pending(&handle, "gate").await;
    assert_eq!(again, made, "asking again answers with the one that is there");
    let waitpoint = &made.waitpoint;
    for name in ["stop", "go", "go"] {
        let effect = accepted(f.signal(&id, waitpoint, name).await);
        assert_eq!(effect, SignalEffect::BufferedForPendingWaitpoint);
    }
    let waitpoint_id = waitpoint.waitpoint_id;
    let args = gate().waitpoints([WaitpointBinding::UsePending { waitpoint_id }]);
    for _ in 0..2 {
        let outcome = f.backend.suspend(&handle, args.clone()).await.unwrap();
        let SuspendOutcome::AlreadySatisfied { suspension_id, signals } = outcome else {
            panic!("the signal was there already: {outcome:?}");
        };
        assert_eq!(suspension_id, args.suspension_id);
        let names: Vec<&str> = signals.iter().map(|one| one.signal_name.as_str()).collect();
        assert_eq!(names, ["go"]);
    }
    assert_eq!(f.state(&id).await, PublicState::Active, "the lease stands");
    assert_eq!(f.backend.observe_signals(&handle).await.unwrap().len(), 1);
    assert_eq!(code(&f.signal(&id, waitpoint, "go").await), "waitpoint_closed");
    f.backend.complete(&handle, None).await.unwrap();
    use EventType::{Claimed, Completed, SignalDelivered, Submitted, WaitpointCreated};
    let told = [SignalDelivered; 3];
    let mut events = vec![Submitted, Claimed, WaitpointCreated];
    events.extend(told);
    events.push(Completed);
    assert_eq!(f.events(&id).await, events);
}

/// Some of what a suspension waits for was there, the rest comes later.
pub async fn early_and_late(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let made = f.pending(&handle, "a").await;
    accepted(f.signal(&id, &made.waitpoint, "first").await);
    let waitpoint_id = made.waitpoint.waitpoint_id;
    let condition = all_of(["a", "b"].map(ResumeCondition::any_signal));
    let args = SuspendArgs::new(condition).waitpoints([
        WaitpointBinding::UsePending { waitpoint_id },
        WaitpointBinding::without_token("b"),
    ]);
    let details = put(f.backend.suspend(&handle, args).await);
    assert_eq!(details.waitpoints[0].waitpoint_id, waitpoint_id);
    let effect = accepted(f.signal(&id, &details.waitpoints[1], "second").await);
    assert_eq!(effect, SignalEffect::ResumeConditionSatisfied);
    assert_eq!(f.resumed(&id).await.1, ["first", "second"]);
}

/// A waitpoint outlives the attempt that made it, and not its time.
pub async fn pending_waitpoints(f: &Fixture) {
    let (id, handle) = f.start(item().policy(retries(3, 0))).await;
    let made = f.pending(&handle, "gate").await;
    f.backend.fail(&handle, failure(Default::default())).await.unwrap();
    f.advance(0).await;
    accepted(f.signal(&id, &made.waitpoint, "go").await);
    let handle = f.claim().await.handle;
    assert_eq!(f.pending(&handle, "gate").await, made);
    f.advance(LEASE - 1).await;
    f.backend.renew_many(std::slice::from_ref(&handle)).await.unwrap();
    f.advance(LEASE - 1).await;
    f.backend.renew_many(std::slice::from_ref(&handle)).await.unwrap();
    // The clock alone decides, whether or not anybody has swept.
    f.clock.step(2);
    assert_eq!(code(&f.signal(&id, &made.waitpoint, "go").await), "waitpoint_closed");
    let waitpoint_id = made.waitpoint.waitpoint_id;
    let args = gate().waitpoints([WaitpointBinding::UsePending { waitpoint_id }]);
    let expired = f.backend.suspend(&handle, args.clone()).await;
    assert_eq!(code(&expired), "pending_waitpoint_expired");
    f.advance(0).await;
    assert_eq!(code(&f.backend.suspend(&handle, args).await), "pending_waitpoint_expired");
    let listed = ListWaitpointsArgs { execution_id: Some(id.clone()), ..Default::default() };
    let page = f.backend.list_waitpoints(listed).await.unwrap();
    assert_eq!(page.waitpoints[0].end, Some(WaitEnd::NeverUsed));
    let next = f.pending(&handle, "gate").await;
    assert_ne!(next, made, "another takes its place");
    let unknown = WaitpointBinding::UsePending { waitpoint_id: WaitpointId::new() };
    let unknown = f.backend.suspend(&handle, gate().waitpoints([unknown])).await;
    assert_eq!(code(&unknown), "not_found");
    let taken = f.backend.suspend(&handle, gate()).await;
    assert_eq!(code(&taken), "waitpoint_already_exists");
}

/// A deadline and a cancellation end a wait, and everything that belongs to it.
pub async fn endings(f: &Fixture) {
    let (id, handle) = f.start(item().deadline(Duration::from_secs(10))).await;
    let early = f.pending(&handle, "early").await;
    let args = gate().timeout(Duration::from_secs(20), TimeoutBehavior::Fail);
    let details = put(f.backend.suspend(&handle, args).await);
    f.advance(10_000).await;
    assert_eq!(f.state(&id).await, PublicState::Expired);
    let seen = f.suspension(&id).await;
    assert_eq!(seen.end, Some(WaitEnd::ExecutionEnded));
    for waitpoint in [&details.waitpoints[0], &early.waitpoint] {
        assert_eq!(code(&f.signal(&id, waitpoint, "go").await), "target_not_signalable");
    }
    assert_eq!(code(&f.resume(&id).await), "execution_not_suspended");
    let listed = ListWaitpointsArgs { execution_id: Some(id.clone()), ..Default::default() };
    let page = f.backend.list_waitpoints(listed).await.unwrap();
    assert!(page.waitpoints.iter().all(|one| one.end == Some(WaitEnd::ExecutionEnded)));
    assert_eq!(page.waitpoints.len(), 2);

    let (id, _) = f.suspended(gate()).await;
    f.cancel_execution(&id).await.unwrap();
    assert_eq!(f.state(&id).await, PublicState::Cancelled);
    assert_eq!(f.suspension(&id).await.end, Some(WaitEnd::ExecutionEnded));
    let open = ListWaitpointsArgs {
        namespace: Some(Namespace::new("default")),
        ..ListWaitpointsArgs::default()
    };
    assert!(f.backend.list_waitpoints(open).await.unwrap().waitpoints.is_empty());
    f.advance(3_600_000).await;
    assert_eq!(f.state(&id).await, PublicState::Cancelled);
}

/// Requests that share a transaction see each other in their order.
pub async fn races(f: &Fixture) {
    for signal_first in [true, false] {
        let (id, details) = f.suspended(gate()).await;
        let waitpoint = &details.waitpoints[0];
        let args = CancelExecutionArgs { ..cancel_args(&id, f.now()) };
        let (signalled, cancelled) = if signal_first {
            tokio::join!(f.signal(&id, waitpoint, "go"), f.backend.cancel_execution(args))
        } else {
            let (cancelled, signalled) =
                tokio::join!(f.backend.cancel_execution(args), f.signal(&id, waitpoint, "go"));
            (signalled, cancelled)
        };
        cancelled.unwrap();
        assert_eq!(f.state(&id).await, PublicState::Cancelled);
        let end = f.suspension(&id).await.end.unwrap();
        match signalled {
            Ok(_) => assert_eq!(end, WaitEnd::Satisfied),
            Err(error) => {
                assert_eq!(error.code(), "target_not_signalable");
                assert_eq!(end, WaitEnd::ExecutionEnded);
            }
        }
    }
    // A suspension and its end in one transaction leave nothing open.
    for _ in 0..5 {
        let (id, handle) = f.start(item()).await;
        let args = cancel_args(&id, f.now());
        let (put, cancelled) =
            tokio::join!(f.backend.suspend(&handle, gate()), f.backend.cancel_execution(args));
        cancelled.unwrap();
        f.advance(0).await;
        if put.is_ok() {
            assert_eq!(f.suspension(&id).await.end, Some(WaitEnd::ExecutionEnded));
        }
    }
    // A signal on its way while its waitpoint is taken into use is not lost.
    for signal_first in [true, false] {
        let (id, handle) = f.start(item()).await;
        let made = f.pending(&handle, "gate").await.waitpoint;
        let waitpoint_id = made.waitpoint_id;
        let args = gate().waitpoints([WaitpointBinding::UsePending { waitpoint_id }]);
        let (put, signalled) = if signal_first {
            let (signalled, put) =
                tokio::join!(f.signal(&id, &made, "go"), f.backend.suspend(&handle, args));
            (put, signalled)
        } else {
            tokio::join!(f.backend.suspend(&handle, args), f.signal(&id, &made, "go"))
        };
        let effect = accepted(signalled);
        match put.unwrap() {
            SuspendOutcome::AlreadySatisfied { signals, .. } => {
                assert_eq!(effect, SignalEffect::BufferedForPendingWaitpoint);
                assert_eq!(signals.len(), 1);
                f.backend.complete(&handle, None).await.unwrap();
            }
            SuspendOutcome::Suspended(_) => {
                assert_eq!(effect, SignalEffect::ResumeConditionSatisfied);
                let (claimed, signals) = f.resumed(&id).await;
                assert_eq!(signals, ["go"]);
                f.backend.complete(&claimed.handle, None).await.unwrap();
            }
        }
    }
}

/// A finished execution that is run again has nothing of its earlier life.
pub async fn replay(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let early = f.pending(&handle, "early").await.waitpoint;
    let named = || gate().idempotency_key("approval");
    let details = put(f.backend.suspend(&handle, named()).await);
    accepted(f.signal(&id, &details.waitpoints[0], "go").await);
    let (claimed, _) = f.resumed(&id).await;
    f.backend.complete(&claimed.handle, None).await.unwrap();
    f.replay(&id).await.unwrap();
    assert_eq!(code(&f.signal(&id, &early, "go").await), "waitpoint_closed");
    let handle = f.claim().await.handle;
    assert!(f.backend.observe_signals(&handle).await.unwrap().is_empty());
    let again = put(f.backend.suspend(&handle, named()).await);
    accepted(f.signal(&id, &again.waitpoints[0], "go").await);
    assert_eq!(f.resumed(&id).await.1, ["go"]);
}

/// What cannot be waited for is refused, and changes nothing.
pub async fn refused(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let before = f.picture(&id).await;
    let single = ResumeCondition::single("gate", "go");
    let gate_twice =
        [WaitpointBinding::without_token("gate"), WaitpointBinding::without_token("gate")];
    let stray = [WaitpointBinding::without_token("gate"), WaitpointBinding::without_token("stray")];
    let waitpoint_id = WaitpointId::new();
    let same_id = ["a", "b"].map(|key| WaitpointBinding::Fresh {
        waitpoint_id,
        waitpoint_key: key.to_owned(),
        token: None,
    });
    let deep = (0..4).fold(single.clone(), |inner, _| all_of([inner]));
    for args in [
        gate().waitpoints([]),
        gate().waitpoints(gate_twice),
        gate().waitpoints(stray),
        SuspendArgs::new(count(2, Distinct::Waitpoints, &["a", "b"])).waitpoints(same_id),
        SuspendArgs::new(ResumeCondition::TimeoutOnly),
        SuspendArgs::new(all_of([])).without_tokens(),
        SuspendArgs::new(deep).without_tokens(),
        SuspendArgs::new(count(2, Distinct::Waitpoints, &["a"])).without_tokens(),
        SuspendArgs::new(ResumeCondition::OperatorOnly)
            .waitpoints([WaitpointBinding::without_token("gate")]),
        SuspendArgs::new(ResumeCondition::single("", "go")).without_tokens(),
        gate().idempotency_key(""),
        gate().timeout(Duration::from_secs(u64::MAX / 1_000), TimeoutBehavior::Fail),
        gate().resume_delay(Duration::from_secs(u64::MAX / 1_000)),
    ] {
        let outcome = f.backend.suspend(&handle, args.clone()).await;
        assert_eq!(code(&outcome), "invalid_input", "{args:?}");
    }
    // Without a configured secret there are no tokens, and the answer says what to do.
    let error = f.backend.suspend(&handle, SuspendArgs::new(single)).await.unwrap_err();
    assert_eq!(error.code(), "waitpoint_secret_missing");
    assert!(error.to_string().contains("EngineConfig::waitpoint_secrets"), "{error}");
    assert_eq!(f.picture(&id).await, before);
    for at in 0..64 {
        f.pending(&handle, &format!("w{at}")).await;
    }
    let over = f.backend.create_waitpoint(&handle, early("one more")).await;
    assert_eq!(code(&over), "invalid_input");
    assert_eq!(code(&f.backend.suspend(&handle, gate()).await), "invalid_input");
}
