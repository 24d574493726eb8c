//! Following the log: nothing is missed, nothing comes twice.

use ff_core::contracts::{Event, EventFilter, EventType, Submission};
use ff_core::engine::{Cursor, CursorKey, Place, StartAt, Subscription};
use ff_core::engine_backend::{EngineBackend, Namespaced};
use ff_core::partition::crc16;
use ff_core::store::Query;
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
    let log = f.backend.engine().query(Query::Log).await.unwrap().log.unwrap();
    let key = CursorKey::new(&log.secret);
    let own = Cursor::decode(&cursor, &log, &key, false).unwrap();
    let foreign = Cursor { history_id: Uuid::new_v4(), ..own.clone() };
    assert_eq!(code(&open(foreign.encode(&key)).await), "cursor_from_other_history");
    let moved = |change: fn(&Place) -> Place| {
        let places = own.places.iter().map(change).collect();
        Cursor { places, ..own.clone() }.encode(&key)
    };
    let future = moved(|place| Place { seq: place.seq + 1_000, ..*place });
    assert_eq!(code(&open(future).await), "cursor_from_other_history");
    // Another event was at this place once, and a restore of the store has lost it.
    let lost = moved(|place| Place { mark: place.mark ^ u32::from(place.seq > 0), ..*place });
    assert_eq!(code(&open(lost).await), "cursor_from_other_history");
}

/// A cursor says nothing about events that its holder cannot see, and cannot be made up to ask.
pub async fn sealed_cursors(f: &Fixture) {
    let tenant = Namespaced::new(f.backend.clone(), Namespace::new("mine"));
    f.submit(item().namespace("mine")).await;
    let any = EventFilter::default();
    let cursor = tenant.subscribe(any.clone(), StartAt::Latest).await.unwrap().cursor();
    for _ in 0..300 {
        f.submit(item()).await;
    }
    let later = tenant.subscribe(any.clone(), StartAt::Latest).await.unwrap().cursor();
    assert_eq!(cursor.len(), later.len(), "its length does not grow with the log");
    let log = f.backend.engine().query(Query::Log).await.unwrap().log.unwrap();
    // The format that cursors had once: the log's identity, the numbers and a checksum.
    let mut former = vec![1];
    former.extend_from_slice(log.history_id.as_bytes());
    former.extend(log.shards.iter().map(|_| 0));
    former.extend_from_slice(&crc16(&former).to_be_bytes());
    let former: String = former.iter().map(|byte| format!("{byte:02x}")).collect();
    let start = StartAt::After(former);
    let refused = tenant.subscribe(any.clone(), start.clone()).await;
    assert_eq!(code(&refused), "invalid_cursor", "numbers can be tried out");
    let mut whole = f.backend.subscribe(any, start).await.unwrap();
    assert_eq!(drain(&mut whole).await.len(), 301, "callers that see everything may go on");
}

/// Runs with a retention of one hour: a cursor at the end of a log that was forgotten stays good.
pub async fn forgotten_place(f: &Fixture) {
    let any = EventFilter::default();
    let (_, handle) = f.start(item()).await;
    f.backend.complete(&handle, None).await.unwrap();
    let end = all(f, any.clone(), StartAt::Oldest).await.pop().unwrap().cursor;
    f.advance(2 * 60 * 60 * 1000).await;
    let log = f.backend.engine().query(Query::Log).await.unwrap().log.unwrap();
    assert!(log.shards.iter().any(|shard| shard.floor_mark != 0), "{log:?}");
    f.submit(item()).await;
    assert_eq!(all(f, any.clone(), StartAt::After(end.clone())).await.len(), 1);
    let key = CursorKey::new(&log.secret);
    let mut other = Cursor::decode(&end, &log, &key, false).unwrap();
    other.places.iter_mut().for_each(|place| place.mark ^= u32::from(place.seq > 0));
    let refused = f.backend.subscribe(any, StartAt::After(other.encode(&key))).await;
    assert_eq!(code(&refused), "cursor_from_other_history", "retention leaves its mark");
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
