//! `flowfabric budget`: how much may be used, and how much is.

use std::collections::BTreeMap;

use clap::{Subcommand, ValueEnum};
use ff_api::Span;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{Session, all, segment};
use crate::cli::{pair, span};
use crate::failure::Failure;
use crate::output::{column, confirm, say};

#[derive(Subcommand)]
pub enum Budget {
    /// The budgets of the namespace, as they stand.
    Ls,
    /// One budget as it stands.
    Show { budget: String },
    /// Declare a budget, or declare it anew; what is used stays used.
    Set(Set),
    /// Begin its period anew: nothing is used.
    Reset { budget: String },
    /// Take back what an execution has spent in the present period.
    Release { budget: String, execution_id: String },
    /// Let an execution go on that its budget has suspended.
    Approve {
        execution_id: String,
        /// Added to the hard limits of the budget that it waits for.
        #[arg(long, value_name = "DIMENSION=AMOUNT", value_parser = amount)]
        raise: Vec<(String, u64)>,
    },
    /// Forget a budget; whoever waits for it goes on.
    Rm {
        budget: String,
        /// Do it without being asked.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(clap::Args)]
pub struct Set {
    budget: String,
    /// What is used and reserved never exceeds this.
    #[arg(long, value_name = "DIMENSION=AMOUNT", value_parser = amount)]
    hard: Vec<(String, u64)>,
    /// Using more than this is told with an event.
    #[arg(long, value_name = "DIMENSION=AMOUNT", value_parser = amount)]
    soft: Vec<(String, u64)>,
    /// Reserved by every claim.
    #[arg(long, value_name = "DIMENSION=AMOUNT", value_parser = amount)]
    estimate: Vec<(String, u64)>,
    /// `named`, `namespace`, `lane:NAME`, `flow:ID`, `execution:ID` or `tag:KEY=VALUE`.
    #[arg(long, default_value = "named", value_parser = scope)]
    scope: Value,
    /// What is used goes back to zero so often.
    #[arg(long, value_parser = span)]
    reset: Option<Span>,
    /// What becomes of executions that it has no room for.
    #[arg(long, value_enum, default_value = "refuse")]
    on_breach: Breach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Breach {
    /// They wait until there is room.
    Refuse,
    /// They are suspended until somebody approves.
    Suspend,
    /// They are cancelled.
    CancelPending,
}

impl Breach {
    fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Suspend => "suspend",
            Self::CancelPending => "cancel_pending",
        }
    }
}

impl Budget {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let client = &session.client;
        match self {
            Self::Ls => {
                let answer = all(client, "/v1/budgets", "budgets", &[]).await?;
                let columns = [
                    column("BUDGET", "budget_id"),
                    column("SCOPE", "scope"),
                    column("DIMENSIONS", "dimensions"),
                    column("NEXT RESET", "next_reset_at"),
                    column("BREACHES", "hard_breaches"),
                ];
                session.output.list(&answer, "budgets", &columns)
            }
            Self::Show { budget } => session.output.one(&client.get(&path(&budget), &[]).await?),
            Self::Set(set) => {
                let (path, body) = (path(&set.budget), set.body());
                let answer = client.call(Method::PUT, &path, &[], Some(&body)).await?;
                session.output.one(&answer)
            }
            Self::Reset { budget } => {
                let path = format!("{}/reset", path(&budget));
                client.call(Method::POST, &path, &[], None).await?;
                say(&format!("nothing of {budget} is used"));
                Ok(())
            }
            Self::Release { budget, execution_id } => {
                let body = json!({ "execution_id": execution_id });
                let answer = client.post(&format!("{}/release", path(&budget)), &body).await?;
                session.output.one(&answer)
            }
            Self::Approve { execution_id, raise } => {
                let path = format!("/v1/executions/{}/approve-budget", segment(&execution_id));
                client.post(&path, &json!({ "raise": amounts(raise) })).await?;
                say(&format!("{execution_id} asks its budget again"));
                Ok(())
            }
            Self::Rm { budget, yes } => {
                confirm(&format!("This forgets the budget {budget}."), yes)?;
                client.call(Method::DELETE, &path(&budget), &[], None).await?;
                say(&format!("{budget} is forgotten"));
                Ok(())
            }
        }
    }
}

impl Set {
    fn body(self) -> Value {
        let mut dimensions = Map::new();
        for (bound, given) in [("hard", self.hard), ("soft", self.soft)] {
            for (dimension, amount) in given {
                dimensions.entry(dimension).or_insert_with(|| json!({}))[bound] = json!(amount);
            }
        }
        let mut body = json!({
            "scope": self.scope,
            "dimensions": dimensions,
            "estimate": amounts(self.estimate),
            "on_breach": self.on_breach.word(),
        });
        if let Some(Span(period)) = self.reset {
            body["reset_period_ms"] = json!(period.as_millis());
        }
        body
    }
}

fn path(budget: &str) -> String {
    format!("/v1/budgets/{}", segment(budget))
}

fn amounts(given: Vec<(String, u64)>) -> BTreeMap<String, u64> {
    given.into_iter().collect()
}

/// `dimension=amount`.
fn amount(text: &str) -> Result<(String, u64), String> {
    let (dimension, amount) = pair(text)?;
    let amount = amount.parse().map_err(|_| format!("{amount:?} is no whole number"))?;
    Ok((dimension, amount))
}

/// What a budget applies to, in the form of the API.
fn scope(text: &str) -> Result<Value, String> {
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    match (word, rest) {
        ("named" | "namespace", "") => Ok(json!(word)),
        ("lane" | "flow" | "execution", rest) if !rest.is_empty() => Ok(json!({ word: rest })),
        ("tag", rest) if !rest.is_empty() => {
            let (name, value) = pair(rest)?;
            Ok(json!({ "tag": { "name": name, "value": value } }))
        }
        _ => Err(format!("{text:?} is no scope: say lane:NAME, tag:KEY=VALUE or namespace")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        assert_eq!(scope("named"), Ok(json!("named")));
        assert_eq!(scope("lane:a"), Ok(json!({"lane": "a"})));
        assert_eq!(scope("tag:k=v=w"), Ok(json!({"tag": {"name": "k", "value": "v=w"}})));
        assert_eq!(scope("execution:{fp:3}:x"), Ok(json!({"execution": "{fp:3}:x"})));
        for bad in ["", "lane", "lane:", "tag:k", "named:x", "world"] {
            assert!(scope(bad).is_err(), "{bad}");
        }
        assert_eq!(amount("tokens=5"), Ok(("tokens".to_owned(), 5)));
        assert!(amount("tokens=-5").is_err() && amount("tokens").is_err());
    }
}
