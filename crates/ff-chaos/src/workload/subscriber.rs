//! Subscribers that write down each event and then, now and then, keep their place.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ff_core::contracts::{EventFilter, EventType};
use ff_core::engine::{StartAt, Subscription};
use ff_core::engine_backend::EngineBackend;
use serde::{Deserialize, Serialize};

use crate::evidence::LogEvent;
use crate::history::Journal;

/// How many events a subscriber may see again after a kill.
const KEPT_EVERY: u32 = 8;

/// One line of a subscriber's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// A process begins to follow the log after this place, or at its beginning.
    Resumed {
        after: Option<String>,
    },
    Event {
        cursor: String,
        event: LogEvent,
    },
}

/// Somebody who follows the log through all restarts.
#[derive(Clone, Copy, Debug)]
pub struct Subscriber {
    pub name: &'static str,
    /// Empty means all.
    pub event_types: &'static [EventType],
}

/// One that wants everything, and one whose filter passes over most of it.
pub const SUBSCRIBERS: [Subscriber; 2] = [
    Subscriber { name: "everything", event_types: &[] },
    Subscriber { name: "endings", event_types: &[EventType::Completed, EventType::Cancelled] },
];

pub fn deliveries_path(dir: &Path, subscriber: &str) -> PathBuf {
    dir.join(format!("deliveries.{subscriber}.jsonl"))
}

impl Subscriber {
    pub async fn resume(
        self,
        backend: &Arc<dyn EngineBackend>,
        dir: &Path,
    ) -> anyhow::Result<Following> {
        let place = dir.join(format!("{}.cursor", self.name));
        let after = match fs::read_to_string(&place) {
            Ok(cursor) => Some(cursor),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let start = after.clone().map_or(StartAt::Oldest, StartAt::After);
        let filter =
            EventFilter { event_types: self.event_types.to_vec(), ..EventFilter::default() };
        let subscription = backend.subscribe(filter, start).await?;
        let journal = Journal::append_to(&deliveries_path(dir, self.name))?;
        journal.write(&Delivery::Resumed { after });
        Ok(Following { subscription, journal, place, since_kept: 0 })
    }
}

/// A subscriber at work.
pub struct Following {
    subscription: Subscription,
    journal: Journal,
    place: PathBuf,
    since_kept: u32,
}

impl Following {
    pub async fn follow(&mut self) -> anyhow::Result<()> {
        loop {
            let event = self.subscription.next().await?;
            self.note(&event)?;
        }
    }

    /// Takes what is there and returns.
    pub async fn catch_up(&mut self) -> anyhow::Result<()> {
        while let Some(event) = self.subscription.try_next().await? {
            self.note(&event)?;
        }
        Ok(())
    }

    fn note(&mut self, event: &ff_core::contracts::Event) -> anyhow::Result<()> {
        let cursor = event.cursor.clone();
        self.journal.write(&Delivery::Event { cursor, event: LogEvent::from(event) });
        self.since_kept += 1;
        if self.since_kept == KEPT_EVERY {
            self.since_kept = 0;
            // A rename cannot be torn, so the place is either the old one or the new one.
            let new = self.place.with_extension("new");
            fs::write(&new, &event.cursor)?;
            fs::rename(&new, &self.place)?;
        }
        Ok(())
    }
}
