//! `flowfabric bulk`: one action on every execution that matches.

use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::run::Filter;
use super::{Session, all, segment};
use crate::failure::{Exit, Failure};
use crate::output::{column, confirm, say};
use crate::progress::Progress;

#[derive(Subcommand)]
pub enum Bulk {
    /// How many match, and the oldest of them.
    Preview {
        #[command(flatten)]
        matching: Filter,
    },
    /// Cancel those that match and have not ended.
    Cancel {
        #[arg(long, default_value = "cancelled from the shell")]
        reason: String,
        #[command(flatten)]
        start: Start,
    },
    /// Run those that match and have ended again.
    Replay {
        #[command(flatten)]
        start: Start,
    },
    /// Change what goes first.
    Priority {
        #[arg(allow_hyphen_values = true)]
        priority: i32,
        #[command(flatten)]
        start: Start,
    },
    /// Set or remove tags: `key=value` sets, `key=` removes.
    Retag {
        #[arg(required = true)]
        tags: Vec<String>,
        #[command(flatten)]
        start: Start,
    },
    /// Bulk operations, newest first.
    Ls,
    /// How far one has come.
    Show { bulk_id: String },
    /// The executions that refused, and why.
    Failures { bulk_id: String },
    /// Stop one where it is. What it has done stays.
    Stop { bulk_id: String },
}

/// On which executions, and whether somebody has said yes.
#[derive(Args)]
pub struct Start {
    #[command(flatten)]
    pub matching: Filter,
    /// Only say how many it would be.
    #[arg(long)]
    pub dry_run: bool,
    /// Do it without being asked.
    #[arg(long)]
    pub yes: bool,
    /// Do not wait for its end.
    #[arg(long)]
    pub no_wait: bool,
}

/// How often its progress is asked for.
const LOOK: Duration = Duration::from_millis(200);

impl Bulk {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Preview { matching } => {
                session.output.one(&preview(session, &matching.json()).await?)
            }
            Self::Cancel { reason, start } => {
                let action = json!({ "type": "cancel", "reason": reason });
                start.run(session, "cancels", &action).await
            }
            Self::Replay { start } => {
                start.run(session, "replays", &json!({ "type": "replay" })).await
            }
            Self::Priority { priority, start } => {
                let action = json!({ "type": "change_priority", "new_priority": priority });
                start.run(session, "reprioritises", &action).await
            }
            Self::Retag { tags, start } => {
                let action = json!({ "type": "set_tags", "tags": parsed(&tags)? });
                start.run(session, "retags", &action).await
            }
            Self::Ls => list(session).await,
            Self::Show { bulk_id } => {
                session.output.one(&session.client.get(&path(&bulk_id, ""), &[]).await?)
            }
            Self::Failures { bulk_id } => failures(session, &bulk_id).await,
            Self::Stop { bulk_id } => {
                let path = path(&bulk_id, "/cancel");
                let answer = session.client.call(Method::POST, &path, &[], None).await?;
                session.output.one(&answer)
            }
        }
    }
}

fn path(bulk_id: &str, rest: &str) -> String {
    format!("/v1/bulk/{}{rest}", segment(bulk_id))
}

/// `key=value` sets a tag, `key=` removes it.
pub fn parsed(tags: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut found = Map::new();
    for tag in tags {
        let (key, value) = crate::cli::pair(tag).map_err(Failure::usage)?;
        found.insert(key, if value.is_empty() { Value::Null } else { Value::String(value) });
    }
    Ok(found)
}

/// What a bulk operation would meet.
pub async fn preview(session: &Session, filter: &Value) -> Result<Value, Failure> {
    session.client.post("/v1/bulk/preview", &json!({ "filter": filter })).await
}

impl Start {
    /// `does` is what happens, as the question before it has it.
    pub async fn run(self, session: &Session, does: &str, action: &Value) -> Result<(), Failure> {
        if self.matching.query().is_empty() {
            return Err(Failure::usage("say which executions must match")
                .hint("`flowfabric bulk preview --state waiting --kind report`"));
        }
        let filter = self.matching.json();
        let matched = preview(session, &filter).await?["matched"].as_u64().unwrap_or(0);
        if self.dry_run {
            return session.output.one(&json!({ "matched": matched }));
        }
        confirm(&format!("This {does} {matched} executions."), self.yes)?;
        let answer = start(session, &filter, action, self.no_wait).await?;
        session.output.one(&answer)
    }
}

/// Starts a bulk operation and follows it to its end, unless nobody wants to wait.
pub async fn start(
    session: &Session,
    filter: &Value,
    action: &Value,
    no_wait: bool,
) -> Result<Value, Failure> {
    let body = json!({ "filter": filter, "action": action });
    let started = session.client.post("/v1/bulk", &body).await?;
    let Some(id) = started["bulk_id"].as_str() else {
        return Err(Failure::new(Exit::Failure, "the server has not said what it has started"));
    };
    if no_wait {
        say(&format!(
            "it goes on by itself; `flowfabric bulk show {id}` tells how far it has come"
        ));
        return Ok(started);
    }
    say(&format!("`flowfabric bulk stop {id}` would stop it"));
    let count = |seen: &Value, name: &str| seen[name].as_u64().unwrap_or(0);
    let progress = Progress::bar("waiting for its end", count(&started, "matched"));
    loop {
        let seen = session.client.get(&path(id, ""), &[]).await?;
        progress.set(["changed", "skipped", "failed"].iter().map(|name| count(&seen, name)).sum());
        if seen["state"] != "running" {
            return Ok(seen);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn list(session: &Session) -> Result<(), Failure> {
    let answer = all(&session.client, "/v1/bulk", "operations", &[]).await?;
    let columns = [
        column("ID", "bulk_id"),
        column("ACTION", "action.type"),
        column("STATE", "state"),
        column("MATCHED", "matched"),
        column("CHANGED", "changed"),
        column("SKIPPED", "skipped"),
        column("FAILED", "failed"),
        column("BY", "by"),
        column("CREATED", "created_at"),
    ];
    session.output.list(&answer, "operations", &columns)
}

async fn failures(session: &Session, bulk_id: &str) -> Result<(), Failure> {
    let answer = all(&session.client, &path(bulk_id, "/failures"), "failures", &[]).await?;
    let columns =
        [column("EXECUTION", "execution_id"), column("CODE", "code"), column("REASON", "reason")];
    session.output.list(&answer, "failures", &columns)
}
