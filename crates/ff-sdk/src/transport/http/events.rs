//! The log behind a server, page by page: each request waits for what comes after the last one.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use ff_api::{EventPage, Span};
use ff_core::contracts::{Event, EventFilter};
use ff_core::engine::StartAt;
use ff_core::engine_error::EngineError;

use super::Http;
use crate::transport::EventStream;

const WAIT: Duration = Duration::from_secs(20);

pub(super) struct HttpEvents {
    http: Http,
    filter: Vec<(&'static str, String)>,
    place: (&'static str, String),
    read: VecDeque<Event>,
}

impl HttpEvents {
    /// Asks for the place to begin at, so that nothing is missed from here on.
    pub(super) async fn open(
        http: Http,
        filter: EventFilter,
        start: StartAt,
    ) -> Result<Self, EngineError> {
        let own = http.options.namespace.as_ref();
        if filter.namespace.as_ref().is_some_and(|wanted| Some(wanted) != own) {
            return Err(EngineError::invalid("the filter names a foreign namespace"));
        }
        let place = match start {
            StartAt::Oldest => ("from", "oldest".to_owned()),
            StartAt::Latest => ("from", "latest".to_owned()),
            StartAt::After(cursor) => ("after", cursor),
        };
        let mut events = Self { http, filter: query(filter), place, read: VecDeque::new() };
        events.read_page(Duration::ZERO).await?;
        Ok(events)
    }

    async fn read_page(&mut self, wait: Duration) -> Result<(), EngineError> {
        let mut query = self.filter.clone();
        query.push(self.place.clone());
        query.push(("wait", Span(wait).to_string()));
        let page: EventPage = self.http.get("/v1/events", &query, wait).await?;
        self.place = ("after", page.next_cursor);
        self.read.extend(page.events);
        Ok(())
    }
}

#[async_trait]
impl EventStream for HttpEvents {
    async fn next(&mut self) -> Result<Event, EngineError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(event);
            }
            self.read_page(WAIT).await?;
        }
    }
}

fn query(filter: EventFilter) -> Vec<(&'static str, String)> {
    let types: Vec<&str> = filter.event_types.iter().map(|kind| kind.as_str()).collect();
    let parts = [
        ("lane_id", filter.lane_id.map(|lane| lane.0)),
        ("execution_kind", filter.execution_kind),
        ("flow_id", filter.flow_id.map(|flow| flow.0.to_string())),
        ("event_types", (!types.is_empty()).then(|| types.join(","))),
    ];
    parts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
