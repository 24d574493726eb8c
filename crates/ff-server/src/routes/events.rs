//! The log: as pages, and as a stream that can be resumed.

use axum::http::{HeaderMap, HeaderName, Method};
use ff_api::{EventPage, Scope, Span};
use ff_core::contracts::{Event, EventFilter, EventType};
use ff_core::engine::{StartAt, Subscription};
use ff_core::types::{FlowId, LaneId};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{LONGEST_WAIT, Nothing, Route};
use crate::sse::{self, Item, Source};
use crate::wire;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::GET, "/v1/events"),
            ("list_events", "Events after a cursor; waits for one if asked to."),
            Scope::Read,
            list,
        )
        .waits(),
        Route::new(
            (Method::GET, "/v1/events/stream"),
            ("subscribe", "Events as they happen; Last-Event-ID resumes."),
            Scope::Read,
            stream,
        )
        .streams(),
    ]
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct EventQuery {
    lane_id: Option<String>,
    execution_kind: Option<String>,
    flow_id: Option<Uuid>,
    /// One or more types, separated by commas.
    event_types: Option<String>,
    /// `true`: only what operators and admins have done through a server, with who it was.
    audit: Option<bool>,
    /// The cursor of the last event that was seen.
    after: Option<String>,
    /// Without a cursor: `oldest`, or `latest` (the default of the stream).
    from: Option<String>,
    /// 1 to 1,000; 100 if it is absent. Of no use to a stream.
    limit: Option<usize>,
    /// How long to wait for the first event, at most 60 seconds. Of no use to a stream.
    #[param(value_type = Option<String>)]
    wait: Option<Span>,
}

impl EventQuery {
    fn filter(&self) -> Answered<EventFilter> {
        let event_types = wire::words(self.event_types.as_deref(), "event type", EventType::parse)?;
        Ok(EventFilter {
            namespace: None,
            lane_id: self.lane_id.clone().map(LaneId::new),
            execution_kind: self.execution_kind.clone(),
            flow_id: self.flow_id.map(FlowId),
            event_types,
            audit: self.audit.unwrap_or_default(),
        })
    }

    fn start(&self, last: Option<String>, default: StartAt) -> Answered<StartAt> {
        match (last.or_else(|| self.after.clone()), self.from.as_deref()) {
            (Some(cursor), _) => Ok(StartAt::After(cursor)),
            (None, None) => Ok(default),
            (None, Some("oldest")) => Ok(StartAt::Oldest),
            (None, Some("latest")) => Ok(StartAt::Latest),
            (None, Some(_)) => Err(Refusal::invalid("from is oldest or latest")),
        }
    }
}

async fn list(call: Call<EventQuery, Nothing>) -> Answered<Answer<EventPage>> {
    let (query, backend) = (&call.query, call.door.backend());
    let limit = wire::limit(query.limit, 100)?;
    let start = query.start(None, StartAt::Oldest)?;
    let mut subscription = backend.subscribe(query.filter()?, start).await?;
    let mut events = Vec::new();
    while events.len() < limit {
        match subscription.try_next().await? {
            Some(event) => events.push(event),
            None => break,
        }
    }
    let wait = query.wait.unwrap_or_default().0.min(LONGEST_WAIT);
    if events.is_empty() && !wait.is_zero() {
        tokio::select! {
            biased;
            () = call.state.closing.cancelled() => {}
            next = tokio::time::timeout(wait, subscription.next()) => {
                if let Ok(event) = next {
                    events.push(event?);
                }
            }
        }
    }
    Ok(Answer::json(EventPage { events, next_cursor: subscription.cursor() }))
}

async fn stream(call: Call<EventQuery, Nothing>) -> Answered<Answer<Nothing>> {
    let (query, backend) = (&call.query, call.door.backend());
    let start = query.start(last_event_id(&call.headers), StartAt::Latest)?;
    let subscription = backend.subscribe(query.filter()?, start).await?;
    let body = sse::body(&call.state, &call.door, Events(subscription))?;
    Ok(Answer::stream(body))
}

fn last_event_id(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(LAST_EVENT_ID)?.to_str().ok()?;
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

struct Events(Subscription);

impl Source for Events {
    async fn next(&mut self) -> Answered<Option<Item>> {
        let event: Event = self.0.next().await?;
        Item::new(event.cursor.clone(), event.event_type.as_str(), &event).map(Some)
    }
}
