//! Following the log: nothing is missed, nothing comes twice.

use ff_core::contracts::{Event, EventFilter, EventType, Submission};
use ff_core::engine::{Cursor, StartAt, Subscription};
use ff_core::types::{FlowId, LaneId, Namespace};
use uuid::Uuid;

use super::{Fixture, code, item};

async fn drain(subscription: &mut Subscription) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = subscription.try_next().await.unwrap() {
        events.push(event);
    }
    events
}

async fn all(f: &Fixture, filter: EventFilter, start: StartAt) -> Vec<Event> {
    drain(&mut f.backend.subscribe(filter, start).await.unwrap()).await
}

pub async fn filters(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    f.submit(Submission::new("other", "special").namespace("mine")).await;
    let mut latest = f.backend.subscribe(EventFilter::default(), StartAt::Latest).await.unwrap();
    f.backend.complete(&handle, None).await.unwrap();
    let seen = drain(&mut latest).await;
    assert_eq!(seen.len(), 1, "the latest subscriber sees only what came after it");
    assert_eq!(seen[0].event_type, EventType::Completed);
    assert_eq!(seen[0].execution_id, Some(id));

    let any = EventFilter::default();
    let cases = [
        (any.clone(), 4),
        (EventFilter { namespace: Some(Namespace::new("mine")), ..any.clone() }, 1),
        (EventFilter { lane_id: Some(LaneId::new("lane")), ..any.clone() }, 3),
        (EventFilter { execution_kind: Some("special".into()), ..any.clone() }, 1),
        (EventFilter { flow_id: Some(FlowId::new()), ..any.clone() }, 0),
        (EventFilter { event_types: vec![EventType::Submitted], ..any.clone() }, 2),
        (EventFilter { event_types: vec![EventType::Claimed, EventType::Completed], ..any }, 2),
    ];
    for (filter, expected) in cases {
        let found = all(f, filter.clone(), StartAt::Oldest).await.len();
        assert_eq!(found, expected, "{filter:?}");
    }
}

pub async fn resume(f: &Fixture) {
    for _ in 0..100 {
        let (_, handle) = f.start(item()).await;
        f.backend.complete(&handle, None).await.unwrap();
    }
    let any = EventFilter::default();
    let whole = all(f, any.clone(), StartAt::Oldest).await;
    assert_eq!(whole.len(), 300);
    // From every event's own cursor, and from the subscription's cursor after it.
    let mut subscription = f.backend.subscribe(any.clone(), StartAt::Oldest).await.unwrap();
    for at in 0..whole.len() {
        let event = subscription.try_next().await.unwrap().unwrap();
        assert_eq!(event, whole[at]);
        assert_eq!(subscription.cursor(), event.cursor);
        if at % 37 == 0 {
            let rest = all(f, any.clone(), StartAt::After(event.cursor)).await;
            assert_eq!(rest, whole[at + 1..], "resuming after event {at}");
        }
    }
    // A cursor also moves past events that the filter hides.
    let completed = EventFilter { event_types: vec![EventType::Completed], ..any };
    let first = all(f, completed.clone(), StartAt::Oldest).await.remove(0);
    let rest = all(f, completed, StartAt::After(first.cursor)).await;
    assert_eq!(rest.len(), 99);
}

pub async fn refused_cursors(f: &Fixture) {
    f.submit(item()).await;
    let any = EventFilter::default();
    let cursor = all(f, any.clone(), StartAt::Oldest).await.remove(0).cursor;
    let open = |cursor: String| f.backend.subscribe(any.clone(), StartAt::After(cursor));
    assert_eq!(code(&open(cursor.clone()).await), "ok");
    let mut broken = cursor.clone();
    broken.pop();
    for bad in ["", "x", "00", &broken, "é"] {
        assert_eq!(code(&open(bad.to_owned()).await), "invalid_cursor", "{bad:?}");
    }
    let own = Cursor::decode(&cursor).unwrap();
    let foreign = Cursor { history_id: Uuid::new_v4(), ..own.clone() };
    assert_eq!(code(&open(foreign.encode()).await), "cursor_from_other_history");
    let future = Cursor { seen: own.seen.iter().map(|seen| seen + 1_000).collect(), ..own };
    assert_eq!(code(&open(future.encode()).await), "cursor_from_other_history");
}

/// Runs with a retention of one hour.
pub async fn trimmed(f: &Fixture) {
    let any = EventFilter::default();
    let (_, handle) = f.start(item()).await;
    f.backend.complete(&handle, None).await.unwrap();
    let old = all(f, any.clone(), StartAt::Oldest).await.remove(0).cursor;
    let mut slow = f.backend.subscribe(any.clone(), StartAt::Oldest).await.unwrap();
    f.advance(2 * 60 * 60 * 1000).await;
    f.submit(item()).await;
    let late = f.backend.subscribe(any.clone(), StartAt::After(old)).await;
    assert_eq!(code(&late), "cursor_below_retention");
    assert_eq!(code(&slow.try_next().await), "cursor_below_retention", "no silent gap");
    let left = all(f, any, StartAt::Oldest).await;
    assert_eq!(left.len(), 1, "the log begins where retention ends");
}
