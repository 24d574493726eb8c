//! Subscribers that page through the log of a server, through all of its restarts.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use ff_core::contracts::EventType;

use super::client::Client;
use crate::evidence::LogEvent;
use crate::history::Journal;
use crate::workload::{Delivery, Subscriber, deliveries_path};

const PAUSE: Duration = Duration::from_millis(50);

/// Writes down each event, and keeps its place after each page.
pub async fn follow(
    client: &Client,
    subscriber: Subscriber,
    dir: &Path,
    seat: &str,
) -> anyhow::Result<()> {
    let place = dir.join(format!("{seat}.{}.cursor", subscriber.name));
    let mut after = match fs::read_to_string(&place) {
        Ok(cursor) => Some(cursor),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let journal = Journal::append_to(&deliveries_path(dir, seat, subscriber.name))?;
    journal.write(&Delivery::Resumed { after: after.clone() });
    let types: Vec<&str> =
        subscriber.event_types.iter().map(|kind| EventType::as_str(*kind)).collect();
    loop {
        let mut query = vec![("wait", "1s".to_owned()), ("limit", "200".to_owned())];
        query.push(("namespace", "*".to_owned()));
        query.extend(after.clone().map(|after| ("after", after)));
        if !types.is_empty() {
            query.push(("event_types", types.join(",")));
        }
        match client.events(&query).await {
            Ok(page) => {
                let mut noted = None;
                for event in &page.events {
                    let cursor = event.cursor.clone();
                    if let Some(event) = LogEvent::of(event) {
                        noted = Some(cursor.clone());
                        journal.write(&Delivery::Event { cursor, event });
                    }
                }
                if let Some(last) = page.events.last() {
                    after = Some(last.cursor.clone());
                }
                if let Some(noted) = noted {
                    // A rename cannot be torn, so the place is either the old one or the new one.
                    let new = place.with_extension("new");
                    fs::write(&new, &noted)?;
                    fs::rename(&new, &place)?;
                }
            }
            // What the log says about a place is final; a server may be away.
            Err(code) if code.starts_with("cursor_") || code == "invalid_cursor" => {
                bail!("the log refuses the place of {}: {code}", subscriber.name);
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
