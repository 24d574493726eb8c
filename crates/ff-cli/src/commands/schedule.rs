//! `flowfabric schedule`: work that is submitted by itself.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use ff_api::Span;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Session, input, segment};
use crate::cli::{pair, span};
use crate::failure::Failure;
use crate::output::{column, confirm, say};

#[derive(Subcommand)]
pub enum Schedule {
    /// Make a schedule, or change the one of this name.
    Put(Box<Put>),
    /// Every schedule and when it starts next.
    Ls,
    /// Everything about one schedule.
    Show {
        name: String,
        /// How many of its next due times.
        #[arg(long, default_value_t = 5)]
        upcoming: usize,
    },
    /// Start nothing by itself until it is resumed.
    Pause {
        name: String,
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Start runs by itself again, from now on.
    Resume { name: String },
    /// Start a run at once, beside whatever runs.
    Trigger { name: String },
    /// Make up for what was due from one instant up to another, in RFC 3339.
    Backfill {
        name: String,
        #[arg(long, value_name = "INSTANT")]
        from: String,
        #[arg(long, value_name = "INSTANT")]
        until: String,
    },
    /// Forget a schedule. Its runs stay.
    Rm {
        name: String,
        /// Do it without being asked.
        #[arg(long)]
        yes: bool,
    },
    /// When a schedule would be due, without making it.
    Preview {
        #[command(flatten)]
        timing: Timing,
        #[arg(long, default_value_t = 5)]
        count: usize,
    },
}

/// When it is due: one of the two.
#[derive(Args)]
#[group(skip)]
pub struct Timing {
    /// Five fields, or six with seconds in front, or `@daily` and its like.
    #[arg(long, conflicts_with = "every", required_unless_present = "every")]
    cron: Option<String>,
    /// The time zone of the cron expression, such as `Europe/Berlin`.
    #[arg(long, default_value = "UTC")]
    zone: String,
    /// An interval, such as `15m`.
    #[arg(long, value_parser = span)]
    every: Option<Span>,
}

impl Timing {
    fn json(&self) -> Value {
        match &self.every {
            Some(every) => json!({ "type": "interval", "every_ms": millis(every) }),
            None => json!({ "type": "cron", "expression": self.cron, "time_zone": self.zone }),
        }
    }
}

#[derive(Args)]
pub struct Put {
    name: String,
    /// What kind of work each run is.
    #[arg(long)]
    kind: String,
    #[arg(short, long, default_value = "default")]
    lane: String,
    /// JSON, `@file` or `@-`.
    #[arg(short, long)]
    input: Option<String>,
    #[command(flatten)]
    timing: Timing,
    /// When one before it has not finished: skip, buffer_one, cancel_running or allow.
    #[arg(long, default_value = "skip")]
    overlap: String,
    /// What becomes of runs that nobody could start in time: skip, latest, or the newest so many.
    #[arg(long, default_value = "latest", value_name = "skip|latest|N", value_parser = missed)]
    missed: Value,
    /// Each run starts up to this much later than it is due.
    #[arg(long, value_parser = span)]
    jitter: Option<Span>,
    #[arg(long, value_name = "INSTANT")]
    starts_at: Option<String>,
    #[arg(long, value_name = "INSTANT")]
    ends_at: Option<String>,
    #[arg(long, default_value_t = 0)]
    priority: i32,
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
}

fn missed(text: &str) -> Result<Value, String> {
    match text.parse::<u32>() {
        Ok(max) => Ok(json!({ "all": { "max": max } })),
        Err(_) if ["skip", "latest"].contains(&text) => Ok(json!(text)),
        Err(_) => Err(format!("{text:?} is neither skip nor latest nor a number")),
    }
}

fn millis(span: &Span) -> u64 {
    u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/schedules/{}{rest}", segment(name))
}

impl Put {
    fn json(&self) -> Result<Value, Failure> {
        let tags: BTreeMap<_, _> = self.tags.iter().cloned().collect();
        let mut template = json!({
            "lane_id": self.lane, "execution_kind": self.kind, "priority": self.priority,
            "tags": tags,
        });
        if let Some(text) = &self.input {
            let value: Value = serde_json::from_str(&input(text)?)
                .map_err(|error| Failure::usage(error.to_string()))?;
            template["payload"] = value;
        }
        let jitter_ms = self.jitter.as_ref().map_or(0, millis);
        Ok(json!({
            "timing": self.timing.json(), "template": template, "overlap": self.overlap,
            "missed": self.missed, "jitter_ms": jitter_ms, "starts_at": self.starts_at,
            "ends_at": self.ends_at,
        }))
    }

    async fn run(&self, session: &Session) -> Result<(), Failure> {
        let body = self.json()?;
        let path = path(&self.name, "");
        let answer = session.client.call(Method::PUT, &path, &[], Some(&body)).await?;
        session.output.one(&answer)
    }
}

impl Schedule {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let client = &session.client;
        match self {
            Self::Put(put) => put.run(session).await,
            Self::Ls => list(session).await,
            Self::Show { name, upcoming } => {
                let query = [("upcoming", upcoming.to_string())];
                session.output.one(&client.get(&path(&name, ""), &query).await?)
            }
            Self::Pause { name, reason } => {
                client.post(&path(&name, "/pause"), &json!({ "reason": reason })).await?;
                say(&format!("{name} is paused; `flowfabric schedule resume {name}` ends that"));
                Ok(())
            }
            Self::Resume { name } => {
                client.call(Method::POST, &path(&name, "/resume"), &[], None).await?;
                say(&format!("{name} starts its runs again"));
                Ok(())
            }
            Self::Trigger { name } => {
                let answer = client.call(Method::POST, &path(&name, "/trigger"), &[], None).await?;
                session.output.one(&answer)
            }
            Self::Backfill { name, from, until } => {
                let body = json!({ "from": from, "until": until });
                session.output.one(&client.post(&path(&name, "/backfill"), &body).await?)
            }
            Self::Rm { name, yes } => {
                confirm(&format!("This forgets the schedule {name}."), yes)?;
                client.call(Method::DELETE, &path(&name, ""), &[], None).await?;
                say(&format!("{name} is forgotten; its runs stay"));
                Ok(())
            }
            Self::Preview { timing, count } => {
                let body = json!({ "timing": timing.json(), "count": count });
                session.output.one(&client.post("/v1/schedule-preview", &body).await?)
            }
        }
    }
}

async fn list(session: &Session) -> Result<(), Failure> {
    let mut found: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut query = vec![("limit", "1000".to_owned())];
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let mut page = session.client.get("/v1/schedules", &query).await?;
        if let Value::Array(items) = page["schedules"].take() {
            found.extend(items);
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let columns = [
        column("NAME", "name"),
        column("KIND", "template.execution_kind"),
        column("LANE", "template.lane_id"),
        column("NEXT START", "next_start_at"),
        column("LAST DUE", "last_due"),
        column("STARTED", "started"),
        column("LEFT OUT", "overlapped"),
        column("PAUSED", "paused.reason"),
    ];
    session.output.list(&json!({ "schedules": found }), "schedules", &columns)
}
