//! `flowfabric run start`: submit one execution, and wait for its end if asked to.

use std::collections::BTreeMap;

use clap::Args;
use ff_api::Span;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::watch::Outcome;
use crate::cli::{pair, span};
use crate::commands::{Session, input};
use crate::failure::{Exit, Failure};
use crate::output::say;

#[derive(Args)]
pub struct Start {
    /// What kind of work it is; workers choose their handler by it.
    kind: String,
    #[arg(short, long, default_value = "default")]
    lane: String,
    /// JSON, `@file` or `@-`.
    #[arg(short, long)]
    input: Option<String>,
    /// Its identity, in the form `{fp:N}:uuid`.
    #[arg(long)]
    id: Option<String>,
    /// The same work under the same key is accepted once.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Higher goes first.
    #[arg(long, default_value_t = 0)]
    priority: i32,
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Not before this much time has passed.
    #[arg(long, value_parser = span)]
    delay: Option<Span>,
    /// It expires if it is not finished by then.
    #[arg(long, value_parser = span)]
    deadline: Option<Span>,
    /// Only a worker that offers this may have it.
    #[arg(long = "requires", value_name = "CAPABILITY")]
    requires: Vec<String>,
    /// Wait for its end and print its result.
    #[arg(short, long)]
    wait: bool,
    /// How long to wait.
    #[arg(long, value_parser = span, default_value = "10m")]
    timeout: Span,
}

impl Start {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let request = ff_api::SubmitRequest {
            execution_id: self.id.as_deref().map(identity).transpose()?,
            lane_id: ff_core::types::LaneId::new(self.lane.as_str()),
            execution_kind: self.kind.clone(),
            payload: self.payload()?,
            priority: self.priority,
            idempotency_key: self.idempotency_key.clone(),
            tags: self.tags.iter().cloned().collect::<BTreeMap<_, _>>(),
            delay: self.delay,
            deadline: self.deadline,
            ..ff_api::SubmitRequest::default()
        };
        let mut body = serde_json::to_value(&request)
            .map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
        if !self.requires.is_empty() {
            body["policy"] =
                json!({ "routing_requirements": { "required_capabilities": self.requires } });
        }
        let answer = session.client.post("/v1/executions", &body).await?;
        let id = answer["execution_id"].as_str().unwrap_or_default().to_owned();
        if answer["status"] == "duplicate" {
            say("the same work was accepted before");
        }
        if !self.wait {
            return session.output.one(&answer);
        }
        say(&format!("{id} is accepted"));
        Outcome { execution_id: id, wait: Some(self.timeout) }.run(session).await
    }

    /// As it was written: nothing of it is lost on the way.
    fn payload(&self) -> Result<Option<Box<RawValue>>, Failure> {
        let Some(text) = &self.input else { return Ok(None) };
        let text = input(text)?;
        let raw = RawValue::from_string(text.trim().to_owned());
        raw.map(Some).map_err(|error| Failure::usage(error.to_string()))
    }
}

fn identity(text: &str) -> Result<ff_core::types::ExecutionId, Failure> {
    serde_json::from_value(Value::String(text.to_owned()))
        .map_err(|error| Failure::usage(error.to_string()))
}
