//! Follows the log from a place, without gaps and without repeats.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;
use uuid::Uuid;

use super::cursor::other_history;
use super::{Cursor, CursorKey, Engine, Place};
use crate::contracts::{Event, EventFilter};
use crate::engine_error::{EngineError, ValidationKind};
use crate::rows::EventRow;
use crate::store::{LogBounds, LogSecret, Query, ShardBounds, Store};
use crate::views;

const PAGE: usize = 256;

/// An open subscription. It holds no database resource between pages.
pub struct Subscription {
    store: Arc<dyn Store>,
    filter: EventFilter,
    key: CursorKey,
    here: Cursor,
    ready: VecDeque<Waiting>,
    last: Option<String>,
    bell: watch::Receiver<u64>,
}

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With the oldest event that is still kept.
    Oldest,
    /// With whatever comes next.
    Latest,
    /// After the event with this cursor.
    After(String),
}

impl Subscription {
    /// `sees_all` says whether the caller may know of every namespace.
    pub(crate) async fn open(
        engine: &Engine,
        filter: EventFilter,
        start: StartAt,
        sees_all: bool,
    ) -> Result<Self, EngineError> {
        // Listening begins before the look, so that nothing falls between the two.
        let bell = engine.store.listen().events();
        let log = engine.query(Query::Log).await?.log.unwrap_or_else(empty_log);
        let key = CursorKey::new(&log.secret);
        let oldest = |shard: &ShardBounds| Place { seq: shard.floor - 1, mark: shard.floor_mark };
        let latest = |shard: &ShardBounds| Place { seq: shard.head, mark: 0 };
        let history_id = log.history_id;
        let here = match start {
            StartAt::Oldest => {
                Cursor { history_id, places: log.shards.iter().map(oldest).collect() }
            }
            StartAt::Latest => {
                Cursor { history_id, places: log.shards.iter().map(latest).collect() }
            }
            StartAt::After(cursor) => Cursor::decode(&cursor, &log, &key, sees_all)?,
        };
        here.check(&log)?;
        let (store, ready) = (engine.store.clone(), VecDeque::new());
        let mut opened = Self { store, filter, key, here, ready, last: None, bell };
        // A cursor of another history is refused at once, and the place gets its marks.
        opened.read_after(0).await?;
        Ok(opened)
    }

    /// The place after everything that has been handed out or skipped so far.
    pub fn cursor(&self) -> String {
        match self.ready.front() {
            // Events that wait here have not been handed out.
            Some(event) => event.cursor_before.clone(),
            None => self.cursor_at(),
        }
    }

    /// Names the event that was handed out last; every reader is told the same name.
    pub fn event_id(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// The next event that passes the filter; waits for it.
    pub async fn next(&mut self) -> Result<Event, EngineError> {
        loop {
            if let Some(event) = self.try_next().await? {
                return Ok(event);
            }
            // Bells are hints; without one the log is looked at again anyway.
            let patience = super::with_jitter(self.store.patience());
            let _ = tokio::time::timeout(patience, self.bell.changed()).await;
        }
    }

    /// The next event that passes the filter, if it is there already.
    pub async fn try_next(&mut self) -> Result<Option<Event>, EngineError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.last = Some(event.id);
                return Ok(Some(event.event));
            }
            self.bell.borrow_and_update();
            if !self.read_page().await? {
                return Ok(None);
            }
        }
    }

    /// Reads on in every shard; false if there was nothing.
    async fn read_page(&mut self) -> Result<bool, EngineError> {
        let events = self.read_after(PAGE).await?;
        let any = !events.is_empty();
        for row in events {
            let shard = usize::from(row.shard);
            if self.here.places.get(shard).is_none_or(|place| row.seq != place.seq + 1) {
                // Retention may have passed this place since the bounds were read.
                self.here.check(&self.query(Query::Log).await?.0)?;
                let detail = format!("the log has a hole before event {}", row.seq);
                return Err(EngineError::validation(ValidationKind::Corruption, detail));
            }
            // A cursor is signed, which is too much work for an event that is passed over.
            let matches = row.matches(&self.filter);
            let cursor_before = if matches { self.cursor_at() } else { String::new() };
            self.here.places[shard] = Place { seq: row.seq, mark: row.mark() };
            if matches {
                let event = views::event(&row, self.cursor_at());
                let id = self.key.event_name(&row);
                self.ready.push_back(Waiting { event, id, cursor_before });
            }
        }
        Ok(any)
    }

    /// The events after this place, if the log is still the one that the place is in.
    async fn read_after(&mut self, limit: usize) -> Result<Vec<EventRow>, EngineError> {
        let after: Vec<u64> = self.here.places.iter().map(|place| place.seq).collect();
        let (log, events) = self.query(Query::Events { after: after.clone(), limit }).await?;
        self.here.check(&log)?;
        let (at_place, events): (Vec<_>, Vec<_>) = events
            .into_iter()
            .partition(|event| after.get(usize::from(event.shard)) == Some(&event.seq));
        if !self.here.compare(&log, &at_place)? {
            // Retention may have forgotten the event since the bounds were read.
            let (log, _) = self.query(Query::Log).await?;
            self.here.check(&log)?;
            if !self.here.compare(&log, &at_place)? {
                return Err(other_history());
            }
        }
        Ok(events)
    }

    async fn query(&self, query: Query) -> Result<(LogBounds, Vec<EventRow>), EngineError> {
        let rows = self.store.query(query).await;
        let rows = rows.map_err(|error| error.into_engine_error(self.store.name()))?;
        Ok((rows.log.unwrap_or_else(empty_log), rows.events))
    }

    fn cursor_at(&self) -> String {
        self.here.encode(&self.key)
    }
}

struct Waiting {
    event: Event,
    id: String,
    cursor_before: String,
}

fn empty_log() -> LogBounds {
    LogBounds { history_id: Uuid::nil(), secret: LogSecret([0; 32]), shards: Vec::new() }
}
