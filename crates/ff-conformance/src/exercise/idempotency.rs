//! The same work is accepted only once under a key, for as long as the key holds.

use std::time::Duration;

use ff_core::contracts::{
    BulkAction, BulkFilter, ClaimArgs, FailureClass, Idempotency, IdempotencyScope, StartBulkArgs,
    Submission, SubmitOutcome,
};
use ff_core::engine_backend::BulkOperations;
use ff_core::policy::ExecutionPolicy;
use ff_core::types::ExecutionId;

use ff_core::state::PublicState;

use super::{Fixture, claim_args, code, create_args, failure, item, new_id};

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

fn unique() -> Submission {
    item().payload(b"a".to_vec()).unique_until_finished("only")
}

/// An execution under the unique key that has failed.
async fn failed(f: &Fixture) -> ExecutionId {
    let (id, handle) = f.start(unique()).await;
    f.backend.fail(&handle, failure(FailureClass::Fatal)).await.unwrap();
    id
}

pub async fn replays_hold_their_key(f: &Fixture) {
    let id = failed(f).await;
    f.replay(&id).await.unwrap();
    assert!(is_duplicate_of(f, &id, unique()).await, "a replay that waits holds its key");
    let SubmitOutcome::Refused(error) = f.offer(unique().payload(b"b".to_vec())).await else {
        panic!("other work was accepted under the key of a replay");
    };
    assert_eq!(error.code(), "idempotency_key_reused");
    let claimed = f.claim().await;
    assert_eq!(claimed.execution_id, id);
    assert!(is_duplicate_of(f, &id, unique()).await, "and so does one that runs");
    f.backend.complete(&claimed.handle, None).await.unwrap();
    f.replay(&id).await.expect("its own key was given back");
    f.cancel_execution(&id).await.unwrap();
    f.submit(unique()).await;
}

pub async fn replays_under_a_held_key(f: &Fixture) {
    let first = failed(f).await;
    let second = f.submit(unique()).await;
    let before = f.picture(&first).await;
    let refused = f.replay(&first).await;
    assert_eq!(code(&refused), "unique_key_held");
    let told = refused.unwrap_err().to_string();
    assert!(told.contains(second.as_str()), "the holder is named: {told}");
    assert_eq!(f.picture(&first).await, before, "a refusal changes nothing");
    assert!(is_duplicate_of(f, &second, unique()).await);

    let claimed = f.backend.claim_many(ClaimArgs { max: 10, ..claim_args() }).await.unwrap();
    assert_eq!(claimed.len(), 1, "one run of one unique key at a time");
    assert_eq!(code(&f.replay(&first).await), "unique_key_held");
    f.backend.complete(&claimed[0].handle, None).await.unwrap();
    f.replay(&first).await.expect("the key is free again");
    assert!(is_duplicate_of(f, &first, unique()).await);
    assert_eq!(code(&f.replay(&second).await), "unique_key_held");
}

pub async fn bulk_replays_of_one_key(f: &Fixture) {
    let ids = [failed(f).await, failed(f).await, failed(f).await];
    let filter = BulkFilter { states: vec![PublicState::Failed], ..BulkFilter::default() };
    let (action, by) = (BulkAction::Replay, String::new());
    let args = StartBulkArgs { filter, action, by, request_id: None };
    let bulk = f.backend.start_bulk(args).await.unwrap().bulk_id;
    f.advance(0).await;
    let seen = f.backend.describe_bulk(bulk).await.unwrap().unwrap();
    assert_eq!((seen.changed, seen.failed), (1, 2), "only the first takes the key");
    assert_eq!(f.state(&ids[0]).await, PublicState::Waiting);
    for failure in f.backend.list_bulk_failures(bulk, None, 10).await.unwrap().failures {
        assert_eq!(failure.code, "unique_key_held");
        assert!(failure.reason.contains(ids[0].as_str()), "{}", failure.reason);
    }
    let claimed = f.backend.claim_many(ClaimArgs { max: 10, ..claim_args() }).await.unwrap();
    assert_eq!(claimed.len(), 1, "one run of one unique key at a time");
}
