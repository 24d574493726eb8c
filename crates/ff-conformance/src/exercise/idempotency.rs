//! The same work is accepted only once under a key, for as long as the key holds.

use std::time::Duration;

use ff_core::contracts::{Idempotency, IdempotencyScope, Submission, SubmitOutcome};
use ff_core::policy::ExecutionPolicy;
use ff_core::types::ExecutionId;

use super::{Fixture, create_args, item, new_id};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

async fn is_duplicate_of(f: &Fixture, id: &ExecutionId, item: Submission) -> bool {
    match f.offer(item).await {
        SubmitOutcome::Duplicate { execution_id } => {
            assert_eq!(execution_id, *id, "the key stands for another execution");
            true
        }
        SubmitOutcome::Created { .. } => false,
        SubmitOutcome::Refused(error) => panic!("refused: {error}"),
    }
}

pub async fn same_key_same_work(f: &Fixture) {
    let keyed = || item().payload(b"a".to_vec()).idempotency_key("key");
    let id = f.submit(keyed()).await;
    let before = f.picture(&id).await;
    assert!(is_duplicate_of(f, &id, keyed()).await);
    for other in [
        keyed().payload(b"b".to_vec()),
        Submission { execution_kind: "other".into(), ..keyed() },
        Submission { payload_encoding: Some("json".into()), ..keyed() },
        Submission { lane_id: ff_core::types::LaneId::new("other"), ..keyed() },
    ] {
        let SubmitOutcome::Refused(error) = f.offer(other).await else {
            panic!("other work was accepted under the same key");
        };
        assert_eq!(error.code(), "idempotency_key_reused");
    }
    assert_eq!(f.picture(&id).await, before);

    let mut created = create_args(&new_id(), f.now());
    created.idempotency_key = Some("key".into());
    created.input_payload = b"a".to_vec();
    let answer = f.backend.create_execution(created).await.unwrap();
    assert_eq!(format!("{answer:?}"), format!("Duplicate {{ execution_id: {id:?} }}"));
}

pub async fn key_lapses(f: &Fixture) {
    let day = || item().idempotency_key("day");
    let ttl = Idempotency {
        key: "short".into(),
        scope: IdempotencyScope::Ttl(Duration::from_millis(500)),
    };
    let short = || Submission { idempotency: Some(ttl.clone()), ..item() };
    let policy = ExecutionPolicy { dedup_window_ms: Some(900), ..ExecutionPolicy::default() };
    let window = || item().policy(policy.clone()).idempotency_key("window");
    let (day_id, short_id) = (f.submit(day()).await, f.submit(short()).await);
    let window_id = f.submit(window()).await;

    f.advance(499).await;
    assert!(is_duplicate_of(f, &short_id, short()).await);
    f.advance(1).await;
    let next = f.submit(short()).await;
    assert!(is_duplicate_of(f, &next, short()).await, "the key stands for the new execution");
    assert!(is_duplicate_of(f, &window_id, window()).await);
    f.advance(400).await;
    f.submit(window()).await;
    f.advance(DAY_MS - 901).await;
    assert!(is_duplicate_of(f, &day_id, day()).await);
    f.advance(1).await;
    f.submit(day()).await;
}

pub async fn until_finished(f: &Fixture) {
    let unique = || item().unique_until_finished("only");
    let id = f.submit(unique()).await;
    f.advance(10 * DAY_MS).await;
    assert!(is_duplicate_of(f, &id, unique()).await, "it holds for as long as the work lives");
    let claimed = f.claim().await;
    assert!(is_duplicate_of(f, &id, unique()).await);
    f.backend.complete(&claimed.handle, None).await.unwrap();
    let next = f.submit(unique()).await;
    assert!(is_duplicate_of(f, &next, unique()).await);
    f.cancel_execution(&next).await.unwrap();
    f.submit(unique()).await;
}

pub async fn within_one_call(f: &Fixture) {
    let keyed = |payload: &str| item().payload(payload.as_bytes()).idempotency_key("key");
    let items = vec![keyed("a"), keyed("a"), keyed("b")];
    let outcomes = f.backend.submit(items).await.unwrap();
    let first = outcomes[0].execution_id().unwrap();
    assert!(
        matches!(&outcomes[1], SubmitOutcome::Duplicate { execution_id } if execution_id == first)
    );
    assert!(
        matches!(&outcomes[2], SubmitOutcome::Refused(e) if e.code() == "idempotency_key_reused")
    );
}
