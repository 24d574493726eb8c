//! Signals: once each, byte for byte, within limits, and visible.

use ff_core::condition::{Distinct, ResumeCondition};
use ff_core::contracts::{
    DeliverSignalArgs, EventType, ListSignalsArgs, ListWaitpointsArgs, SignalEffect, SignalOutcome,
    SignalTarget, SuspendArgs, WaitpointState,
};
use ff_core::engine::EngineConfig;
use ff_core::engine_backend::{Namespaced, SuspensionOperations};
use ff_core::limits::{Limits, SIGNALS_BUFFERED};
use ff_core::types::{ExecutionId, Namespace, SignalId, WaitpointId};

use super::waits::{accepted, count, early, gate, operator, put};
use super::{Fixture, code, item, new_id};

pub async fn once_by_key(f: &Fixture) {
    let condition = count(2, Distinct::Signals, &["gate"]);
    let (id, details) = f.suspended(SuspendArgs::new(condition).without_tokens()).await;
    let target = operator(&id, &details.waitpoints[0]);
    let keyed = || DeliverSignalArgs::new(target.clone(), "go").idempotency_key("order-1");
    let first = keyed();
    assert_eq!(
        accepted(f.backend.deliver_signal(first.clone()).await),
        SignalEffect::AppendedToWaitpoint
    );
    let before = f.picture(&id).await;
    let duplicate = SignalOutcome::Duplicate {
        existing_signal_id: first.signal_id,
        effect: SignalEffect::AppendedToWaitpoint,
    };
    for again in [first.clone(), keyed().payload("another body")] {
        assert_eq!(f.backend.deliver_signal(again).await.unwrap(), duplicate);
    }
    assert_eq!(f.picture(&id).await, before, "a duplicate changes nothing");
    // Without a key the signal's identity is taken.
    let plain = DeliverSignalArgs::new(target.clone(), "go");
    let effect = accepted(f.backend.deliver_signal(plain.clone()).await);
    assert_eq!(effect, SignalEffect::ResumeConditionSatisfied);
    // What has moved on answers a repeat as before, whatever has become of the waitpoint.
    let repeated = f.backend.deliver_signal(plain.clone()).await.unwrap();
    let existing_signal_id = plain.signal_id;
    assert_eq!(repeated, SignalOutcome::Duplicate { existing_signal_id, effect });
    let (claimed, signals) = f.resumed(&id).await;
    assert_eq!(signals, ["go", "go"]);
    f.backend.complete(&claimed.handle, None).await.unwrap();
    assert_eq!(f.backend.deliver_signal(first).await.unwrap(), duplicate);
    let late = f.backend.deliver_signal(DeliverSignalArgs::new(target, "go")).await;
    assert_eq!(code(&late), "target_not_signalable");
}

pub async fn same_key_at_once(f: &Fixture) {
    let condition = count(2, Distinct::Signals, &["gate"]);
    let (id, details) = f.suspended(SuspendArgs::new(condition).without_tokens()).await;
    let target = operator(&id, &details.waitpoints[0]);
    let keyed = || DeliverSignalArgs::new(target.clone(), "go").idempotency_key("order-1");
    let (one, two) =
        tokio::join!(f.backend.deliver_signal(keyed()), f.backend.deliver_signal(keyed()));
    let outcomes = [one.unwrap(), two.unwrap()];
    let new = |outcome: &&SignalOutcome| matches!(outcome, SignalOutcome::Accepted { .. });
    assert_eq!(outcomes.iter().filter(new).count(), 1, "{outcomes:?}");
    let list = ListSignalsArgs { execution_id: id, after: 0, limit: 0 };
    assert_eq!(f.backend.list_signals(list).await.unwrap().len(), 1);
}

pub async fn bytes(f: &Fixture) {
    for payload in [None, Some(Vec::new()), Some((0..=255).collect::<Vec<u8>>())] {
        let (id, details) = f.suspended(gate()).await;
        let mut args =
            DeliverSignalArgs::new(operator(&id, &details.waitpoints[0]), "go").source("a", "b");
        args.payload.clone_from(&payload);
        args.payload_encoding = Some("raw".into());
        args.correlation_id = Some("c-1".into());
        args.signal_category = "approval".into();
        accepted(f.backend.deliver_signal(args.clone()).await);
        let claimed = f.resumed(&id).await.0;
        let signal = &claimed.resume_signals[0];
        assert_eq!(signal.payload, payload);
        assert_eq!(signal.signal_id, args.signal_id);
        assert_eq!(signal.waitpoint_key, "gate");
        assert_eq!((&*signal.source_type, &*signal.source_identity), ("a", "b"));
        assert_eq!(signal.signal_category, "approval");
        assert_eq!(signal.correlation_id.as_deref(), Some("c-1"));
        assert_eq!(signal.payload_encoding.as_deref(), Some("raw"));
        assert_eq!(signal.accepted_at, f.now());
        f.backend.complete(&claimed.handle, None).await.unwrap();
    }
}

pub fn small_signals() -> EngineConfig {
    let limits = Limits { signal_bytes: 8, ..Limits::default() };
    EngineConfig { limits, ..EngineConfig::default() }
}

pub async fn limits(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let made = f.pending(&handle, "gate").await.waitpoint;
    let target = operator(&id, &made);
    let before = f.picture(&id).await;
    let large = DeliverSignalArgs::new(target.clone(), "go").payload([0; 9]);
    assert_eq!(code(&f.backend.deliver_signal(large).await), "payload_too_large");
    for args in [
        DeliverSignalArgs::new(target.clone(), ""),
        DeliverSignalArgs::new(target.clone(), "x".repeat(129)),
        DeliverSignalArgs::new(target.clone(), "a\nb"),
        DeliverSignalArgs::new(target.clone(), "go").source("x".repeat(256), ""),
        DeliverSignalArgs::new(target.clone(), "go").source("", "nul\0"),
        DeliverSignalArgs::new(target.clone(), "go").idempotency_key(""),
    ] {
        assert_eq!(code(&f.backend.deliver_signal(args).await), "invalid_input");
    }
    let execution_id = new_id();
    let waitpoint_id = made.waitpoint_id;
    let stranger = SignalTarget::Waitpoint { execution_id, waitpoint_id };
    let unknown = f.backend.deliver_signal(DeliverSignalArgs::new(stranger, "go")).await;
    assert_eq!(code(&unknown), "not_found");
    let (execution_id, waitpoint_id) = (id.clone(), WaitpointId::new());
    let stranger = SignalTarget::Waitpoint { execution_id, waitpoint_id };
    let unknown = f.backend.deliver_signal(DeliverSignalArgs::new(stranger, "go")).await;
    assert_eq!(code(&unknown), "not_found");
    assert_eq!(f.picture(&id).await, before);

    for at in 0..SIGNALS_BUFFERED {
        let effect = accepted(f.signal(&id, &made, &format!("s{at}")).await);
        assert_eq!(effect, SignalEffect::BufferedForPendingWaitpoint);
    }
    let before = f.picture(&id).await;
    assert_eq!(code(&f.signal(&id, &made, "one more").await), "signal_limit_exceeded");
    assert_eq!(f.picture(&id).await, before);
}

pub async fn listed(f: &Fixture) {
    let (first, _) = f.suspended(gate()).await;
    f.advance(1).await;
    let (second, details) = f
        .suspended(
            SuspendArgs::new(ResumeCondition::AllOf {
                members: ["a", "b"].map(ResumeCondition::any_signal).to_vec(),
            })
            .without_tokens(),
        )
        .await;
    f.advance(1).await;
    let (third, handle) = f.start(item()).await;
    f.backend.create_waitpoint(&handle, early("later")).await.unwrap();

    let mut seen = Vec::new();
    let mut args = ListWaitpointsArgs {
        namespace: Some(Namespace::new("default")),
        limit: 1,
        ..ListWaitpointsArgs::default()
    };
    loop {
        let page = f.backend.list_waitpoints(args.clone()).await.unwrap();
        seen.extend(page.waitpoints);
        args.cursor = page.next_cursor;
        if args.cursor.is_none() {
            break;
        }
    }
    let places: Vec<(&ExecutionId, WaitpointState)> =
        seen.iter().map(|one| (&one.execution_id, one.state)).collect();
    use WaitpointState::{Active, Pending};
    let expected = [(&first, Active), (&second, Active), (&second, Active), (&third, Pending)];
    assert_eq!(places, expected, "oldest first");
    let mut of_second: Vec<_> = seen[1..3].iter().map(|one| &*one.waitpoint_key).collect();
    of_second.sort_unstable();
    assert_eq!(of_second, ["a", "b"]);

    accepted(f.signal(&second, &details.waitpoints[0], "one").await);
    accepted(f.signal(&second, &details.waitpoints[1], "two").await);
    let all = ListSignalsArgs { execution_id: second.clone(), after: 0, limit: 0 };
    let signals = f.backend.list_signals(all).await.unwrap();
    let told: Vec<_> = signals.iter().map(|one| (one.number, &*one.signal.signal_name)).collect();
    assert_eq!(told, [(1, "one"), (2, "two")]);
    let rest = ListSignalsArgs { execution_id: second.clone(), after: 1, limit: 1 };
    assert_eq!(f.backend.list_signals(rest).await.unwrap()[..], signals[1..]);
    let delivered = f.history(&second).await;
    let delivered = delivered.iter().filter(|one| one.event_type == EventType::SignalDelivered);
    let ids: Vec<_> = delivered.map(|one| one.details["signal_id"].clone()).collect();
    let own: Vec<_> = signals.iter().map(|one| serde_json::json!(one.signal.signal_id)).collect();
    assert_eq!(ids, own);

    for (args, expected) in [
        (ListWaitpointsArgs::default(), "invalid_input"),
        (ListWaitpointsArgs { limit: 1_001, ..args.clone() }, "invalid_input"),
        (ListWaitpointsArgs { cursor: Some("x".into()), ..args.clone() }, "invalid_cursor"),
        (ListWaitpointsArgs { execution_id: Some(new_id()), ..args }, "not_found"),
    ] {
        assert_eq!(code(&f.backend.list_waitpoints(args).await), expected);
    }
}

/// What is foreign does not exist.
pub async fn namespaces(f: &Fixture) {
    let own = Namespaced::new(f.backend.clone(), Namespace::new("own"));
    let other = Namespaced::new(f.backend.clone(), Namespace::new("other"));
    let id = f.submit(item().namespace("own")).await;
    let handle = f.claim().await.handle;
    assert_eq!(code(&other.suspend(&handle, gate()).await), "not_found");
    assert_eq!(code(&other.create_waitpoint(&handle, early("x")).await), "not_found");
    let details = put(own.suspend(&handle, gate()).await);
    let before = f.picture(&id).await;
    let signal = || DeliverSignalArgs::new(operator(&id, &details.waitpoints[0]), "go");
    let resume = ff_core::contracts::ResumeArgs {
        execution_id: id.clone(),
        by: String::new(),
        reason: String::new(),
        delay_ms: 0,
    };
    assert_eq!(code(&other.deliver_signal(signal()).await), "not_found");
    assert_eq!(code(&other.resume(resume).await), "not_found");
    assert_eq!(code(&other.describe_suspension(&id).await), "not_found");
    assert_eq!(code(&other.observe_signals(&handle).await), "not_found");
    let list = ListSignalsArgs { execution_id: id.clone(), after: 0, limit: 0 };
    assert_eq!(code(&other.list_signals(list).await), "not_found");
    let waitpoint_id = details.waitpoints[0].waitpoint_id;
    assert_eq!(code(&other.read_waitpoint_token(&id, waitpoint_id).await), "not_found");
    let open = other.list_waitpoints(ListWaitpointsArgs::default()).await.unwrap();
    assert!(open.waitpoints.is_empty());
    let foreign = ListWaitpointsArgs {
        namespace: Some(Namespace::new("own")),
        ..ListWaitpointsArgs::default()
    };
    assert_eq!(code(&other.list_waitpoints(foreign).await), "invalid_input");
    assert_eq!(code(&other.list_waitpoint_keys().await), "unavailable");
    assert_eq!(f.picture(&id).await, before);
    let open = own.list_waitpoints(ListWaitpointsArgs::default()).await.unwrap();
    assert_eq!(open.waitpoints.len(), 1);
    accepted(
        own.deliver_signal(DeliverSignalArgs { signal_id: SignalId::new(), ..signal() }).await,
    );
}
