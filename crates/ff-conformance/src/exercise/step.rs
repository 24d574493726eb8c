//! What an execution has done stays done.

use std::time::Duration;

use ff_core::contracts::{EventType, FailureClass, RecordStepOutcome, SleepOutcome, Step};
use ff_core::engine_backend::StepOperations;
use ff_core::limits;
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, TimestampMs};

use super::retention::HOUR_MS;
use super::{Fixture, LEASE_MS, code, failure, item, retries};

fn lease_from(now: TimestampMs) -> TimestampMs {
    now.after_ms(u64::from(LEASE_MS))
}

async fn steps(f: &Fixture, id: &ExecutionId) -> Vec<Step> {
    f.backend.list_steps(id, 0, 100).await.unwrap().items
}

fn names(steps: &[Step]) -> Vec<&str> {
    steps.iter().map(|step| step.name.as_str()).collect()
}

pub async fn recorded_once(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let lease_expires_at = lease_from(f.now());
    let first = f.backend.record_step(&handle, "charge", every_byte.clone()).await.unwrap();
    assert_eq!(first, RecordStepOutcome::Recorded { sequence: 1, lease_expires_at });
    let again = f.backend.record_step(&handle, "charge", every_byte.clone()).await.unwrap();
    assert_eq!(again, first, "a repeat is told the same");
    let other = f.backend.record_step(&handle, "charge", b"other".to_vec()).await.unwrap();
    let result = every_byte.clone().into();
    assert_eq!(other, RecordStepOutcome::Kept { sequence: 1, result, lease_expires_at });
    let second = f.backend.record_step(&handle, "Charge", Vec::new()).await.unwrap();
    assert_eq!(second, RecordStepOutcome::Recorded { sequence: 2, lease_expires_at });

    let recorded = steps(f, &id).await;
    assert_eq!(names(&recorded), ["charge", "Charge"]);
    assert_eq!(*recorded[0].result, every_byte[..]);
    assert_eq!(recorded[0].recorded_at, f.now());
    assert!(recorded[1].result.is_empty());
    assert_eq!(f.snapshot(&id).await.step_count, 2);
    // Steps are no transitions.
    assert_eq!(f.events(&id).await, [EventType::Submitted, EventType::Claimed]);
    assert_eq!(f.snapshot(&id).await.version, 2);
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(steps(f, &id).await, recorded);
}

pub async fn come_back_with_the_claim(f: &Fixture) {
    let (id, handle) = f.start(item().policy(retries(5, 1_000))).await;
    for name in ["c", "a", "b"] {
        f.backend.record_step(&handle, name, name.as_bytes().to_vec()).await.unwrap();
    }
    f.backend.fail(&handle, failure(FailureClass::Retryable)).await.unwrap();
    f.advance(1_000).await;
    let retry = f.claim().await;
    assert_eq!(names(&retry.steps), ["c", "a", "b"], "in the order in which they were recorded");
    assert_eq!(&*retry.steps[0].result, b"c");
    let known = f.backend.record_step(&retry.handle, "a", b"other".to_vec()).await.unwrap();
    assert!(matches!(known, RecordStepOutcome::Kept { sequence: 2, .. }), "{known:?}");
    f.backend.record_step(&retry.handle, "d", b"d".to_vec()).await.unwrap();

    // A worker that dies, one whose lease is taken away, one that puts the work down.
    f.advance(u64::from(LEASE_MS)).await;
    assert_eq!(names(&f.claim().await.steps), ["c", "a", "b", "d"]);
    f.revoke(&id).await.unwrap();
    let resumed = f.claim().await;
    assert_eq!(names(&resumed.steps), ["c", "a", "b", "d"]);
    assert_eq!([resumed.steps[2].attempt_index, resumed.steps[3].attempt_index], [0, 1]);
    f.backend.complete(&resumed.handle, None).await.unwrap();
    f.replay(&id).await.unwrap();
    assert_eq!(f.claim().await.steps.len(), 4, "a replay keeps what was done");
    // Whoever has none is told of none.
    f.submit(item()).await;
    assert!(f.claim().await.steps.is_empty());
}

pub async fn keep_the_lease(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    for at in 0..4 {
        f.advance(u64::from(LEASE_MS) - 1).await;
        let name = format!("step-{at}");
        f.backend.record_step(&handle, &name, Vec::new()).await.unwrap();
        let lease = f.snapshot(&id).await.lease.expect("it is held");
        assert_eq!(lease.expires_at, lease_from(f.now()));
    }
    f.advance(u64::from(LEASE_MS)).await;
    let late = f.backend.record_step(&handle, "late", Vec::new()).await;
    assert_eq!(code(&late), "execution_not_active");
    let repeat = f.backend.record_step(&handle, "step-0", Vec::new()).await;
    assert_eq!(code(&repeat), "execution_not_active", "a repeat does not pass the fence either");
    assert_eq!(steps(f, &id).await.len(), 4);
}

pub async fn limits(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let before = f.picture(&id).await;
    let long = "n".repeat(limits::STEP_NAME_BYTES + 1);
    for name in ["", &long, "a\0b"] {
        assert_eq!(code(&f.backend.record_step(&handle, name, Vec::new()).await), "invalid_input");
        let sleep = f.backend.sleep_step(&handle, name, Duration::from_secs(1)).await;
        assert_eq!(code(&sleep), "invalid_input");
    }
    let large = vec![1; limits::STEP_BYTES];
    let larger = vec![1; limits::STEP_BYTES + 1];
    assert_eq!(code(&f.backend.record_step(&handle, "a", larger).await), "payload_too_large");
    assert_eq!(f.picture(&id).await, before);
    let most = limits::STEPS_BYTES / (limits::STEP_BYTES + 2);
    for at in 0..most {
        f.backend.record_step(&handle, &format!("{at:02}"), large.clone()).await.unwrap();
    }
    let full = f.backend.record_step(&handle, "full", large.clone()).await;
    assert_eq!(code(&full), "payload_too_large");
    assert_eq!(code(&f.backend.list_steps(&id, 0, 0).await), "invalid_input");
    assert_eq!(code(&f.backend.list_steps(&id, 0, limits::STEPS + 1).await), "invalid_input");
    f.backend.record_step(&handle, "small", Vec::new()).await.unwrap();
    f.revoke(&id).await.unwrap();
    let again = f.claim().await;
    assert_eq!(again.steps.len(), most + 1);
    assert!(again.steps.iter().take(most).all(|step| *step.result == large[..]));
}

pub async fn sleep(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let hour = Duration::from_secs(3600);
    let until = f.now().after(hour);
    let asleep = f.backend.sleep_step(&handle, "cool-off", hour).await.unwrap();
    assert_eq!(asleep, SleepOutcome::PutDown { until });
    assert_eq!(f.state(&id).await, PublicState::Delayed);
    assert!(f.snapshot(&id).await.lease.is_none(), "nobody holds it meanwhile");
    f.advance(3600 * 1000 - 1).await;
    assert!(f.try_claim().await.is_none());
    f.advance(1).await;
    let resumed = f.claim().await;
    assert_eq!(resumed.attempt_index, handle.attempt_index(), "the same attempt goes on");
    assert_eq!(names(&resumed.steps), ["cool-off"]);
    assert_eq!(resumed.steps[0].due_at, Some(until));
    let over = f.backend.sleep_step(&resumed.handle, "cool-off", hour).await.unwrap();
    let lease_expires_at = lease_from(f.now());
    assert_eq!(over, SleepOutcome::Over { due_at: until, lease_expires_at });

    // Woken too early, it sleeps on until the time that was recorded.
    let until = f.now().after(hour);
    f.backend.sleep_step(&resumed.handle, "more", hour).await.unwrap();
    f.reschedule(&id, 0).await.unwrap();
    let early = f.claim().await;
    f.advance(1_000).await;
    let asleep = f.backend.sleep_step(&early.handle, "more", hour).await.unwrap();
    assert_eq!(asleep, SleepOutcome::PutDown { until });
    f.advance(3600 * 1000).await;
    let last = f.claim().await;
    assert_eq!(names(&last.steps), ["cool-off", "more"]);
    let none = f.backend.sleep_step(&last.handle, "none", Duration::ZERO).await.unwrap();
    assert!(matches!(none, SleepOutcome::Over { .. }), "{none:?}");
    // A name stands for one thing.
    let result = f.backend.record_step(&last.handle, "more", b"x".to_vec()).await;
    assert_eq!(code(&result), "invalid_input");
    f.backend.record_step(&last.handle, "done", b"x".to_vec()).await.unwrap();
    let sleep = f.backend.sleep_step(&last.handle, "done", hour).await;
    assert_eq!(code(&sleep), "invalid_input");
    f.backend.complete(&last.handle, None).await.unwrap();
}

pub async fn sleep_repeated(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let first = f.backend.sleep_step(&handle, "nap", Duration::from_secs(5)).await.unwrap();
    let before = f.picture(&id).await;
    let again = f.backend.sleep_step(&handle, "nap", Duration::from_secs(5)).await.unwrap();
    assert_eq!(again, first, "the answer may have been lost");
    let other = f.backend.sleep_step(&handle, "other", Duration::from_secs(5)).await;
    assert_eq!(code(&other), "execution_not_active");
    assert_eq!(f.picture(&id).await, before);
}

pub async fn listed(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    assert!(steps(f, &id).await.is_empty());
    for at in (1..=9).rev() {
        f.backend.record_step(&handle, &format!("step-{at}"), vec![at]).await.unwrap();
    }
    let page = f.backend.list_steps(&id, 3, 2).await.unwrap();
    assert_eq!(names(&page), ["step-6", "step-5"]);
    assert_eq!(page[0].sequence, 4);
    let none = f.backend.list_steps(&super::new_id(), 0, 1).await;
    assert_eq!(code(&none), "not_found");
}

pub async fn forgotten(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    f.backend.record_step(&handle, "a", b"1".to_vec()).await.unwrap();
    f.backend.complete(&handle, None).await.unwrap();
    f.advance(HOUR_MS).await;
    assert_eq!(code(&f.backend.list_steps(&id, 0, 1).await), "not_found");
    // The same identity again knows nothing of what was done under it before.
    f.submit(item().id(id.clone())).await;
    let again = f.claim().await;
    assert!(again.steps.is_empty());
    let fresh = f.backend.record_step(&again.handle, "a", b"2".to_vec()).await.unwrap();
    assert!(matches!(fresh, RecordStepOutcome::Recorded { sequence: 1, .. }), "{fresh:?}");
}
