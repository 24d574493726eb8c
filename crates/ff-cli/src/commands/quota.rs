//! `flowfabric quota`: how fast, how many at once, and whose turn it is.

use clap::{Args, Subcommand};
use ff_api::Span;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Session, all, segment};
use crate::cli::pair;
use crate::failure::Failure;
use crate::output::{column, confirm, say};

#[derive(Subcommand)]
pub enum Quota {
    /// The quotas of the namespace, as they were declared.
    Ls,
    /// One quota with the keys that are in use.
    Show { quota: String },
    /// Declare a quota, or declare it anew.
    Set(Set),
    /// Forget a quota; whoever waits for it goes on.
    Rm {
        quota: String,
        /// Do it without being asked.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args)]
pub struct Set {
    quota: String,
    /// Only executions of this lane.
    #[arg(long)]
    lane: Option<String>,
    /// Only executions of this kind.
    #[arg(long)]
    kind: Option<String>,
    /// What is counted apart: `all`, `lane`, `kind`, `namespace` or `tag:NAME`.
    #[arg(long, default_value = "all", value_parser = key)]
    key: Value,
    /// At most so many claims in so much time, for example `10/1s`.
    #[arg(long, value_parser = rate)]
    rate: Option<Value>,
    /// At most so many of one key run at once.
    #[arg(long)]
    concurrency: Option<u32>,
    /// Keys of one lane take turns, whoever queued first.
    #[arg(long)]
    fair: bool,
    /// How often it is a key's turn; 1 unless it is said.
    #[arg(long = "weight", value_name = "KEY=WEIGHT", value_parser = weight)]
    weights: Vec<(String, u32)>,
}

impl Quota {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let client = &session.client;
        match self {
            Self::Ls => {
                let answer = all(client, "/v1/quotas", "quotas", &[]).await?;
                let columns = [
                    column("QUOTA", "quota_id"),
                    column("LANE", "lane_id"),
                    column("KIND", "execution_kind"),
                    column("KEY", "key"),
                    column("RATE", "rate"),
                    column("CONCURRENCY", "concurrency"),
                    column("FAIR", "fair"),
                ];
                session.output.list(&answer, "quotas", &columns)
            }
            Self::Show { quota } => session.output.one(&client.get(&path(&quota), &[]).await?),
            Self::Set(set) => {
                let (path, body) = (path(&set.quota), set.body());
                let answer = client.call(Method::PUT, &path, &[], Some(&body)).await?;
                session.output.one(&answer)
            }
            Self::Rm { quota, yes } => {
                confirm(&format!("This forgets the quota {quota}."), yes)?;
                client.call(Method::DELETE, &path(&quota), &[], None).await?;
                say(&format!("{quota} is forgotten"));
                Ok(())
            }
        }
    }
}

impl Set {
    fn body(self) -> Value {
        let weights: std::collections::BTreeMap<_, _> = self.weights.into_iter().collect();
        let mut body = json!({ "key": self.key, "fair": self.fair, "weights": weights });
        for (name, value) in [
            ("lane_id", json!(self.lane)),
            ("execution_kind", json!(self.kind)),
            ("rate", json!(self.rate)),
            ("concurrency", json!(self.concurrency)),
        ] {
            if !value.is_null() {
                body[name] = value;
            }
        }
        body
    }
}

fn path(quota: &str) -> String {
    format!("/v1/quotas/{}", segment(quota))
}

/// What a quota counts apart, in the form of the API.
fn key(text: &str) -> Result<Value, String> {
    match text.split_once(':') {
        None if ["all", "lane", "kind", "namespace"].contains(&text) => Ok(json!(text)),
        Some(("tag", name)) if !name.is_empty() => Ok(json!({ "tag": name })),
        _ => Err(format!("{text:?} is no key: say all, lane, kind, namespace or tag:NAME")),
    }
}

/// `10/1s`.
fn rate(text: &str) -> Result<Value, String> {
    let wrong = || format!("{text:?} is no rate: say for example 10/1s");
    let (limit, window) = text.split_once('/').ok_or_else(wrong)?;
    let limit: u32 = limit.parse().map_err(|_| wrong())?;
    let Span(window) = window.parse().map_err(|_| wrong())?;
    Ok(json!({ "limit": limit, "window_ms": window.as_millis() }))
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let (key, weight) = pair(text)?;
    let weight = weight.parse().map_err(|_| format!("{weight:?} is no whole number"))?;
    Ok((key, weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_keys() {
        assert_eq!(rate("10/1m"), Ok(json!({"limit": 10, "window_ms": 60_000})));
        assert_eq!(key("tag:customer"), Ok(json!({"tag": "customer"})));
        for bad in ["", "10", "10/", "x/1s", "10/1"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert!(key("tag:").is_err() && key("world").is_err());
    }
}
