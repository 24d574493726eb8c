//! Subscribers that write down each event and then, now and then, keep their place.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ff_core::contracts::{Event, EventFilter, EventType};
use ff_core::engine::{StartAt, Subscription};
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::{EngineError, ErrorClass};
use serde::{Deserialize, Serialize};

use crate::evidence::LogEvent;
use crate::history::{self, Journal};

/// How long a store may be away before a subscriber gives up.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

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

pub fn deliveries_path(dir: &Path, seat: &str, subscriber: &str) -> PathBuf {
    dir.join(format!("deliveries.{seat}.{subscriber}.jsonl"))
}

/// Everybody who has followed the log, with their seats.
pub fn subscribers_of(dir: &Path) -> anyhow::Result<Vec<(String, Subscriber)>> {
    let all = history::seats(dir)?;
    let all = all.iter().flat_map(|seat| SUBSCRIBERS.map(|one| (seat.clone(), one)));
    Ok(all.filter(|(seat, one)| deliveries_path(dir, seat, one.name).exists()).collect())
}

impl Subscriber {
    pub async fn resume(
        self,
        backend: &Arc<dyn EngineBackend>,
        dir: &Path,
        seat: &str,
    ) -> anyhow::Result<Following> {
        let place = dir.join(format!("{seat}.{}.cursor", self.name));
        let after = match fs::read_to_string(&place) {
            Ok(cursor) => Some(cursor),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let start = after.clone().map_or(StartAt::Oldest, StartAt::After);
        let filter =
            EventFilter { event_types: self.event_types.to_vec(), ..EventFilter::default() };
        let asked = Instant::now();
        let subscription = loop {
            match backend.subscribe(filter.clone(), start.clone()).await {
                Ok(subscription) => break subscription,
                Err(error) => bear(error, asked).await?,
            }
        };
        let journal = Journal::append_to(&deliveries_path(dir, seat, self.name))?;
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
        let mut away_since = None;
        loop {
            match self.subscription.next().await {
                Ok(event) => {
                    away_since = None;
                    self.note(&event)?;
                }
                Err(error) => bear(error, *away_since.get_or_insert_with(Instant::now)).await?,
            }
        }
    }

    /// Takes what is there and returns.
    pub async fn catch_up(&mut self) -> anyhow::Result<()> {
        while let Some(event) = self.subscription.try_next().await? {
            self.note(&event)?;
        }
        Ok(())
    }

    fn note(&mut self, event: &Event) -> anyhow::Result<()> {
        let Some(known) = LogEvent::of(event) else { return Ok(()) };
        let cursor = event.cursor.clone();
        self.journal.write(&Delivery::Event { cursor, event: known });
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

/// A store may be away for a while; what it says about the log itself is final.
async fn bear(error: EngineError, since: Instant) -> Result<(), EngineError> {
    if error.class() != ErrorClass::Retryable || since.elapsed() > PATIENCE {
        return Err(error);
    }
    tokio::time::sleep(PAUSE).await;
    Ok(())
}
