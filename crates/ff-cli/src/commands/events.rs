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
