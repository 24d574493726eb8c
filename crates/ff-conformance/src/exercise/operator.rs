//! What operators may do to an execution, and when.

use std::collections::BTreeMap;

use ff_core::contracts::{
    CancelExecutionArgs, ChangePriorityArgs, ClaimArgs, EventType, FailureClass,
    ReplayExecutionArgs, ReplayExecutionResult, SetTagsArgs,
};
use ff_core::policy::ExecutionPolicy;
use ff_core::state::{AttemptType, PublicState};
use ff_core::types::{CancelSource, LaneId, LeaseEpoch, TimestampMs};

use super::{Fixture, LANE, cancel_args, claim_args, code, failure, item};

pub async fn cancel(f: &Fixture) {
    let waiting = f.submit(item().priority(1)).await;
    f.cancel_execution(&waiting).await.unwrap();
    let (active, _) = f.start(item()).await;
    f.cancel_execution(&active).await.unwrap();
    for id in [&waiting, &active] {
        let seen = f.snapshot(id).await;
        assert_eq!(seen.public_state, PublicState::Cancelled);
        assert_eq!(seen.cancellation_reason.as_deref(), Some("asked for"));
        assert_eq!(seen.cancelled_by.as_deref(), Some("operator_override"));
        assert_eq!(f.events(id).await.last(), Some(&EventType::Cancelled));
        let before = f.picture(id).await;
        f.cancel_execution(id).await.unwrap();
        assert_eq!(f.picture(id).await, before, "a repeat changes nothing");
    }
    assert!(f.try_claim().await.is_none());
}

pub async fn cancel_needs_fence(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let before = f.picture(&id).await;
    let by_holder = |lease_epoch| CancelExecutionArgs {
        source: CancelSource::LeaseHolder,
        lease_epoch,
        ..cancel_args(&id, f.now())
    };
    let missing = f.backend.cancel_execution(by_holder(None)).await;
    assert_eq!(code(&missing), "invalid_input");
    for wrong in [0, handle.lease_epoch().0 + 1, u64::MAX] {
        let stale = f.backend.cancel_execution(by_holder(Some(LeaseEpoch(wrong)))).await;
        assert_eq!(code(&stale), "stale_lease");
    }
    assert_eq!(f.picture(&id).await, before);
    f.backend.cancel_execution(by_holder(Some(handle.lease_epoch()))).await.unwrap();
    assert_eq!(f.snapshot(&id).await.cancelled_by.as_deref(), Some("lease_holder"));

    let (held, handle) = f.start(item()).await;
    f.backend.cancel(&handle, "no use").await.unwrap();
    let seen = f.snapshot(&held).await;
    assert_eq!(seen.public_state, PublicState::Cancelled);
    assert_eq!(seen.cancellation_reason.as_deref(), Some("no use"));
    f.backend.cancel(&handle, "no use").await.expect("a repeat is answered as the first was");
}

pub async fn priority(f: &Fixture) {
    let first = f.submit(item()).await;
    let second = f.submit(item()).await;
    f.change_priority(&second, 7).await.unwrap();
    assert_eq!(f.snapshot(&second).await.priority, 7);
    let event = f.history(&second).await.pop().unwrap();
    assert_eq!(event.event_type, EventType::PriorityChanged);
    assert_eq!(event.details["old_priority"], 0);
    assert_eq!(event.details["new_priority"], 7);
    assert_eq!(f.claim().await.execution_id, second);
    f.change_priority(&first, 99_999).await.unwrap();
    assert_eq!(f.snapshot(&first).await.priority, 9_000);
    f.change_priority(&first, -1).await.unwrap();
    assert_eq!(f.snapshot(&first).await.priority, 0);
}

pub async fn replay(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    f.backend.complete(&handle, Some(b"one".to_vec())).await.unwrap();
    let args = ReplayExecutionArgs { execution_id: id.clone(), now: f.now() };
    let replayed = f.backend.replay_execution(args).await.unwrap();
    let public_state = PublicState::Waiting;
    assert_eq!(replayed, ReplayExecutionResult::Replayed { public_state });
    let seen = f.snapshot(&id).await;
    assert_eq!((seen.replay_count, seen.finished_at), (1, None));
    assert_eq!(seen.attempts.len(), 1, "the attempt is used again");
    assert_eq!(seen.attempts[0].outcome, None);
    assert!(f.backend.result(&id).await.unwrap().is_none(), "the old result is gone");
    assert_eq!(f.history(&id).await.pop().unwrap().details["branch"], "normal");

    let claimed = f.claim().await;
    assert_eq!(claimed.attempt_type, AttemptType::Replay);
    assert_eq!(claimed.attempt_index, 0);
    assert!(claimed.lease_epoch.0 > handle.lease_epoch().0 + 1);
    f.backend.complete(&claimed.handle, Some(b"two".to_vec())).await.unwrap();
    assert_eq!(f.backend.result(&id).await.unwrap().as_deref(), Some(&b"two"[..]));

    let (failed, handle) = f.start(item()).await;
    f.backend.fail(&handle, failure(FailureClass::Fatal)).await.unwrap();
    f.replay(&failed).await.unwrap();
    let seen = f.snapshot(&failed).await;
    assert_eq!((seen.public_state, seen.failure_reason), (PublicState::Waiting, None));
}

pub async fn replay_cap(f: &Fixture) {
    let policy = ExecutionPolicy { max_replay_count: Some(1), ..ExecutionPolicy::default() };
    let (id, handle) = f.start(item().policy(policy)).await;
    f.backend.complete(&handle, None).await.unwrap();
    f.replay(&id).await.unwrap();
    let claimed = f.claim().await;
    f.backend.complete(&claimed.handle, None).await.unwrap();
    let before = f.picture(&id).await;
    assert_eq!(code(&f.replay(&id).await), "max_replays_exhausted");
    assert_eq!(f.picture(&id).await, before);
}

pub async fn reschedule(f: &Fixture) {
    let id = f.submit(item()).await;
    assert_eq!(f.reschedule(&id, 1_000).await.unwrap(), PublicState::Delayed);
    assert!(f.try_claim().await.is_none());
    f.advance(600).await;
    // Later again: the first moment must not fire.
    assert_eq!(f.reschedule(&id, 1_000).await.unwrap(), PublicState::Delayed);
    f.advance(400).await;
    assert_eq!(f.state(&id).await, PublicState::Delayed);
    assert_eq!(f.snapshot(&id).await.not_before, Some(f.now().after_ms(600)));
    assert_eq!(f.reschedule(&id, 0).await.unwrap(), PublicState::Waiting);
    assert_eq!(f.claim().await.execution_id, id);
    let before = f.picture(&id).await;
    assert_eq!(code(&f.reschedule(&id, 0).await), "not_runnable");
    assert_eq!(f.picture(&id).await, before);
}

pub async fn tags(f: &Fixture) {
    let id = f.submit(item().tag("a.keep", "1").tag("a.drop", "2")).await;
    let set = |tags: &[(&str, Option<&str>)]| {
        let owned =
            |(key, value): &(&str, Option<&str>)| ((*key).to_owned(), value.map(str::to_owned));
        SetTagsArgs { execution_id: id.clone(), tags: tags.iter().map(owned).collect() }
    };
    let change = set(&[("a.drop", None), ("a.new", Some("3")), ("a.absent", None)]);
    f.backend.set_tags(change.clone()).await.unwrap();
    let expected = [("a.keep", "1"), ("a.new", "3")];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    assert_eq!(f.snapshot(&id).await.tags, expected);
    let before = f.picture(&id).await;
    f.backend.set_tags(change).await.unwrap();
    assert_eq!(f.picture(&id).await, before, "the same tags again are no transition");
    f.cancel_execution(&id).await.unwrap();
    f.backend.set_tags(set(&[("a.late", Some("yes"))])).await.unwrap();
    assert_eq!(f.snapshot(&id).await.tags["a.late"], "yes", "finished work can be tagged too");
}

pub async fn finished_is_final(f: &Fixture) {
    for _ in 0..2 {
        f.submit(item()).await;
    }
    let args = ClaimArgs { max: 2, ..claim_args() };
    let claimed = f.backend.claim_many(args).await.unwrap();
    let (completed, cancelled) = (&claimed[0], &claimed[1]);
    f.backend.complete(&completed.handle, None).await.unwrap();
    f.cancel_execution(&cancelled.execution_id).await.unwrap();
    for (one, cancel, replay) in
        [(completed, "invalid_input", "ok"), (cancelled, "ok", "execution_not_terminal")]
    {
        let id = &one.execution_id;
        let before = f.picture(id).await;
        assert_eq!(code(&f.cancel_execution(id).await), cancel);
        assert_eq!(code(&f.change_priority(id, 1).await), "execution_not_eligible");
        assert_eq!(code(&f.reschedule(id, 1).await), "not_runnable");
        assert_eq!(f.picture(id).await, before);
        assert_eq!(code(&f.replay(id).await), replay);
    }
}

/// An operator's action happened when its caller says; the log keeps the store's time beside it.
pub async fn time_of_the_caller(f: &Fixture) {
    let asked_at = TimestampMs(f.now().0 - 9);
    let (id, _) = f.start(item()).await;
    let args = CancelExecutionArgs { now: asked_at, ..cancel_args(&id, f.now()) };
    f.backend.cancel_execution(args).await.unwrap();
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.finished_at, Some(asked_at));
    assert_eq!(seen.attempts[0].ended_at, Some(asked_at));

    let (replayed, handle) = f.start(item()).await;
    f.backend.complete(&handle, None).await.unwrap();
    let args = ReplayExecutionArgs { execution_id: replayed.clone(), now: asked_at };
    f.backend.replay_execution(args).await.unwrap();
    let execution_id = replayed.clone();
    let lane_id = LaneId::new(LANE);
    let args = ChangePriorityArgs { execution_id, new_priority: 5, lane_id, now: asked_at };
    f.backend.change_priority(args).await.unwrap();
    let of_replayed = f.history(&replayed).await;
    let mut events: Vec<_> = of_replayed.iter().rev().take(2).collect();
    let cancelled = f.history(&id).await.pop().unwrap();
    events.push(&cancelled);
    for event in events {
        assert_eq!(event.details["asked_at_ms"], asked_at.0, "{event:?}");
        assert_eq!(event.at, f.now(), "retention goes by the time of the log");
    }
    f.change_priority(&replayed, 6).await.unwrap();
    let same = f.history(&replayed).await.pop().unwrap();
    assert!(same.details.get("asked_at_ms").is_none(), "{same:?}");
}
