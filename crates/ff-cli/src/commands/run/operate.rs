//! What an operator does to executions.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::list::Filter;
use super::path;
use crate::commands::{Session, bulk, input};
use crate::failure::Failure;
use crate::output::{confirm, say};

/// Whatever can be cancelled.
const UNFINISHED: [&str; 7] =
    ["waiting", "delayed", "rate_limited", "waiting_children", "active", "suspended", "resumable"];

#[derive(Args)]
pub struct Cancel {
    /// The executions to cancel; without any, those that match.
    execution_ids: Vec<String>,
    #[command(flatten)]
    matching: Filter,
    #[arg(long, default_value = "cancelled from the shell")]
    reason: String,
    /// Only say how many it would be.
    #[arg(long)]
    dry_run: bool,
    /// Do it without being asked.
    #[arg(long)]
    yes: bool,
}

impl Cancel {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        if !self.execution_ids.is_empty() {
            for id in &self.execution_ids {
                let answer = cancel(session, id, &self.reason).await?;
                session.output.one(&answer)?;
            }
            return Ok(());
        }
        if self.matching.query().is_empty() {
            return Err(Failure::usage("name executions, or say which ones must match")
                .hint("`flowfabric run cancel --state waiting --kind report --dry-run`"));
        }
        let mut filter = self.matching.json();
        if self.matching.states.is_none() {
            filter["states"] = json!(UNFINISHED);
        }
        let found = bulk::preview(session, &filter).await?["matched"].as_u64().unwrap_or(0);
        if self.dry_run {
            return session.output.one(&json!({ "would_cancel": found }));
        }
        confirm(&format!("This cancels {found} executions."), self.yes)?;
        let action = json!({ "type": "cancel", "reason": self.reason });
        let done = bulk::start(session, &filter, &action, false).await?;
        session.output.one(&json!({
            "bulk_id": done["bulk_id"], "matched": done["matched"], "cancelled": done["changed"],
            "skipped": done["skipped"], "failed": done["failed"],
        }))
    }
}

async fn cancel(session: &Session, id: &str, reason: &str) -> Result<Value, Failure> {
    session.client.post(&path(id, "/cancel"), &json!({ "reason": reason })).await
}

pub async fn retry(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.client.post(&path(id, "/reschedule"), &json!({ "delay": "0s" })).await?;
    session.output.one(&answer)
}

pub async fn replay(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.client.post(&path(id, "/replay"), &json!({})).await?;
    session.output.one(&answer)
}

pub async fn resubmit(
    session: &Session,
    id: &str,
    payload: Option<&str>,
    key: Option<&str>,
) -> Result<(), Failure> {
    let mut body = json!({});
    if let Some(key) = key {
        body["idempotency_key"] = key.into();
    }
    if let Some(text) = payload {
        body["payload"] = parsed_input(text)?;
    }
    let answer = session.client.post(&path(id, "/resubmit"), &body).await?;
    session.output.one(&answer)
}

/// JSON from the command line or from where it points.
fn parsed_input(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(&input(text)?).map_err(|error| Failure::usage(error.to_string()))
}

pub async fn fork(
    session: &Session,
    id: &str,
    payload: Option<&str>,
    steps_up_to: Option<&str>,
) -> Result<(), Failure> {
    let mut body = json!({});
    if let Some(name) = steps_up_to {
        body["steps_up_to"] = name.into();
    }
    if let Some(text) = payload {
        body["payload"] = parsed_input(text)?;
    }
    let answer = session.client.post(&path(id, "/fork-flow"), &body).await?;
    session.output.one(&answer)
}

pub async fn priority(session: &Session, id: &str, priority: i32) -> Result<(), Failure> {
    let body = json!({ "priority": priority });
    session.client.call(Method::PUT, &path(id, "/priority"), &[], Some(&body)).await?;
    say(&format!("{id} has priority {priority}"));
    Ok(())
}

pub async fn tag(session: &Session, id: &str, tags: &[String]) -> Result<(), Failure> {
    let body = Value::Object(bulk::parsed(tags)?);
    session.client.call(Method::PATCH, &path(id, "/tags"), &[], Some(&body)).await?;
    say(&format!("{id} is tagged"));
    Ok(())
}

pub async fn revoke(session: &Session, id: &str, reason: &str) -> Result<(), Failure> {
    let body = json!({ "reason": reason });
    let answer = session.client.post(&path(id, "/revoke-lease"), &body).await?;
    session.output.one(&answer)
}
