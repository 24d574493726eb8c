//! After a lease is lost, every write with the old fence fails and changes nothing.

use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::contracts::{AppendFramesArgs, FailureClass, FrameInput, RenewOutcome};
use ff_core::engine_backend::{StepOperations, StreamOperations};
use ff_core::types::ExecutionId;

use super::{Fixture, LEASE_MS, code, failure, item, retries};

const VERBS: [&str; 9] = [
    "renew",
    "progress",
    "complete",
    "fail",
    "cancel",
    "delay",
    "record_step",
    "sleep_step",
    "append_frames",
];

async fn attempt(f: &Fixture, verb: &str, handle: &Handle) -> &'static str {
    let backend = &f.backend;
    match verb {
        "renew" => {
            let handles = std::slice::from_ref(handle);
            match backend.renew_many(handles).await.unwrap().remove(0) {
                RenewOutcome::Renewed { .. } => "ok",
                RenewOutcome::Lost(error) => error.code(),
            }
        }
        "progress" => code(&backend.progress(handle, Some(1), None).await),
        "complete" => code(&backend.complete(handle, Some(b"late".to_vec())).await),
        "fail" => code(&backend.fail(handle, failure(FailureClass::Retryable)).await),
        "cancel" => code(&backend.cancel(handle, "late").await),
        "delay" => code(&backend.delay(handle, Duration::from_secs(1)).await),
        "record_step" => code(&backend.record_step(handle, "late", b"late".to_vec()).await),
        "sleep_step" => code(&backend.sleep_step(handle, "late", Duration::from_secs(1)).await),
        "append_frames" => {
            let frames = vec![FrameInput::new("late", b"late".to_vec())];
            let args = AppendFramesArgs { frames, append_id: None };
            code(&backend.append_frames(handle, args).await)
        }
        other => panic!("no such verb: {other}"),
    }
}

/// Every verb with the old handle must fail as told and leave no trace.
async fn locked_out(f: &Fixture, id: &ExecutionId, handle: &Handle, expected: &str) {
    locked_out_except(f, id, handle, expected, "").await;
}

/// The holder's own last word may be repeated: it gets its first answer, and nothing changes.
async fn locked_out_except(
    f: &Fixture,
    id: &ExecutionId,
    handle: &Handle,
    expected: &str,
    repeat: &str,
) {
    let before = f.picture(id).await;
    for verb in VERBS {
        let expected = if verb == repeat { "ok" } else { expected };
        assert_eq!(attempt(f, verb, handle).await, expected, "{verb} with a lost lease");
        assert_eq!(f.picture(id).await, before, "{verb} with a lost lease changed something");
    }
}

pub async fn after_expiry(f: &Fixture) {
    let (id, old) = f.start(item()).await;
    f.advance(u64::from(LEASE_MS)).await;
    locked_out(f, &id, &old, "execution_not_active").await;
    let new = f.claim().await;
    locked_out(f, &id, &old, "stale_lease").await;
    f.backend.complete(&new.handle, None).await.unwrap();
    locked_out(f, &id, &old, "execution_not_active").await;
}

pub async fn after_revoke(f: &Fixture) {
    let (id, old) = f.start(item()).await;
    f.revoke(&id).await.unwrap();
    locked_out(f, &id, &old, "execution_not_active").await;
    let new = f.claim().await;
    locked_out(f, &id, &old, "stale_lease").await;
    f.backend.complete(&new.handle, None).await.unwrap();
    locked_out(f, &id, &old, "execution_not_active").await;
}

pub async fn after_retry(f: &Fixture) {
    let (id, old) = f.start(item().policy(retries(1, 1_000))).await;
    f.backend.fail(&old, failure(FailureClass::Retryable)).await.unwrap();
    locked_out_except(f, &id, &old, "execution_not_active", "fail").await;
    f.advance(1_000).await;
    let new = f.claim().await;
    locked_out_except(f, &id, &old, "stale_lease", "fail").await;
    f.backend.complete(&new.handle, None).await.unwrap();
    locked_out_except(f, &id, &old, "execution_not_active", "fail").await;
}

pub async fn after_delay(f: &Fixture) {
    let (id, old) = f.start(item()).await;
    f.backend.delay(&old, Duration::from_secs(1)).await.unwrap();
    locked_out_except(f, &id, &old, "execution_not_active", "delay").await;
    f.advance(1_000).await;
    f.claim().await;
    locked_out(f, &id, &old, "stale_lease").await;
}

pub async fn after_cancel(f: &Fixture) {
    let (id, old) = f.start(item()).await;
    f.cancel_execution(&id).await.unwrap();
    locked_out(f, &id, &old, "execution_not_active").await;
    let (id, old) = f.start(item()).await;
    f.backend.cancel(&old, "by the holder").await.unwrap();
    locked_out_except(f, &id, &old, "execution_not_active", "cancel").await;
}

pub async fn after_replay(f: &Fixture) {
    let (id, old) = f.start(item()).await;
    f.backend.complete(&old, Some(b"first".to_vec())).await.unwrap();
    f.replay(&id).await.unwrap();
    locked_out(f, &id, &old, "execution_not_active").await;
    let new = f.claim().await;
    locked_out(f, &id, &old, "stale_lease").await;
    f.backend.complete(&new.handle, Some(b"second".to_vec())).await.unwrap();
    locked_out(f, &id, &old, "execution_not_active").await;
}

/// A handle must match in every part of its fence.
pub async fn forged(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let (partition, uuid) = (id.partition(), id.uuid().simple());
    let (attempt, epoch) = (handle.attempt_index(), handle.lease_epoch().0);
    let nonce = handle.lease_nonce();
    for (attempt, epoch, nonce, worker) in [
        (attempt + 1, epoch, nonce, "worker-1"),
        (attempt, epoch + 1, nonce, "worker-1"),
        (attempt, epoch - 1, nonce, "worker-1"),
        (attempt, epoch, nonce + 1, "worker-1"),
        (attempt, epoch, nonce, "worker-2"),
    ] {
        let text =
            format!("ffh2.f.{partition}.{uuid}.{attempt}.{epoch}.{nonce:x}.{LEASE_MS}.{worker}");
        locked_out(f, &id, &Handle::decode(&text).unwrap(), "stale_lease").await;
    }
    // What others can see of a lease is not enough to use it.
    let text = format!("ffh1.f.{partition}.{uuid}.{attempt}.{epoch}.{LEASE_MS}.worker-1");
    locked_out(f, &id, &Handle::decode(&text).unwrap(), "stale_lease").await;
    let copy = Handle::decode(&handle.encode()).unwrap();
    f.backend.complete(&copy, None).await.expect("a handle survives its text form");
}
