//! Limits in a run. Most runs have some, and after every commit their books are compared with the
//! work that is in hand.

use std::collections::BTreeMap;

use ff_core::contracts::{
    Amounts, BreachAction, BudgetScope, DimensionLimits, EventType, PutBudgetArgs, PutQuotaArgs,
    QuotaKey, RateLimit,
};
use ff_core::operations::Operation;
use ff_core::operations::limit::{PutBudget, PutQuota};
use ff_core::rows::{
    AnyRow, ExecutionRow, LimitStateRow, LimitUsageRow, LimitWaitRow, Record, Standing,
};
use ff_core::state::LifecyclePhase;
use ff_core::store::memory::Tables;
use ff_core::store::{Batch, Job};
use ff_core::types::{BudgetId, LaneId, Namespace, QuotaId};
use tokio::sync::oneshot;

use super::message::{Answer, NAMESPACE, Verb};
use super::{Checked, Simulation, broken};

/// The one budget of a run, and its one dimension.
pub(super) const BUDGET: &str = "budget";
pub(super) const DIMENSION: &str = "units";
/// The lane that a cap is on.
const CAPPED: &str = "red";

/// What holds in a run.
#[derive(Debug, Default)]
pub(super) struct Declared {
    cap: Option<u32>,
    rate: Option<RateLimit>,
    pub hard: Option<u64>,
}

impl Simulation {
    /// Draws the limits of the run; some runs have none.
    pub(super) fn declare_limits(&mut self) {
        if self.rng.u32(0..3) == 0 {
            return;
        }
        if self.rng.bool() {
            let cap = self.rng.u32(1..4);
            self.declared.cap = Some(cap);
            let quota = PutQuotaArgs {
                quota_id: QuotaId::new("cap"),
                lane_id: Some(LaneId::new(CAPPED)),
                key: QuotaKey::Lane,
                concurrency: Some(cap),
                ..PutQuotaArgs::default()
            };
            self.declare(PutQuota { args: quota });
        }
        if self.rng.bool() {
            let rate = RateLimit { limit: self.rng.u32(2..6), window_ms: self.rng.u64(200..1_500) };
            self.declared.rate = Some(rate);
            let quota_id = QuotaId::new("rate");
            let quota = PutQuotaArgs { quota_id, rate: Some(rate), ..PutQuotaArgs::default() };
            self.declare(PutQuota { args: quota });
        }
        if self.rng.bool() {
            self.declare_budget();
        }
    }

    fn declare_budget(&mut self) {
        let hard = self.rng.u64(20..60);
        self.declared.hard = Some(hard);
        let limits = DimensionLimits { hard: Some(hard), soft: Some(hard / 2) };
        let budget = PutBudgetArgs {
            namespace: Namespace::new(NAMESPACE),
            budget_id: BudgetId::new(BUDGET),
            scope: BudgetScope::Namespace,
            dimensions: BTreeMap::from([(DIMENSION.to_owned(), limits)]),
            estimate: Amounts::from([(DIMENSION.to_owned(), self.rng.u64(1..20))]),
            reset_period_ms: Some(self.rng.u64(500..3_000)),
            on_breach: match self.rng.u32(0..5) {
                0 => BreachAction::CancelPending,
                _ => BreachAction::Refuse,
            },
        };
        self.declare(PutBudget { args: budget, flow: None });
    }

    pub(super) fn declare(&mut self, operation: impl Operation) {
        let (reply, _) = oneshot::channel();
        let mut batch = Batch::new(vec![Job::new(operation, None, reply)]);
        self.store.transact_now(&mut batch, true).expect("an empty store takes what is declared");
    }

    /// After a commit: nothing is overspent, and what limits count is what is there.
    pub(super) fn check_limits(&self) -> Checked {
        self.store.read(|tables| {
            let usage: Vec<LimitUsageRow> = records(tables);
            let waits: Vec<LimitWaitRow> = records(tables);
            let running =
                |row: &&ExecutionRow| row.phase == LifecyclePhase::Active && !row.is_finished();
            let running: Vec<&ExecutionRow> = tables.executions.values().filter(running).collect();
            for state in records::<LimitStateRow>(tables) {
                let waiting = waits.iter().filter(|wait| wait.key.state == state.key.id).count();
                if waiting as u64 != state.waiting {
                    let what = format!("{waiting} executions wait for {state:?}");
                    return Err(broken("I41 who waits is counted", None, what));
                }
                match &state.standing.0 {
                    Standing::Budget(account) => {
                        let hard = self.declared.hard.unwrap_or(u64::MAX);
                        self.check_account(account, hard, &usage)?;
                    }
                    Standing::Quota(permits) => {
                        let holds = |row: &&&ExecutionRow| {
                            let holds = row.limit_holds().unwrap_or_default();
                            holds.permits.contains(&state.key.id)
                        };
                        let held = running.iter().filter(holds).count() as u64;
                        if held != permits.in_use {
                            let what = format!("{held} leases hold a permit of {state:?}");
                            return Err(broken("I41 permits hang on leases", None, what));
                        }
                    }
                }
            }
            let red = running.iter().filter(|row| *row.lane == *CAPPED).count();
            match self.declared.cap {
                Some(cap) if red > cap as usize => {
                    let what = format!("{red} are running and the cap is {cap}");
                    Err(broken("I41 never above the cap", None, what))
                }
                _ => Ok(()),
            }
        })
    }

    fn check_account(
        &self,
        account: &ff_core::rows::Account,
        hard: u64,
        usage: &[LimitUsageRow],
    ) -> Checked {
        let (used, reserved) = (account.used(DIMENSION), account.reserved(DIMENSION));
        if used + reserved > hard {
            let what = format!("{used} used and {reserved} reserved of {hard}");
            return Err(broken("I39 a hard limit is never exceeded", None, what));
        }
        let mut spent = 0;
        let mut held = 0;
        for share in usage.iter().map(|row| &row.share.0) {
            held += share.reserved.get(DIMENSION).copied().unwrap_or(0);
            if share.period == account.period {
                spent += share.spent.get(DIMENSION).copied().unwrap_or(0);
            }
        }
        if (spent, held) != (used, reserved) {
            let what = format!("{used} used, {reserved} reserved, but {spent} spent, {held} held");
            return Err(broken("I40 the books balance", None, what));
        }
        Ok(())
    }

    /// At the end: no stretch of time saw more claims than its window allows, and no report
    /// counted twice.
    pub(super) fn check_rates(&self, tables: &Tables) -> Checked {
        check_nothing_is_held(tables)?;
        for op in &self.history.ops {
            let counted = op.committed.iter().filter(|(answer, _)| matches!(answer, Answer::Done));
            if matches!(op.verb, Verb::Report { .. }) && counted.count() > 1 {
                let what = format!("{:?} was counted twice", op.verb);
                return Err(broken("I40 a report counts once", None, what));
            }
        }
        let Some(rate) = self.declared.rate else { return Ok(()) };
        // By a clock that does not go back, which is how windows see it.
        let mut last = i64::MIN;
        let mut times = Vec::new();
        for event in tables.events.values().filter(|e| e.event_type == EventType::Claimed) {
            last = last.max(event.at.0);
            times.push(last);
        }
        for (at, first) in times.iter().enumerate() {
            let end = first.saturating_add_unsigned(rate.window_ms);
            let inside = times[at..].iter().take_while(|time| **time < end).count();
            if inside > rate.limit as usize {
                let what = format!("{inside} claims from {first} on, {rate:?}");
                return Err(broken("I42 a window is never exceeded", None, what));
            }
        }
        Ok(())
    }
}

/// Once everything has ended, no permit is taken and nothing is reserved.
fn check_nothing_is_held(tables: &Tables) -> Checked {
    for state in records::<LimitStateRow>(tables) {
        let held = match &state.standing.0 {
            Standing::Budget(account) => account.reserved(DIMENSION),
            Standing::Quota(permits) => permits.in_use,
        };
        if held > 0 {
            let what = format!("everything has ended and {held} are held of {state:?}");
            return Err(broken("I41 nothing leaks", None, what));
        }
    }
    let holds = |row: &&LimitUsageRow| row.share.0.reserved.values().any(|amount| *amount > 0);
    match records::<LimitUsageRow>(tables).iter().find(holds) {
        Some(row) => {
            let what = format!("everything has ended and this is reserved: {row:?}");
            Err(broken("I41 nothing leaks", row.key.execution, what))
        }
        None => Ok(()),
    }
}

pub(super) fn records<R: Record>(tables: &Tables) -> Vec<R> {
    let decode = |row: &AnyRow| row.decode::<R>().expect("what was written can be read");
    tables.records.values().filter_map(decode).collect()
}
