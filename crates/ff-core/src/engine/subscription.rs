//! Follows the log from a place, without gaps and without repeats.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;
use uuid::Uuid;

use super::{Cursor, Engine};
use crate::contracts::{Event, EventFilter};
use crate::engine_error::{EngineError, ValidationKind};
use crate::store::{LogBounds, Query, Store};
use crate::views;

const PAGE: usize = 256;

/// An open subscription. It holds no database resource between pages.
pub struct Subscription {
    store: Arc<dyn Store>,
    filter: EventFilter,
    history_id: Uuid,
    seen: Vec<u64>,
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
    pub(crate) async fn open(
        engine: &Engine,
        filter: EventFilter,
        start: StartAt,
    ) -> Result<Self, EngineError> {
        // Listening begins before the look, so that nothing falls between the two.
        let bell = engine.store.listen().events();
        let log = engine.query(Query::Log).await?.log.unwrap_or_else(empty_log);
        let seen = match start {
            StartAt::Oldest => log.shards.iter().map(|(floor, _)| floor - 1).collect(),
            StartAt::Latest => log.shards.iter().map(|(_, head)| *head).collect(),
            StartAt::After(cursor) => {
                let cursor = Cursor::decode(&cursor)?;
                cursor.check(&log)?;
                cursor.seen
            }
        };
        let (store, history_id) = (engine.store.clone(), log.history_id);
        let ready = VecDeque::new();
        Ok(Self { store, filter, history_id, seen, ready, last: None, bell })
    }

    /// The place after everything that has been handed out or skipped so far.
    pub fn cursor(&self) -> String {
        match self.ready.front() {
            // Events that wait here have not been handed out.
            Some(event) => event.cursor_before.clone(),
            None => self.cursor_at(),
        }
    }

    /// Names the event that was handed out last. Whoever reads it, it has this name.
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
        let query = Query::Events { after: self.seen.clone(), limit: PAGE };
        let rows = self.store.query(query).await;
        let rows = rows.map_err(|error| error.into_engine_error(self.store.name()))?;
        self.here().check(&rows.log.unwrap_or_else(empty_log))?;
        let any = !rows.events.is_empty();
        for row in rows.events {
            let shard = usize::from(row.shard);
            if self.seen.get(shard).is_none_or(|seen| row.seq != seen + 1) {
                // Retention may have passed this place since the bounds were read.
                let rows = self.store.query(Query::Log).await;
                let rows = rows.map_err(|error| error.into_engine_error(self.store.name()))?;
                self.here().check(&rows.log.unwrap_or_else(empty_log))?;
                let detail = format!("the log has a hole before event {}", row.seq);
                return Err(EngineError::validation(ValidationKind::Corruption, detail));
            }
            let cursor_before = self.cursor_at();
            self.seen[shard] = row.seq;
            if row.matches(&self.filter) {
                let event = views::event(&row, self.cursor_at());
                let id = format!("{}-{}-{}", self.history_id.simple(), row.shard, row.seq);
                self.ready.push_back(Waiting { event, id, cursor_before });
            }
        }
        Ok(any)
    }

    fn here(&self) -> Cursor {
        Cursor { history_id: self.history_id, seen: self.seen.clone() }
    }

    fn cursor_at(&self) -> String {
        self.here().encode()
    }
}

struct Waiting {
    event: Event,
    id: String,
    cursor_before: String,
}

fn empty_log() -> LogBounds {
    LogBounds { history_id: Uuid::nil(), shards: Vec::new() }
}
