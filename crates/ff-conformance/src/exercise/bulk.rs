//! Bulk operations reach what they name, once, and can be stopped and taken up again.

use ff_core::contracts::{
    Actor, BulkAction, BulkFilter, BulkSnapshot, BulkState, EventFilter, EventType, FailureClass,
    ListBulkArgs, Stamp, StartBulkArgs, Submission,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{Acting, BulkOperations, Namespaced};
use ff_core::operations::timer::Sweep;
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, LaneId, Namespace};
use uuid::Uuid;

use super::{Fixture, LANE, code, failure, item};

const DAY: u64 = 24 * 60 * 60 * 1000;

pub(super) fn cancel() -> BulkAction {
    BulkAction::Cancel { reason: "tidying up".into() }
}

pub(super) fn waiting() -> BulkFilter {
    BulkFilter { states: vec![PublicState::Waiting], ..BulkFilter::default() }
}

async fn submit_many(f: &Fixture, count: usize, item: &Submission) -> Vec<ExecutionId> {
    let outcomes = f.backend.submit(vec![item.clone(); count]).await.unwrap();
    outcomes.iter().map(|outcome| outcome.execution_id().unwrap().clone()).collect()
}

pub(super) async fn start(f: &Fixture, filter: BulkFilter, action: BulkAction) -> BulkSnapshot {
    let args = StartBulkArgs { filter, action, by: "me".into(), request_id: None };
    f.backend.start_bulk(args).await.unwrap()
}

async fn described(f: &Fixture, id: Uuid) -> BulkSnapshot {
    f.backend.describe_bulk(id).await.unwrap().expect("the bulk operation exists")
}

/// One step of the sweeper, as much as one transaction does.
async fn step(f: &Fixture) {
    f.backend
        .engine()
        .run(None, Sweep { limit: 10, bulk_chunk: 100, entropy: 0, isolation: None })
        .await
        .unwrap();
}

/// Changed, skipped and failed.
fn counts(seen: &BulkSnapshot) -> (u64, u64, u64) {
    assert_eq!(seen.done, seen.changed + seen.skipped + seen.failed);
    (seen.changed, seen.skipped, seen.failed)
}

pub async fn preview_counts(f: &Fixture) {
    submit_many(f, 15, &item()).await;
    let other = submit_many(f, 1, &Submission::new("other", "kind")).await;
    let (leased, _) = f.start(item().priority(9)).await;
    let preview = f.backend.preview_bulk(BulkFilter::default()).await.unwrap();
    assert_eq!((preview.matched, preview.sample.len()), (17, 10));
    let preview = f.backend.preview_bulk(waiting()).await.unwrap();
    assert_eq!(preview.matched, 16);
    let lane_id = Some(LaneId::new("other"));
    let preview = f.backend.preview_bulk(BulkFilter { lane_id, ..waiting() }).await.unwrap();
    assert_eq!(preview.matched, 1);
    assert_eq!(preview.sample[0].execution_id, other[0]);
    assert_eq!(f.state(&leased).await, PublicState::Active);
    assert_eq!(f.state(&other[0]).await, PublicState::Waiting, "a preview changes nothing");
}

pub async fn cancels_all(f: &Fixture) {
    let ids = submit_many(f, 250, &item()).await;
    let (leased, handle) = f.start(item().priority(9)).await;
    let bulk = start(f, waiting(), cancel()).await;
    assert_eq!((bulk.matched, bulk.state, bulk.done), (250, BulkState::Running, 0));
    // Whatever comes later is none of its business.
    f.advance(0).await;
    let seen = described(f, bulk.bulk_id).await;
    assert_eq!((seen.state, counts(&seen)), (BulkState::Finished, (250, 0, 0)));
    assert_eq!(seen.finished_at, Some(f.now()));
    for id in [&ids[0], &ids[124], &ids[249]] {
        let cancelled = f.snapshot(id).await;
        assert_eq!(cancelled.public_state, PublicState::Cancelled);
        assert_eq!(cancelled.cancellation_reason.as_deref(), Some("tidying up"));
        assert_eq!(cancelled.cancelled_by.as_deref(), Some("bulk"));
        assert_eq!(f.events(id).await, [EventType::Submitted, EventType::Cancelled]);
    }
    assert_eq!(f.state(&leased).await, PublicState::Active);
    f.backend.complete(&handle, None).await.unwrap();
    assert!(f.try_claim().await.is_none());
}

/// The engine's own sweeper may be anywhere in between, so each look finds a whole number of steps.
pub async fn goes_on_where_it_was(f: &Fixture) {
    submit_many(f, 250, &item()).await;
    let bulk = start(f, waiting(), cancel()).await;
    // Whoever looks at the same time as others finds what they have left.
    tokio::join!(step(f), step(f));
    loop {
        let seen = described(f, bulk.bulk_id).await;
        assert!([0, 100, 200, 250].contains(&seen.done), "{} were dealt with", seen.done);
        if seen.state != BulkState::Running {
            break;
        }
        step(f).await;
        // Work that comes meanwhile is served, and left alone.
        f.clock.advance(std::time::Duration::from_millis(1));
        let (_, handle) = f.start(item().priority(9)).await;
        f.backend.complete(&handle, None).await.unwrap();
    }
    assert_eq!(counts(&described(f, bulk.bulk_id).await), (250, 0, 0));
    step(f).await;
    assert_eq!(described(f, bulk.bulk_id).await.done, 250);
}

pub async fn only_what_was_there(f: &Fixture) {
    let before = f.submit(item()).await;
    let bulk = start(f, waiting(), cancel()).await;
    f.clock.advance(std::time::Duration::from_millis(1));
    let after = f.submit(item()).await;
    f.advance(0).await;
    assert_eq!(f.state(&before).await, PublicState::Cancelled);
    assert_eq!(f.state(&after).await, PublicState::Waiting);
    assert_eq!(counts(&described(f, bulk.bulk_id).await), (1, 0, 0));
}

pub async fn can_be_cancelled(f: &Fixture) {
    submit_many(f, 1_000, &item()).await;
    let bulk = start(f, waiting(), cancel()).await;
    let stopped = f.backend.cancel_bulk(bulk.bulk_id).await.unwrap();
    assert_eq!(stopped.state, BulkState::Cancelled);
    assert!(stopped.done < 1_000, "a cancel waits for one step at most");
    f.advance(1_000).await;
    assert_eq!(described(f, bulk.bulk_id).await, stopped);
    assert_eq!(f.backend.preview_bulk(waiting()).await.unwrap().matched, 1_000 - stopped.done);
    let again = f.backend.cancel_bulk(bulk.bulk_id).await.unwrap();
    assert_eq!(again, stopped, "a repeat changes nothing");
    assert_eq!(code(&f.backend.cancel_bulk(Uuid::nil()).await), "not_found");
}

pub async fn replays(f: &Fixture) {
    for _ in 0..3 {
        let (_, handle) = f.start(item().tag("a.b", "again")).await;
        f.backend.fail(&handle, failure(FailureClass::Fatal)).await.unwrap();
    }
    let (other, handle) = f.start(item()).await;
    f.backend.fail(&handle, failure(FailureClass::Fatal)).await.unwrap();
    let states = vec![PublicState::Failed];
    let tag = Some(("a.b".to_owned(), "again".to_owned()));
    let filter = BulkFilter { states, tag, ..BulkFilter::default() };
    let bulk = start(f, filter, BulkAction::Replay).await;
    f.advance(0).await;
    assert_eq!(counts(&described(f, bulk.bulk_id).await), (3, 0, 0));
    assert_eq!(f.backend.preview_bulk(waiting()).await.unwrap().matched, 3);
    assert_eq!(f.state(&other).await, PublicState::Failed);
}

pub async fn reprioritises_and_retags(f: &Fixture) {
    let ids = submit_many(f, 3, &item()).await;
    let urgent = f.submit(item().priority(5)).await;
    let bulk = start(f, waiting(), BulkAction::ChangePriority { new_priority: 5 }).await;
    f.advance(0).await;
    assert_eq!(counts(&described(f, bulk.bulk_id).await), (3, 1, 0));
    assert_eq!(f.snapshot(&ids[0]).await.priority, 5);
    assert_eq!(f.events(&urgent).await, [EventType::Submitted], "it was so already");
    let tags = [("team.name".to_owned(), Some("ops".to_owned()))].into();
    let bulk = start(f, BulkFilter::default(), BulkAction::SetTags { tags }).await;
    f.advance(0).await;
    assert_eq!(counts(&described(f, bulk.bulk_id).await), (4, 0, 0));
    assert_eq!(f.snapshot(&urgent).await.tags["team.name"], "ops");
}

pub async fn tells_what_refused(f: &Fixture) {
    let (finished, handle) = f.start(item()).await;
    f.backend.complete(&handle, None).await.unwrap();
    let (second, handle) = f.start(item()).await;
    f.backend.complete(&handle, None).await.unwrap();
    let cancelled = f.submit(item()).await;
    f.cancel_execution(&cancelled).await.unwrap();
    let open = f.submit(item()).await;
    let bulk = start(f, BulkFilter::default(), cancel()).await;
    f.advance(0).await;
    let seen = described(f, bulk.bulk_id).await;
    assert_eq!((seen.matched, counts(&seen)), (4, (1, 1, 2)));
    assert_eq!(f.state(&open).await, PublicState::Cancelled);
    let page = f.backend.list_bulk_failures(bulk.bulk_id, None, 1).await.unwrap();
    assert_eq!(page.failures[0].execution_id, finished);
    assert_eq!(page.failures[0].code, "invalid_input");
    assert!(page.failures[0].reason.contains("already ended as completed"));
    let rest = f.backend.list_bulk_failures(bulk.bulk_id, page.next_cursor, 10).await.unwrap();
    assert_eq!(rest.failures.len(), 1);
    assert_eq!((page.failed, rest.failed), (2, 2));
    assert_eq!((&rest.failures[0].execution_id, rest.next_cursor), (&second, None));
}

pub async fn lists_and_forgets(f: &Fixture) {
    let mut ids = Vec::new();
    for _ in 0..3 {
        f.advance(1).await;
        ids.push(start(f, waiting(), cancel()).await.bulk_id);
    }
    f.advance(0).await;
    let first = ListBulkArgs { limit: 2, cursor: None };
    let page = f.backend.list_bulk(first).await.unwrap();
    let seen: Vec<Uuid> = page.operations.iter().map(|one| one.bulk_id).collect();
    assert_eq!(seen, [ids[2], ids[1]], "newest first");
    let rest = ListBulkArgs { limit: 2, cursor: page.next_cursor };
    let page = f.backend.list_bulk(rest).await.unwrap();
    assert_eq!((page.operations[0].bulk_id, page.next_cursor), (ids[0], None));
    f.advance(30 * DAY).await;
    assert!(f.backend.list_bulk(ListBulkArgs::default()).await.unwrap().operations.is_empty());
    assert!(f.backend.describe_bulk(ids[0]).await.unwrap().is_none());
}

pub async fn namespaces_are_apart(f: &Fixture) {
    let mine = f.submit(item().namespace("mine")).await;
    let theirs = f.submit(item().namespace("theirs")).await;
    let me = Namespaced::new(f.backend.clone(), Namespace::new("mine"));
    assert_eq!(me.preview_bulk(waiting()).await.unwrap().matched, 1);
    let args =
        StartBulkArgs { filter: waiting(), action: cancel(), by: String::new(), request_id: None };
    let own = me.start_bulk(args.clone()).await.unwrap();
    f.advance(0).await;
    assert_eq!(f.state(&mine).await, PublicState::Cancelled);
    assert_eq!(f.state(&theirs).await, PublicState::Waiting);
    let namespace = Some(Namespace::new("theirs"));
    let filter = BulkFilter { namespace, ..waiting() };
    let foreign = StartBulkArgs { filter: filter.clone(), ..args.clone() };
    assert_eq!(code(&me.start_bulk(foreign.clone()).await), "invalid_input");
    assert_eq!(code(&me.preview_bulk(filter).await), "invalid_input");
    let their = f.backend.start_bulk(foreign).await.unwrap();
    let all = f.backend.start_bulk(args).await.unwrap();
    for foreign in [their.bulk_id, all.bulk_id] {
        assert!(me.describe_bulk(foreign).await.unwrap().is_none());
        assert_eq!(code(&me.cancel_bulk(foreign).await), "not_found");
        assert_eq!(code(&me.list_bulk_failures(foreign, None, 1).await), "not_found");
    }
    let page = me.list_bulk(ListBulkArgs { limit: 1, cursor: None }).await.unwrap();
    assert_eq!(page.operations.len(), 1);
    assert_eq!((page.operations[0].bulk_id, page.next_cursor), (own.bulk_id, None));
}

pub async fn refused(f: &Fixture) {
    let start = |filter: BulkFilter, action: BulkAction| {
        f.backend.start_bulk(StartBulkArgs { filter, action, by: String::new(), request_id: None })
    };
    let all = BulkFilter::default;
    let long = BulkAction::Cancel { reason: "x".repeat(5_000) };
    assert_eq!(code(&start(all(), long).await), "invalid_input");
    let none = BulkAction::SetTags { tags: [].into() };
    assert_eq!(code(&start(all(), none).await), "invalid_input");
    let bad = BulkAction::SetTags { tags: [("Bad Key".to_owned(), None)].into() };
    assert_eq!(code(&start(all(), bad).await), "invalid_tag_key");
    let lane_id = Some(LaneId::new(""));
    assert_eq!(code(&start(BulkFilter { lane_id, ..all() }, cancel()).await), "invalid_input");
    let tag = Some(("Bad Key".to_owned(), String::new()));
    assert_eq!(code(&start(BulkFilter { tag, ..all() }, cancel()).await), "invalid_tag_key");
    let id = f.submit(Submission::new(LANE, "kind")).await;
    f.advance(0).await;
    assert_eq!(f.state(&id).await, PublicState::Waiting);
}

/// A call whose answer was lost can be made again.
pub async fn once_per_request(f: &Fixture) {
    submit_many(f, 3, &item()).await;
    let args = |request: &str| StartBulkArgs {
        filter: waiting(),
        action: cancel(),
        by: "me".into(),
        request_id: Some(request.into()),
    };
    let first = f.backend.start_bulk(args("a")).await.unwrap();
    f.advance(1).await;
    let again = f.backend.start_bulk(args("a")).await.unwrap();
    assert_eq!((again.bulk_id, again.changed), (first.bulk_id, 3), "it tells how far it has come");
    let other = f.backend.start_bulk(args("b")).await.unwrap();
    assert_ne!(first.bulk_id, other.bulk_id);
    let retag = StartBulkArgs { by: "somebody".into(), ..args("a") };
    assert_eq!(code(&f.backend.start_bulk(retag).await), "idempotency_key_reused");
    for request in ["", &"x".repeat(1_000)] {
        assert_eq!(code(&f.backend.start_bulk(args(request)).await), "invalid_input");
    }
    // Namespaces do not meet, even if they ask in the same words.
    let me = Namespaced::new(f.backend.clone(), Namespace::new("mine"));
    let mine = me.start_bulk(args("a")).await.unwrap();
    assert_ne!(mine.bulk_id, first.bulk_id);
    let page = f.backend.list_bulk(ListBulkArgs::default()).await.unwrap();
    assert_eq!(page.operations.len(), 3);
}

/// What a bulk operation does to each execution names the caller that started it.
pub async fn names_its_caller(f: &Fixture) {
    let actor = Actor {
        token_id: Some(Uuid::from_u128(7)),
        token_name: Some("ops".into()),
        remote: Some("::1".into()),
        request_id: Some("r".into()),
    };
    let operator = Acting::new(f.backend.clone(), Stamp::operator(&actor));
    f.submit(item()).await;
    let tags = [("a.b".to_owned(), Some("b".to_owned()))].into();
    let actions = [
        (BulkAction::ChangePriority { new_priority: 7 }, EventType::PriorityChanged),
        (BulkAction::SetTags { tags }, EventType::TagsChanged),
        (cancel(), EventType::Cancelled),
    ];
    let (filter, by) = (BulkFilter::default(), String::new());
    for (action, event_type) in actions {
        let args =
            StartBulkArgs { filter: filter.clone(), action, by: by.clone(), request_id: None };
        let bulk = operator.start_bulk(args).await.unwrap();
        f.advance(0).await;
        assert_eq!(counts(&described(f, bulk.bulk_id).await), (1, 0, 0));
        let event_types = vec![event_type];
        let told = EventFilter { event_types, audit: true, ..EventFilter::default() };
        let mut log = f.backend.subscribe(told, StartAt::Oldest).await.unwrap();
        let event = log.try_next().await.unwrap().expect("an event that names the caller");
        assert_eq!((event.by.as_deref(), event.actor.as_ref()), (Some("ops"), Some(&actor)));
        assert_eq!(event.details["bulk_id"], bulk.bulk_id.to_string());
    }
    // Without a caller the events name the bulk operation alone.
    f.submit(item()).await;
    let bulk = start(f, waiting(), cancel()).await;
    f.advance(0).await;
    let event_types = vec![EventType::Cancelled];
    let told = EventFilter { event_types, ..EventFilter::default() };
    let mut log = f.backend.subscribe(told, StartAt::Oldest).await.unwrap();
    log.try_next().await.unwrap();
    let event = log.try_next().await.unwrap().expect("the second cancellation");
    assert_eq!((event.by.as_deref(), event.actor), (Some("bulk"), None));
    assert_eq!(event.details["bulk_id"], bulk.bulk_id.to_string());
}
