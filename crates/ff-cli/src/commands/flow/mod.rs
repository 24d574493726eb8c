//! `flowfabric flow`: graphs of executions.

mod graph;

use clap::{Subcommand, ValueEnum};
use ff_api::Span;
use serde_json::{Value, json};

use super::{Session, input, segment};
use crate::cli::span;
use crate::failure::{Exit, Failure};
use crate::output::{Format, column, line, say};
use crate::progress::Progress;

#[derive(Subcommand)]
pub enum Flow {
    /// Submit a whole graph: nodes with their work, and edges between them.
    Submit {
        /// JSON, `@file` or `@-`, in the form of `POST /v1/flows`.
        graph: String,
        /// Wait for its end. Exits with 2 if it failed, 3 if it was cancelled.
        #[arg(short, long)]
        wait: bool,
        /// How long to wait.
        #[arg(long, value_parser = span, default_value = "10m")]
        timeout: Span,
    },
    /// Where a flow stands, or its graph.
    Show {
        flow_id: String,
        /// Draw the graph instead.
        #[arg(long, value_enum)]
        graph: Option<Form>,
    },
    /// Cancel a flow and the members that the policy names.
    Cancel {
        flow_id: String,
        #[arg(long, value_enum, default_value = "cancel-all")]
        policy: Policy,
        /// Wait until no member runs any more, at most so long.
        #[arg(short, long, value_parser = span)]
        wait: Option<Span>,
    },
    /// List flows, newest first.
    Ls {
        /// One or more of open, completed, failed, cancelled, separated by commas.
        #[arg(long = "status", value_name = "STATUSES")]
        statuses: Option<String>,
        /// At most so many, 1 to 1000.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
}

/// How a graph is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// One line for each node, behind those that it waits for.
    Text,
    /// For Graphviz.
    Dot,
    Mermaid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Every unfinished member, running or not.
    CancelAll,
    /// Members that are not running.
    CancelPending,
    /// No member; those that wait are never handed out.
    FlowOnly,
}

impl Policy {
    fn word(self) -> &'static str {
        match self {
            Self::CancelAll => "cancel_all",
            Self::CancelPending => "cancel_pending",
            Self::FlowOnly => "flow_only",
        }
    }
}

impl Flow {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Submit { graph, wait, timeout } => {
                submit(session, &graph, wait.then_some(timeout)).await
            }
            Self::Show { flow_id, graph: None } => {
                session.output.one(&session.client.get(&path(&flow_id, ""), &[]).await?)
            }
            Self::Show { flow_id, graph: Some(form) } => draw(session, &flow_id, form).await,
            Self::Cancel { flow_id, policy, wait } => {
                let mut body = json!({ "policy": policy.word() });
                if let Some(wait) = wait {
                    body["wait"] = json!(wait);
                }
                let answer = session.client.post(&path(&flow_id, "/cancel"), &body).await?;
                session.output.one(&answer)
            }
            Self::Ls { statuses, limit } => list(session, statuses, limit).await,
        }
    }
}

fn path(flow_id: &str, rest: &str) -> String {
    format!("/v1/flows/{}{rest}", segment(flow_id))
}

async fn submit(session: &Session, graph: &str, wait: Option<Span>) -> Result<(), Failure> {
    let body: Value = serde_json::from_str(&input(graph)?)
        .map_err(|error| Failure::usage(format!("the graph is no JSON: {error}")))?;
    let answer = session.client.post("/v1/flows", &body).await?;
    if answer["outcome"] == "duplicate" {
        say("the same graph was accepted before");
    }
    let Some(patience) = wait else { return session.output.one(&answer) };
    let id = answer["flow_id"].as_str().unwrap_or_default();
    say(&format!("flow {id} is accepted"));
    let end = finished(session, id, patience).await?;
    session.output.one(&end)?;
    let status = end["status"].as_str().unwrap_or_default();
    let hint = format!("`flowfabric flow show {id} --graph text` shows how each node ended");
    match status {
        "completed" => Ok(()),
        "failed" => Err(Failure::new(Exit::RunFailed, format!("flow {id} has failed")).hint(hint)),
        "cancelled" => {
            Err(Failure::new(Exit::RunEnded, format!("flow {id} is cancelled")).hint(hint))
        }
        _ => Err(Failure::new(Exit::Timeout, format!("flow {id} has not ended: it is {status}"))
            .hint(hint)),
    }
}

/// The flow when it has ended, or when the time is up.
async fn finished(session: &Session, id: &str, patience: Span) -> Result<Value, Failure> {
    let give_up = std::time::Instant::now() + patience.0;
    let progress = Progress::spinner(&format!("waiting for the end of flow {id}"));
    loop {
        let left = give_up.saturating_duration_since(std::time::Instant::now());
        let wait = Span(left.min(super::run::LONG_POLL)).to_string();
        let (path, query) = (path(id, ""), [("wait", wait)]);
        let flow = progress.spin(session.client.get(&path, &query)).await?;
        let ended = ["completed", "failed", "cancelled"].iter().any(|end| flow["status"] == *end);
        if ended || left.is_zero() {
            return Ok(flow);
        }
    }
}

async fn draw(session: &Session, flow_id: &str, form: Form) -> Result<(), Failure> {
    let mut whole = json!({ "nodes": [], "edges": [] });
    let mut cursor: Option<String> = None;
    loop {
        let query: Vec<_> = cursor.iter().map(|cursor| ("cursor", cursor.clone())).collect();
        let mut page = session.client.get(&path(flow_id, "/graph"), &query).await?;
        for part in ["nodes", "edges"] {
            if let (Some(all), Value::Array(more)) = (whole[part].as_array_mut(), page[part].take())
            {
                all.extend(more);
            }
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    match session.output.format {
        Format::Table => line(graph::Graph::read(&whole).draw(form).trim_end()),
        Format::Json | Format::Jsonl => session.output.one(&whole),
    }
}

async fn list(session: &Session, statuses: Option<String>, limit: usize) -> Result<(), Failure> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(statuses.map(|statuses| ("statuses", statuses)));
    let answer = session.client.get("/v1/flows", &query).await?;
    let columns = [
        column("FLOW", "flow_id"),
        column("STATUS", "status"),
        column("KIND", "flow_kind"),
        column("NODES", "node_count"),
        column("ENDED", "ended"),
        column("CREATED", "created_at"),
        column("FINISHED", "finished_at"),
    ];
    session.output.list(&answer, "flows", &columns)
}
