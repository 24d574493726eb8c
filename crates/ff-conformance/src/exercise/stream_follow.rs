//! Whoever follows a stream hears of everything at once, and of the end when it comes.

use std::time::Duration;

use ff_core::contracts::{
    CloseReason, FailureClass, ReadStreamArgs, StreamCursor, StreamEnd, StreamPage,
};
use ff_core::engine_backend::StreamOperations;
use ff_core::policy::ExecutionPolicy;
use ff_core::types::ExecutionId;
use tokio::task::JoinHandle;

use super::stream::{after, read, read_args, say, text, texts};
use super::{Fixture, LEASE_MS, failure, item, retries};

/// Much less than a follower's own interval of looking, so only a wake-up can make it.
const WAKE_UP: Duration = Duration::from_secs(10);

/// A reader that is about to wait. The other tasks are let run so that it really does.
async fn waiting(f: &Fixture, args: ReadStreamArgs) -> JoinHandle<StreamPage> {
    let backend = f.backend.clone();
    let args = ReadStreamArgs { wait_ms: 30_000, ..args };
    let reader = tokio::spawn(async move { backend.read_stream(args).await.unwrap() });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    reader
}

async fn woken(reader: JoinHandle<StreamPage>) -> StreamPage {
    tokio::time::timeout(WAKE_UP, reader).await.expect("nobody woke the reader").unwrap()
}

pub async fn woken_by_frames(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let (other, _) = f.start(item()).await;
    let elsewhere = waiting(f, read_args(&other)).await;
    let mut from = StreamCursor::Start;
    for at in 0..5 {
        let reader = waiting(f, ReadStreamArgs { from, ..read_args(&id) }).await;
        say(f, &handle, vec![text(at.to_string())]).await.unwrap();
        let page = woken(reader).await;
        assert_eq!(texts(&page), [at.to_string()]);
        from = page.next;
    }
    assert!(!elsewhere.is_finished(), "a reader was told of somebody else's stream");
    elsewhere.abort();
}

pub async fn woken_by_the_end(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    say(f, &handle, vec![text("a")]).await.unwrap();
    let reader = waiting(f, ReadStreamArgs { from: after(0, 1), ..read_args(&id) }).await;
    f.backend.complete(&handle, None).await.unwrap();
    let end = woken(reader).await;
    let closed_at = Some(f.now());
    let reason = CloseReason::AttemptSuccess;
    assert_eq!(end.closed, Some(StreamEnd { reason, closed_at, next_attempt: None }));
    assert_eq!((end.frames.len(), end.next), (0, after(0, 1)));
    // One who comes later is told with the frames.
    let all = read(f, read_args(&id)).await;
    assert_eq!((texts(&all), all.closed), (vec!["a".to_owned()], end.closed));

    // The end of an attempt that never said anything.
    let (id, handle) = f.start(item()).await;
    let reader = waiting(f, read_args(&id)).await;
    f.backend.fail(&handle, failure(FailureClass::Fatal)).await.unwrap();
    assert_eq!(woken(reader).await.closed.map(|end| end.reason), Some(CloseReason::AttemptFailure));
}

async fn end_of(f: &Fixture, id: &ExecutionId, attempt: u32) -> Option<(CloseReason, Option<u32>)> {
    let args = ReadStreamArgs { attempt_index: Some(attempt), ..read_args(id) };
    read(f, args).await.closed.map(|end| (end.reason, end.next_attempt))
}

pub async fn ends(f: &Fixture) {
    let (id, handle) = f.start(item().policy(retries(1, 1_000))).await;
    assert_eq!(end_of(f, &id, 0).await, None);
    f.backend.fail(&handle, failure(FailureClass::Retryable)).await.unwrap();
    assert_eq!(end_of(f, &id, 0).await, Some((CloseReason::AttemptFailure, Some(1))));
    assert_eq!(end_of(f, &id, 1).await, None, "the next attempt has yet to speak");
    f.advance(1_000).await;
    f.claim().await;
    f.advance(u64::from(LEASE_MS)).await;
    assert_eq!(end_of(f, &id, 1).await, Some((CloseReason::LeaseExpired, Some(2))));
    f.cancel_execution(&id).await.unwrap();
    assert_eq!(end_of(f, &id, 2).await, Some((CloseReason::AttemptCancelled, None)));

    let (id, _) = f.start(item()).await;
    f.cancel_execution(&id).await.unwrap();
    assert_eq!(end_of(f, &id, 0).await, Some((CloseReason::AttemptCancelled, None)));

    let (id, _) = f.start(item().deadline(Duration::from_secs(1))).await;
    f.advance(1_000).await;
    assert_eq!(end_of(f, &id, 0).await, Some((CloseReason::Expired, None)));

    let mut policy = ExecutionPolicy::default();
    policy.retry_policy.max_retries = 0;
    policy.timeout_policy.attempt_timeout_ms = Some(1_000);
    let (id, _) = f.start(item().policy(policy)).await;
    f.advance(1_000).await;
    assert_eq!(end_of(f, &id, 0).await, Some((CloseReason::AttemptTimeout, None)));

    // Put down and taken away: the attempt goes on, and so does its stream.
    let (id, handle) = f.start(item()).await;
    say(f, &handle, vec![text("before")]).await.unwrap();
    f.backend.delay(&handle, Duration::from_secs(1)).await.unwrap();
    assert_eq!(end_of(f, &id, 0).await, None);
    f.advance(1_000).await;
    let resumed = f.claim().await;
    say(f, &resumed.handle, vec![text("after")]).await.unwrap();
    f.revoke(&id).await.unwrap();
    assert_eq!(end_of(f, &id, 0).await, None);
    assert_eq!(texts(&read(f, read_args(&id)).await), ["before", "after"]);
}

pub async fn over_attempts(f: &Fixture) {
    let (id, handle) = f.start(item().policy(retries(1, 1_000))).await;
    say(f, &handle, vec![text("first")]).await.unwrap();
    let first = read(f, read_args(&id)).await;
    f.backend.fail(&handle, failure(FailureClass::Retryable)).await.unwrap();
    f.advance(1_000).await;
    let retry = f.claim().await;
    say(f, &retry.handle, vec![text("second")]).await.unwrap();
    // A cursor stays with its attempt, and says which one follows.
    let end = read(f, ReadStreamArgs { from: first.next, ..read_args(&id) }).await;
    assert_eq!((end.attempt_index, end.frames.len()), (0, 0));
    let next = end.closed.and_then(|end| end.next_attempt);
    assert_eq!(next, Some(1));
    let page = read(f, ReadStreamArgs { attempt_index: next, ..read_args(&id) }).await;
    assert_eq!((page.attempt_index, texts(&page)), (1, vec!["second".to_owned()]));
    assert_eq!(page.frames[0].id.sequence, 1);
    // Without any, the current attempt is meant.
    assert_eq!(read(f, read_args(&id)).await.attempt_index, 1);
}

pub async fn from_the_end(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    say(f, &handle, vec![text("old")]).await.unwrap();
    let from = StreamCursor::End;
    let now = read(f, ReadStreamArgs { from, ..read_args(&id) }).await;
    assert_eq!((now.frames.len(), now.next), (0, after(0, 1)));
    let reader = waiting(f, ReadStreamArgs { from: now.next, ..read_args(&id) }).await;
    say(f, &handle, vec![text("new")]).await.unwrap();
    assert_eq!(texts(&woken(reader).await), ["new"]);
}
