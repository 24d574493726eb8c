//! What an operator does to executions.

use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::list::Filter;
use super::path;
use crate::commands::{Session, input};
use crate::failure::Failure;
use crate::output::{confirm, say};

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
        let found = matching(session, &self.matching).await?;
        if self.dry_run {
            return session.output.one(&json!({ "would_cancel": found.len() }));
        }
        confirm(&format!("This cancels {} executions.", found.len()), self.yes)?;
        let mut cancelled = 0;
        for id in &found {
            match cancel(session, id, &self.reason).await {
                Ok(_) => cancelled += 1,
                // It has ended by itself in the meantime.
                Err(failure) => say(&format!("{id}: {}", failure.message)),
            }
        }
        session.output.one(&json!({ "matched": found.len(), "cancelled": cancelled }))
    }
}

async fn cancel(session: &Session, id: &str, reason: &str) -> Result<Value, Failure> {
    session.client.post(&path(id, "/cancel"), &json!({ "reason": reason })).await
}

/// The unfinished executions that match.
async fn matching(session: &Session, filter: &Filter) -> Result<Vec<String>, Failure> {
    let finished = ["completed", "failed", "cancelled", "expired", "skipped"];
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut query = filter.query();
        query.push(("limit", "1000".to_owned()));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page = session.client.get("/v1/executions", &query).await?;
        let items = page["executions"].as_array().map_or(&[][..], |items| items);
        let open = items
            .iter()
            .filter(|item| !finished.contains(&item["public_state"].as_str().unwrap_or_default()));
        found.extend(open.filter_map(|item| item["execution_id"].as_str().map(str::to_owned)));
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

pub async fn retry(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.client.post(&path(id, "/reschedule"), &json!({ "delay": "0s" })).await?;
    session.output.one(&answer)
}

pub async fn replay(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.client.post(&path(id, "/replay"), &json!({})).await?;
    session.output.one(&answer)
}

pub async fn fork(session: &Session, id: &str, payload: Option<&str>) -> Result<(), Failure> {
    let mut body = json!({});
    if let Some(text) = payload {
        let value: Value = serde_json::from_str(&input(text)?)
            .map_err(|error| Failure::usage(error.to_string()))?;
        body["payload"] = value;
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
    let mut body = Map::new();
    for tag in tags {
        let (key, value) = crate::cli::pair(tag).map_err(Failure::usage)?;
        let value = if value.is_empty() { Value::Null } else { Value::String(value) };
        body.insert(key, value);
    }
    let body = Value::Object(body);
    session.client.call(Method::PATCH, &path(id, "/tags"), &[], Some(&body)).await?;
    say(&format!("{id} is tagged"));
    Ok(())
}

pub async fn revoke(session: &Session, id: &str, reason: &str) -> Result<(), Failure> {
    let body = json!({ "reason": reason });
    let answer = session.client.post(&path(id, "/revoke-lease"), &body).await?;
    session.output.one(&answer)
}
