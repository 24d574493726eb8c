//! `flowfabric doctor`: whether a store is fit for work, and what stands in its way. A server is
//! asked by another file.

use std::time::{Duration, Instant};

use clap::Args;
use ff_core::contracts::{
    Drift, FlowStatus, ListExecutionsArgs, ListFlowsArgs, ListOrder, MissingTimer, UnreadPolicy,
};
use ff_core::engine_backend::{CounterOperations, EngineBackend, FlowOperations, TimerOperations};
use ff_core::engine_error::EngineError;
use ff_core::limits;
use ff_core::state::{LaneState, PublicState};
use ff_core::store::Query;
use ff_core::types::TimestampMs;
use serde_json::{Value, json};

use super::serve::{Settings, failed};
use super::{Session, doctor_server};
use crate::cli::Server;
use crate::failure::{Exit, Failure};
use crate::output::{Output, column, say};
use crate::progress::Progress;

#[derive(Args)]
pub struct Doctor {
    #[command(flatten)]
    settings: Settings,
    /// Waiting longer than this counts as a finding.
    #[arg(long, value_parser = crate::cli::span, default_value = "15m")]
    old: ff_api::Span,
    /// Mend what can be mended without losing anything: missing timers are armed again, whatever is
    /// overdue is done, and counters that are wrong are counted again.
    #[arg(long)]
    repair: bool,
}

/// A clock that is further away than this from the store's confuses people.
const CLOCK: Duration = Duration::from_secs(2);
/// What should have happened longer ago than this has been forgotten.
const LATE: Duration = Duration::from_secs(60);
pub const SLOW: Duration = Duration::from_millis(250);
/// How many counters that are wrong are told one by one.
const TOLD: usize = 5;

impl Doctor {
    pub async fn run(self, output: Output) -> Result<(), Failure> {
        let config = self.settings.load()?;
        // Opening checks the schema, the settings of the server and whether the file can be
        // written; what it finds wrong it says. Nothing is created.
        let backend = ff_server::open_existing(&config).await.map_err(|error| {
            if error.is_missing() {
                return Failure::new(Exit::NotFound, error.to_string()).hint(
                    "name a store with --data or --backend, or a server with --url or FF_URL",
                );
            }
            failed(&error)
        })?;
        let findings = self.examine(&*backend.engine()).await;
        backend.close().await;
        let findings = findings.map_err(|error| failed(&error))?;
        report(output, &findings, self.repair)
    }

    /// Whether it looks at a server: one is named, and no store is.
    pub fn asks_server(&self, server: &Server) -> bool {
        server.url.is_some() && self.settings.data.is_none() && self.settings.backend.is_none()
    }

    /// Looks at a server.
    pub async fn ask(&self, session: &Session) -> Result<(), Failure> {
        if self.repair {
            return Err(Failure::usage("--repair works on a store, not through a server")
                .hint("stop the server, then say which store with --data or --backend"));
        }
        report(session.output, &doctor_server::look(session, self.old.0).await?, false)
    }

    /// What is overdue is mended by the sweeper, which only does what was to be done anyway, and
    /// counters by counting again what they count.
    async fn examine(&self, backend: &dyn EngineBackend) -> Result<Vec<Value>, EngineError> {
        if self.repair {
            self.mend(backend).await?;
        }
        self.look(backend).await
    }

    async fn mend(&self, backend: &dyn EngineBackend) -> Result<(), EngineError> {
        let progress = Progress::spinner("looking for missing timers");
        let armed = progress.spin(backend.check_timers(true)).await?.missing;
        drop(progress);
        for timer in &armed {
            say(&format!("armed again: {}", missing(timer)));
        }
        let progress = Progress::spinner("doing what is overdue");
        let swept = progress.spin(backend.engine().sweep()).await?;
        drop(progress);
        say(&format!("{swept} things were overdue and are done"));
        let mended = recount(backend, true).await?.drifts;
        for drift in &mended {
            say(&format!("mended: {}", told(drift)));
        }
        // Whoever waited for them goes on.
        backend.engine().sweep().await?;
        Ok(())
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
        findings.extend(waits(backend).await?);
        findings.push(leases(backend, store.now()).await?);
        findings.push(counters(backend).await?);

        let lanes = backend.list_lanes().await?;
        let paused = lanes.iter().filter(|lane| lane.state == LaneState::Paused);
        let paused: Vec<_> = paused.map(|lane| lane.lane_id.as_str()).collect();
        findings.push(paused_lanes(&paused));
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

/// What waits for a time and has no timer, and policies that have no effect in part.
async fn waits(backend: &dyn EngineBackend) -> Result<[Value; 2], EngineError> {
    let progress = Progress::spinner("looking for missing timers");
    let check = progress.spin(backend.check_timers(false)).await?;
    let words = match check.missing.len() {
        0 => format!("{} wait for a time, and each has a timer", check.waits),
        count => {
            let told: Vec<_> = check.missing.iter().take(TOLD).map(missing).collect();
            format!("{count} would wait for ever: {}", told.join("; "))
        }
    };
    let waits = finding("waits", check.missing.is_empty(), &words);
    let words = match check.policies.len() {
        0 => "all can be read".to_owned(),
        count => {
            let unread = |policy: &UnreadPolicy| {
                format!("{} of {}", policy.parts.join(", "), policy.execution_id)
            };
            let told: Vec<_> = check.policies.iter().take(TOLD).map(unread).collect();
            format!("{count} have parts that have no effect: {}", told.join("; "))
        }
    };
    Ok([waits, finding("policies", check.policies.is_empty(), &words)])
}

fn missing(timer: &MissingTimer) -> String {
    let MissingTimer { kind, subject, due_at } = timer;
    format!("the {kind} timer of {subject}, due at {due_at}")
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

/// Counters that do not say how many there are.
async fn counters(backend: &dyn EngineBackend) -> Result<Value, EngineError> {
    let Recount { drifts, flows, left_out } = recount(backend, false).await?;
    let mut words = match drifts.len() {
        0 => format!("all are right, those of {flows} open flows too"),
        wrong => {
            let told: Vec<_> = drifts.iter().take(TOLD).map(told).collect();
            format!("{wrong} are wrong: {}", told.join("; "))
        }
    };
    if left_out > 0 {
        words += &format!("; {left_out} flows are too large or too busy to be counted");
    }
    Ok(finding("counters", drifts.is_empty(), &words))
}

fn told(drift: &Drift) -> String {
    let Drift { subject, counter, stored, counted } = drift;
    format!("{counter} of {subject} says {stored} and is {counted}")
}

struct Recount {
    drifts: Vec<Drift>,
    /// How many flows were counted, and how many could not be.
    flows: usize,
    left_out: usize,
}

/// Counts what limits and open flows have counters for, and mends them if asked to. A flow that has
/// ended waits for no counter.
async fn recount(backend: &dyn EngineBackend, mend: bool) -> Result<Recount, EngineError> {
    let progress = Progress::spinner("counting what limits and flows have counters for");
    let drifts = progress.spin(backend.recount_limits(mend)).await?;
    let mut recount = Recount { drifts, flows: 0, left_out: 0 };
    let mut args = ListFlowsArgs {
        statuses: vec![FlowStatus::Open, FlowStatus::Running, FlowStatus::Blocked],
        limit: limits::PAGE,
        ..ListFlowsArgs::default()
    };
    loop {
        let page = backend.list_flows(args.clone()).await?;
        for flow in page.flows {
            match progress.spin(backend.recount_flow(&flow.flow_id, mend)).await {
                Ok(drifts) => {
                    recount.flows += 1;
                    recount.drifts.extend(drifts);
                }
                // It has been forgotten since it was listed.
                Err(EngineError::NotFound { .. }) => {}
                Err(EngineError::Contention(_) | EngineError::Validation { .. }) => {
                    recount.left_out += 1;
                }
                Err(error) => return Err(error),
            }
        }
        args.cursor = page.next_cursor;
        if args.cursor.is_none() {
            return Ok(recount);
        }
    }
}

fn report(output: Output, findings: &[Value], repaired: bool) -> Result<(), Failure> {
    let bad = findings.iter().filter(|finding| finding["ok"] == false).count();
    let columns = [column("CHECK", "check"), column("OK", "ok"), column("FOUND", "found")];
    output.list(&json!({ "checks": findings }), "checks", &columns)?;
    let hint = if repaired {
        "what is left needs a decision: see what each check found"
    } else {
        "`flowfabric doctor --repair` mends what can be mended safely"
    };
    match bad {
        0 => Ok(()),
        _ => Err(Failure::new(Exit::Failure, format!("{bad} checks found something")).hint(hint)),
    }
}

pub fn paused_lanes(names: &[&str]) -> Value {
    let told = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    finding("paused lanes", names.is_empty(), &told)
}

pub fn finding(check: &str, ok: bool, found: &str) -> Value {
    json!({ "check": check, "ok": ok, "found": found })
}
