//! Looking at one execution: as it is, why it waits, as it goes on, and how it ended.

use std::time::{Duration, Instant};

use clap::Args;
use ff_api::Span;
use ff_core::types::TimestampMs;
use serde_json::{Value, json};

use super::path;
use crate::cli::span;
use crate::commands::Session;
use crate::commands::events::COLUMNS;
use crate::failure::{Exit, Failure};
use crate::output::{Format, line, say};
use crate::progress::Progress;

#[derive(Args)]
pub struct Outcome {
    pub execution_id: String,
    /// Wait for the end, at most so long.
    #[arg(short, long, value_parser = span)]
    pub wait: Option<Span>,
}

/// As long as the server holds one question open.
pub const LONG_POLL: Duration = Duration::from_secs(30);

pub async fn show(session: &Session, execution_id: &str, events: bool) -> Result<(), Failure> {
    let mut answer = session.client.get(&path(execution_id, ""), &[]).await?;
    if events {
        answer["events"] = Value::Array(history(session, execution_id, 0).await?);
    }
    session.output.one(&answer)
}

pub async fn why(session: &Session, execution_id: &str) -> Result<(), Failure> {
    let answer = session.client.get(&path(execution_id, "/explain"), &[]).await?;
    if session.output.format != Format::Table {
        return session.output.one(&answer);
    }
    line(answer["words"].as_str().unwrap_or_default())?;
    match answer["next_change_at"].as_str() {
        Some(at) => line(&format!("that can change at {}", with_distance(at, TimestampMs::now()))),
        None => Ok(()),
    }
}

/// An instant, and how far away it is.
fn with_distance(at: &str, now: TimestampMs) -> String {
    match TimestampMs::parse_rfc3339(at) {
        Some(parsed) => parsed.in_words(now),
        None => at.to_owned(),
    }
}

pub async fn tail(session: &Session, execution_id: &str) -> Result<(), Failure> {
    let mut after = 0;
    loop {
        // Whether it has ended is asked before its events: none comes behind the last one.
        let ended = result(session, execution_id, Duration::ZERO).await?;
        for event in history(session, execution_id, after).await? {
            after = event["version"].as_u64().unwrap_or(after);
            session.output.each(&event, &COLUMNS)?;
        }
        if ended["finished"] == true {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

impl Outcome {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let wait = self.wait.map_or(Duration::ZERO, |wait| wait.0);
        let answer = match wait.is_zero() {
            true => result(session, &self.execution_id, wait).await?,
            false => self.waited(session, wait).await?,
        };
        let state = answer["public_state"].as_str().unwrap_or_default().to_owned();
        match session.output.format {
            Format::Table if answer["finished"] == true => self.print(&answer)?,
            Format::Table => {}
            Format::Json | Format::Jsonl => session.output.one(&answer)?,
        }
        let id = &self.execution_id;
        let why = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        match state.as_str() {
            "completed" => Ok(()),
            "failed" => Err(Failure::new(
                Exit::RunFailed,
                format!("{id} has failed: {}", why("failure_reason")),
            )
            .hint(format!("`flowfabric run show '{id}' --events`, then `run replay`"))),
            "cancelled" | "expired" | "skipped" => {
                let reason = why("cancellation_reason");
                Err(Failure::new(Exit::RunEnded, format!("{id} is {state}. {reason}"))
                    .hint(format!("`flowfabric run show '{id}' --events`, then `run replay`")))
            }
            _ => Err(Failure::new(Exit::Timeout, format!("{id} has not ended: it is {state}"))
                .hint(format!("`flowfabric run why '{id}'` says what it waits for"))),
        }
    }

    /// The execution when it has ended, or when the time is up.
    async fn waited(&self, session: &Session, wait: Duration) -> Result<Value, Failure> {
        let give_up = Instant::now() + wait;
        let progress = Progress::spinner(&format!("waiting for the end of {}", self.execution_id));
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            let asked = result(session, &self.execution_id, left.min(LONG_POLL));
            let answer = progress.spin(asked).await?;
            if answer["finished"] == true || left.is_zero() {
                return Ok(answer);
            }
        }
    }

    /// The result alone, so that it can go into a pipe.
    fn print(&self, answer: &Value) -> Result<(), Failure> {
        match (&answer["result"], answer["result_base64"].as_str()) {
            (Value::Null, None) => Ok(()),
            (Value::Null, Some(bytes)) => {
                say("the result is no JSON; this is its base64");
                line(bytes)
            }
            (result, _) => line(&result.to_string()),
        }
    }
}

async fn result(session: &Session, id: &str, wait: Duration) -> Result<Value, Failure> {
    let wait = json!(Span(wait)).as_str().unwrap_or("0s").to_owned();
    session.client.get(&path(id, "/result"), &[("wait", wait)]).await
}

async fn history(session: &Session, id: &str, after: u64) -> Result<Vec<Value>, Failure> {
    let mut events = Vec::new();
    let mut after = Some(after);
    while let Some(last) = after {
        let query = [("after", last.to_string()), ("limit", "1000".to_owned())];
        let mut page = session.client.get(&path(id, "/history"), &query).await?;
        if let Value::Array(items) = page["events"].take() {
            events.extend(items);
        }
        after = page["next_after"].as_u64();
    }
    Ok(events)
}
