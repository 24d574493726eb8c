//! `flowfabric doctor`: whether a store is fit for work, and what stands in its way.

use std::time::{Duration, Instant};

use clap::Args;
use ff_core::contracts::{ListExecutionsArgs, ListOrder};
use ff_core::engine_backend::{EngineBackend, LimitOperations};
use ff_core::engine_error::EngineError;
use ff_core::limits;
use ff_core::state::{LaneState, PublicState};
use ff_core::store::Query;
use ff_core::types::{Namespace, TimestampMs};
use serde_json::{Value, json};

use super::serve::{Settings, failed};
use crate::failure::{Exit, Failure};
use crate::output::{Output, column, say};

#[derive(Args)]
pub struct Doctor {
    #[command(flatten)]
    settings: Settings,
    /// Waiting longer than this counts as a finding.
    #[arg(long, value_parser = crate::cli::span, default_value = "15m")]
    old: ff_api::Span,
    /// Mend what can be mended without losing anything: whatever is overdue is done.
    #[arg(long)]
    repair: bool,
}

/// A clock that is further away than this from the store's confuses people.
const CLOCK: Duration = Duration::from_secs(2);
/// What should have happened longer ago than this has been forgotten.
const LATE: Duration = Duration::from_secs(60);
const SLOW: Duration = Duration::from_millis(250);

impl Doctor {
    pub async fn run(self, output: Output) -> Result<(), Failure> {
        let config = self.settings.load()?;
        // Opening checks the schema, the settings of the server and whether the file can be
        // written; what it finds wrong it says.
        let backend = ff_server::open(&config).await.map_err(|error| failed(&error))?;
        let findings = self.examine(&*backend.engine()).await;
        backend.close().await;
        let findings = findings.map_err(|error| failed(&error))?;
        let bad = findings.iter().filter(|finding| finding["ok"] == false).count();
        let columns = [column("CHECK", "check"), column("OK", "ok"), column("FOUND", "found")];
        output.list(&json!({ "checks": findings }), "checks", &columns)?;
        match bad {
            0 => Ok(()),
            _ => Err(Failure::new(Exit::Failure, format!("{bad} checks found something"))
                .hint("`flowfabric doctor --repair` mends what can be mended safely")),
        }
    }

    /// What is overdue is mended by the sweeper, which only does what was to be done anyway.
    async fn examine(&self, backend: &dyn EngineBackend) -> Result<Vec<Value>, EngineError> {
        if self.repair {
            let swept = backend.engine().sweep().await?;
            say(&format!("{swept} things were overdue and are done"));
        }
        self.look(backend).await
    }

    async fn look(&self, backend: &dyn EngineBackend) -> Result<Vec<Value>, EngineError> {
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

        findings.push(overdue(backend, store.now()).await?);
        findings.push(leases(backend, store.now()).await?);
        findings.push(counters(backend, active).await?);

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
    ) -> Result<Value, EngineError> {
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

/// Timers that should have fired: nobody sweeps this store.
async fn overdue(backend: &dyn EngineBackend, now: TimestampMs) -> Result<Value, EngineError> {
    let due = backend.engine().query(Query::NextDue(None)).await?.next_due;
    let late = due.map_or(Duration::ZERO, |due| now.since(due));
    Ok(match late.is_zero() {
        true => finding("timers", true, "none is late"),
        false => finding("timers", late <= LATE, &format!("{} s late", late.as_secs())),
    })
}

/// Leases that ended and that nobody has taken back.
async fn leases(backend: &dyn EngineBackend, now: TimestampMs) -> Result<Value, EngineError> {
    let args = ListExecutionsArgs {
        states: vec![PublicState::Active],
        order: ListOrder::OldestFirst,
        limit: limits::PAGE,
        ..ListExecutionsArgs::default()
    };
    let mut stale = 0;
    for one in backend.list_executions(args).await?.executions {
        let lease = backend.describe_execution(&one.execution_id).await?;
        let lease = lease.and_then(|snapshot| snapshot.lease);
        stale += usize::from(lease.is_some_and(|lease| now.since(lease.expires_at) > LATE));
    }
    Ok(finding("leases", stale == 0, &format!("{stale} expired and still held")))
}

/// Counters of limits that hold more than there is to be held.
async fn counters(backend: &dyn EngineBackend, active: u64) -> Result<Value, EngineError> {
    let (mut stuck, mut namespaces) = (Vec::new(), vec![Namespace::default()]);
    namespaces.extend(backend.counts().await?.into_iter().map(|lane| lane.namespace));
    namespaces.sort();
    namespaces.dedup();
    for namespace in &namespaces {
        for quota in backend.list_quotas(namespace, None, limits::PAGE).await? {
            let quota = backend.get_quota(namespace, &quota.quota_id).await?;
            let held: u64 = quota.usage.iter().map(|usage| usage.in_use).sum();
            if held > active {
                stuck.push(format!("quota {} holds {held}", quota.quota.quota_id.as_str()));
            }
        }
        if active == 0 && !namespace.as_str().is_empty() {
            for budget in backend.list_budgets(namespace, None, limits::PAGE).await? {
                let held: u64 = budget.dimensions.values().map(|usage| usage.reserved).sum();
                if held > 0 {
                    stuck.push(format!("budget {} holds {held}", budget.budget_id.as_str()));
                }
            }
        }
    }
    let words = if stuck.is_empty() { "none is stuck".to_owned() } else { stuck.join(", ") };
    Ok(finding("counters", stuck.is_empty(), &format!("{words}; {active} are active")))
}

fn finding(check: &str, ok: bool, found: &str) -> Value {
    json!({ "check": check, "ok": ok, "found": found })
}
