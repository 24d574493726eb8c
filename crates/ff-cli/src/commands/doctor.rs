//! `flowfabric doctor`: whether a store is fit for work, and what stands in its way.

use std::time::{Duration, Instant};

use clap::Args;
use ff_core::contracts::{ListExecutionsArgs, ListOrder};
use ff_core::engine_backend::EngineBackend;
use ff_core::state::{LaneState, PublicState};
use ff_core::types::TimestampMs;
use serde_json::{Value, json};

use super::serve::{Settings, failed};
use crate::failure::{Exit, Failure};
use crate::output::{Output, column};

#[derive(Args)]
pub struct Doctor {
    #[command(flatten)]
    settings: Settings,
    /// Waiting longer than this counts as a finding.
    #[arg(long, value_parser = crate::cli::span, default_value = "15m")]
    old: ff_api::Span,
}

/// A clock that is further away than this from the store's confuses people.
const CLOCK: Duration = Duration::from_secs(2);
const SLOW: Duration = Duration::from_millis(250);

impl Doctor {
    pub async fn run(self, output: Output) -> Result<(), Failure> {
        let config = self.settings.load()?;
        // Opening checks the schema, the settings of the server and whether the file can be
        // written; what it finds wrong it says.
        let backend = ff_server::open(&config).await.map_err(|error| failed(&error))?;
        let findings = self.look(&*backend.engine()).await;
        backend.close().await;
        let findings = findings.map_err(|error| failed(&error))?;
        let bad = findings.iter().filter(|finding| finding["ok"] == false).count();
        let columns = [column("CHECK", "check"), column("OK", "ok"), column("FOUND", "found")];
        output.list(&json!({ "checks": findings }), "checks", &columns)?;
        match bad {
            0 => Ok(()),
            _ => Err(Failure::new(Exit::Failure, format!("{bad} checks found something"))),
        }
    }

    async fn look(
        &self,
        backend: &dyn EngineBackend,
    ) -> Result<Vec<Value>, ff_core::engine_error::EngineError> {
        let store = backend.engine().store().clone();
        let mut findings = vec![finding("schema", true, "up to date")];
        let durability = json!(store.durability());
        let durable = durability == "power_loss";
        findings.push(finding("durability", durable, durability.as_str().unwrap_or_default()));

        let asked = Instant::now();
        let counts = backend.counts().await?;
        let took = asked.elapsed();
        findings.push(finding("read", took < SLOW, &format!("{} ms", took.as_millis())));

        let apart = store.now().0.abs_diff(TimestampMs::now().0);
        let near = u128::from(apart) <= CLOCK.as_millis();
        findings.push(finding("clock", near, &format!("{apart} ms from this machine's")));

        let count = |state: PublicState| -> u64 {
            counts.iter().filter_map(|lane| lane.counts.get(&state)).sum()
        };
        let (waiting, active) = (count(PublicState::Waiting), count(PublicState::Active));
        findings.push(finding("backlog", true, &format!("{waiting} waiting, {active} active")));
        findings.push(self.oldest(backend, store.now()).await?);

        let lanes = backend.list_lanes().await?;
        let paused = lanes.iter().filter(|lane| lane.state == LaneState::Paused);
        let paused: Vec<_> = paused.map(|lane| lane.lane_id.as_str()).collect();
        findings.push(finding("paused lanes", paused.is_empty(), &paused.join(", ")));
        Ok(findings)
    }

    /// How long the oldest execution has been waiting for a worker.
    async fn oldest(
        &self,
        backend: &dyn EngineBackend,
        now: TimestampMs,
    ) -> Result<Value, ff_core::engine_error::EngineError> {
        let args = ListExecutionsArgs {
            states: vec![PublicState::Waiting],
            order: ListOrder::OldestFirst,
            limit: 1,
            ..ListExecutionsArgs::default()
        };
        let page = backend.list_executions(args).await?;
        Ok(match page.executions.first() {
            None => finding("oldest waiting", true, "none"),
            Some(oldest) => {
                let age = now.since(oldest.created_at);
                let words = format!(
                    "{} s: {} in lane {}",
                    age.as_secs(),
                    oldest.execution_id,
                    oldest.lane_id.as_str()
                );
                finding("oldest waiting", age <= self.old.0, &words)
            }
        })
    }
}

fn finding(check: &str, ok: bool, found: &str) -> Value {
    json!({ "check": check, "ok": ok, "found": found })
}
