//! Success, reported once.

use ff_core::contracts::EventType;
use ff_core::state::{AttemptOutcome, PublicState};

use super::{Fixture, code, item};

pub async fn once(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    f.advance(10).await;
    f.backend.complete(&handle, Some(b"out".to_vec())).await.unwrap();
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Completed);
    assert_eq!(seen.finished_at, Some(f.now()));
    assert!(seen.lease.is_none());
    assert_eq!(seen.attempts[0].outcome, Some(AttemptOutcome::Success));
    assert_eq!(seen.attempts[0].ended_at, Some(f.now()));
    assert_eq!(f.backend.result(&id).await.unwrap().as_deref(), Some(&b"out"[..]));
    use EventType::{Claimed, Completed, Submitted};
    assert_eq!(f.events(&id).await, [Submitted, Claimed, Completed]);
    assert!(f.try_claim().await.is_none());
    // What was armed for it finds nothing to do.
    let before = f.picture(&id).await;
    f.advance(24 * 60 * 60 * 1000).await;
    assert_eq!(f.picture(&id).await, before);
}

pub async fn repeated(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let complete = |result: &[u8]| {
        let (backend, handle, result) = (f.backend.clone(), handle.clone(), result.to_vec());
        async move { code(&backend.complete(&handle, Some(result)).await) }
    };
    assert_eq!(complete(b"out").await, "ok");
    let before = f.picture(&id).await;
    f.advance(60_000).await;
    assert_eq!(complete(b"out").await, "ok", "the first answer may have been lost");
    assert_eq!(complete(b"other").await, "result_already_recorded");
    assert_eq!(code(&f.backend.complete(&handle, None).await), "result_already_recorded");
    assert_eq!(f.picture(&id).await, before);
}

pub async fn without_result(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    assert!(f.backend.result(&id).await.unwrap().is_none());
    f.backend.complete(&handle, None).await.unwrap();
    f.backend.complete(&handle, None).await.unwrap();
    assert!(f.backend.result(&id).await.unwrap().is_none());
    assert_eq!(f.state(&id).await, PublicState::Completed);
}
