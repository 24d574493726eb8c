//! `flowfabric waitpoint`: who is waited for, and saying what they are waiting to hear.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Session, input, segment};
use crate::failure::{Exit, Failure};
use crate::output::{Column, column, line};

#[derive(Subcommand)]
pub enum Waitpoint {
    /// The open waitpoints of the namespace, or all of one execution.
    Ls {
        /// Only of this execution, closed ones too.
        #[arg(long, value_name = "EXECUTION_ID")]
        run: Option<String>,
        /// At most so many, 1 to 1000.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Say something to a waitpoint.
    Signal {
        execution_id: String,
        waitpoint_id: String,
        /// The name of the signal.
        name: String,
        /// JSON, `@file` or `@-`.
        #[arg(short, long)]
        input: Option<String>,
    },
    /// Print a token that lets whoever has it signal the waitpoint.
    Token { execution_id: String, waitpoint_id: String },
}

const COLUMNS: [Column; 6] = [
    column("WAITPOINT", "waitpoint_id"),
    column("KEY", "waitpoint_key"),
    column("STATE", "state"),
    column("EXECUTION", "execution_id"),
    column("SIGNALS", "signal_count"),
    column("CREATED", "created_at"),
];

impl Waitpoint {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Ls { run, limit } => {
                let path = match run {
                    Some(id) => format!("/v1/executions/{}/waitpoints", segment(&id)),
                    None => "/v1/waitpoints".to_owned(),
                };
                let answer = session.client.get(&path, &[("limit", limit.to_string())]).await?;
                session.output.list(&answer, "waitpoints", &COLUMNS)
            }
            Self::Signal { execution_id, waitpoint_id, name, input } => {
                signal(session, &execution_id, &waitpoint_id, &name, input.as_deref()).await
            }
            Self::Token { execution_id, waitpoint_id } => {
                let path = path(&execution_id, &waitpoint_id, "token");
                let answer = session.client.get(&path, &[]).await?;
                line(answer["token"].as_str().unwrap_or_default())
            }
        }
    }
}

fn path(execution_id: &str, waitpoint_id: &str, verb: &str) -> String {
    let (id, waitpoint) = (segment(execution_id), segment(waitpoint_id));
    format!("/v1/executions/{id}/waitpoints/{waitpoint}/{verb}")
}

async fn signal(
    session: &Session,
    execution_id: &str,
    waitpoint_id: &str,
    name: &str,
    payload: Option<&str>,
) -> Result<(), Failure> {
    let mut body = json!({ "signal_name": name });
    if let Some(text) = payload {
        let value: Value = serde_json::from_str(&input(text)?)
            .map_err(|error| Failure::usage(error.to_string()))?;
        body["payload"] = value;
    }
    let answer = session.client.post(&path(execution_id, waitpoint_id, "signal"), &body).await?;
    session.output.one(&answer)
}

/// Signals the open waitpoint that has the signal's name as its key.
pub async fn signal_by_name(
    session: &Session,
    execution_id: &str,
    name: &str,
    payload: Option<&str>,
) -> Result<(), Failure> {
    let path = format!("/v1/executions/{}/waitpoints", segment(execution_id));
    let page = session.client.get(&path, &[("limit", "1000".to_owned())]).await?;
    let all = page["waitpoints"].as_array().map_or(&[][..], Vec::as_slice);
    let open: Vec<&Value> = all.iter().filter(|one| one["state"] != "closed").collect();
    let found = open.iter().find(|one| one["waitpoint_key"] == name);
    let Some(waitpoint) = found.and_then(|one| one["waitpoint_id"].as_str()) else {
        let known: Vec<_> = open.iter().filter_map(|one| one["waitpoint_key"].as_str()).collect();
        let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
        let message = format!("{execution_id} does not wait for {name:?}; it waits for {known}");
        return Err(Failure::new(Exit::NotFound, message)
            .hint(format!("`flowfabric run why '{execution_id}'` says what it waits for")));
    };
    signal(session, execution_id, waitpoint, name, payload).await
}
