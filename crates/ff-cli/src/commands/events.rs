//! `flowfabric events`: the log as it grows.

use clap::Args;

use super::Session;
use crate::failure::Failure;
use crate::output::{Column, column};

#[derive(Args)]
pub struct Events {
    /// Only of this lane.
    #[arg(long)]
    pub lane: Option<String>,
    /// Only of this kind of execution.
    #[arg(long)]
    pub kind: Option<String>,
    /// Only these types, for example `failed,cancelled`.
    #[arg(long = "type", value_name = "TYPES")]
    pub types: Option<String>,
    /// From the beginning of the log instead of its end.
    #[arg(long, conflicts_with = "after")]
    pub all: bool,
    /// From behind this cursor.
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
    /// Only what operators and admins have done, with token, address and request; ends with the
    /// last one. `--namespace '*'` for all namespaces.
    #[arg(long)]
    pub audit: bool,
    /// Ends after so many.
    #[arg(long, value_name = "COUNT")]
    pub take: Option<usize>,
}

pub const COLUMNS: [Column; 6] = [
    column("AT", "at"),
    column("EVENT", "event_type"),
    column("EXECUTION", "execution_id"),
    column("FROM", "from"),
    column("TO", "to"),
    column("BY", "by"),
];

const AUDIT: [Column; 7] = [
    column("AT", "at"),
    column("EVENT", "event_type"),
    column("EXECUTION", "execution_id"),
    column("BY", "by"),
    column("TOKEN", "actor.token_id"),
    column("ADDRESS", "actor.remote"),
    column("REQUEST", "actor.request_id"),
];

/// Everything that the log has of operators and admins, page by page.
async fn export(
    session: &Session,
    mut query: Vec<(&'static str, String)>,
    mut left: usize,
) -> Result<(), Failure> {
    query.push(("audit", "true".to_owned()));
    query.push(("limit", "1000".to_owned()));
    loop {
        let page = session.client.get("/v1/events", &query).await?;
        let events = page["events"].as_array().map(Vec::as_slice).unwrap_or_default();
        if events.is_empty() {
            return Ok(());
        }
        for event in events {
            session.output.each(event, &AUDIT)?;
            left -= 1;
            if left == 0 {
                return Ok(());
            }
        }
        query.retain(|(name, _)| !matches!(*name, "after" | "from"));
        query.push(("after", page["next_cursor"].as_str().unwrap_or_default().to_owned()));
    }
}

impl Events {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let mut query: Vec<(&str, String)> = Vec::new();
        for (name, value) in [
            ("lane_id", self.lane),
            ("execution_kind", self.kind),
            ("event_types", self.types),
            ("after", self.after),
            ("from", self.all.then(|| "oldest".to_owned())),
        ] {
            query.extend(value.map(|value| (name, value)));
        }
        let mut left = self.take.unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(());
        }
        if self.audit {
            return export(session, query, left).await;
        }
        let follow = session.client.follow("/v1/events/stream", &query, |event| {
            if event.get("event_type").is_none() {
                return Ok(true);
            }
            session.output.each(&event, &COLUMNS)?;
            left -= 1;
            Ok(left > 0)
        });
        tokio::select! {
            followed = follow => followed,
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    }
}
