//! Limits in a run. Most runs have some, and after every commit their books are compared with the
//! work that is in hand.

use std::collections::BTreeMap;

use ff_core::contracts::{
    Amounts, BreachAction, BudgetScope, DimensionLimits, EventType, PutBudgetArgs, PutQuotaArgs,
    QuotaKey, RateLimit,
};
use ff_core::operations::Operation;
use ff_core::operations::limit::{DeleteLimit, PutBudget, PutQuota};
use ff_core::rows::{
    Account, AnyRow, ExecutionRow, LimitKey, LimitKind, LimitStateRow, LimitUsageRow, LimitWaitRow,
    Record, Standing, limit_id,
};
use ff_core::state::LifecyclePhase;
use ff_core::store::memory::Tables;
use ff_core::store::{Batch, Job};
use ff_core::types::{BudgetId, LaneId, Namespace, QuotaId};
use tokio::sync::oneshot;

use super::message::{Answer, NAMESPACE, Verb};
use super::{Broken, Checked, Simulation, broken};

/// The one budget of a run, and its one dimension.
pub(super) const BUDGET: &str = "budget";
pub(super) const DIMENSION: &str = "units";
/// The one quota that changes, and the lane that it is on.
const CAP: &str = "cap";
const CAPPED: &str = "red";

/// What holds in a run.
#[derive(Debug, Default)]
pub(super) struct Declared {
    cap: Bound,
    /// Who runs in the capped lane without a permit, as they may who were claimed without a cap.
    free: Bound,
    rate: Option<RateLimit>,
    hard: Bound,
    pub budget: Option<PutBudgetArgs>,
}

/// A limit that may change while work is in hand.
#[derive(Debug, Default)]
struct Bound {
    limit: Option<u64>,
    /// What was taken before a change and has not been given back. It only gets less.
    old: u64,
}

impl Bound {
    fn change(&mut self, limit: Option<u64>) {
        self.old = self.old.max(self.limit.unwrap_or(u64::MAX));
        self.limit = limit;
    }

    /// So much is taken now: whether that may be.
    fn settle(&mut self, taken: u64) -> bool {
        let most = self.limit.map_or(u64::MAX, |limit| limit.max(self.old));
        self.old = self.old.min(taken);
        taken <= most
    }
}

pub(super) fn put_cap(cap: u32) -> PutQuota {
    let args = PutQuotaArgs {
        quota_id: QuotaId::new(CAP),
        lane_id: Some(LaneId::new(CAPPED)),
        key: QuotaKey::Lane,
        concurrency: Some(cap),
        ..PutQuotaArgs::default()
    };
    PutQuota { args }
}

pub(super) fn drop_cap() -> DeleteLimit {
    DeleteLimit { kind: LimitKind::Quota, limit: cap_key() }
}

fn cap_key() -> LimitKey {
    let namespace = PutQuotaArgs::default().namespace;
    LimitKey { id: limit_id(LimitKind::Quota, namespace.as_str(), CAP) }
}

impl Simulation {
    /// Draws the limits of the run; some runs have none.
    pub(super) fn declare_limits(&mut self) {
        if self.rng.u32(0..3) == 0 {
            return;
        }
        if self.rng.bool() {
            let cap = self.rng.u32(1..4);
            (self.declared.cap.limit, self.declared.free.limit) = (Some(u64::from(cap)), Some(0));
            self.declare(put_cap(cap));
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
        self.declared.hard.limit = Some(hard);
        let budget = self.draw_budget(hard);
        self.declared.budget = Some(budget.clone());
        self.declare(PutBudget { args: budget, flow: None });
    }

    /// Somebody changes what was declared, if there is anything.
    pub(super) fn draw_limit(&mut self) -> Option<Verb> {
        if self.rng.bool() {
            self.declared.budget.as_ref()?;
            let hard = self.rng.u64(20..60);
            return Some(Verb::PutBudget(Box::new(self.draw_budget(hard))));
        }
        // Runs that began without one, too.
        let cap = (self.rng.u32(0..4) > 0).then(|| self.rng.u32(1..4));
        Some(Verb::PutCap(cap))
    }

    /// What was committed holds from then on.
    pub(super) fn note_limits(&mut self, answers: &[(usize, Answer)]) {
        for (op, _) in answers.iter().filter(|(_, answer)| answer.is_ok()) {
            match &self.history.ops[*op].verb {
                Verb::PutCap(cap) => {
                    self.declared.cap.change(cap.map(u64::from));
                    self.declared.free.change(cap.map(|_| 0));
                }
                Verb::PutBudget(budget) => {
                    self.declared.hard.change(budget.dimensions[DIMENSION].hard);
                    self.declared.budget = Some((**budget).clone());
                }
                _ => {}
            }
        }
    }

    fn draw_budget(&mut self, hard: u64) -> PutBudgetArgs {
        let limits = DimensionLimits { hard: Some(hard), soft: Some(hard / 2) };
        PutBudgetArgs {
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
        }
    }

    pub(super) fn declare(&mut self, operation: impl Operation) {
        let (reply, _) = oneshot::channel();
        let mut batch = Batch::new(vec![Job::new(operation, None, reply)]);
        self.store.transact_now(&mut batch, true).expect("an empty store takes what is declared");
    }

    /// After a commit: nothing is overspent, and what limits count is what is there.
    pub(super) fn check_limits(&mut self) -> Checked {
        let taken = self.store.read(check_books)?;
        let Declared { cap, free, hard, .. } = &mut self.declared;
        if !cap.settle(taken.permits) || !free.settle(taken.free) {
            let what = format!("{taken:?}, and the cap is {cap:?}, {free:?}");
            return Err(broken("I41 never above the cap", None, what));
        }
        if !hard.settle(taken.units) {
            let what = format!("{taken:?}, and the budget is {hard:?}");
            return Err(broken("I39 a hard limit is never exceeded", None, what));
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

/// What is in hand at one moment.
#[derive(Debug, Default)]
struct Taken {
    /// Of the cap.
    permits: u64,
    /// Who runs in its lane without one.
    free: u64,
    /// Used and reserved of the budget.
    units: u64,
}

/// Whether limits have counted what is there, and how much that is.
fn check_books(tables: &Tables) -> Result<Taken, Broken> {
    let usage: Vec<LimitUsageRow> = records(tables);
    let waits: Vec<LimitWaitRow> = records(tables);
    let running = |row: &&ExecutionRow| row.phase == LifecyclePhase::Active && !row.is_finished();
    let running: Vec<&ExecutionRow> = tables.executions.values().filter(running).collect();
    let mut taken = Taken::default();
    for state in records::<LimitStateRow>(tables) {
        let waiting = waits.iter().filter(|wait| wait.key.state == state.key.id).count();
        if waiting as u64 != state.waiting {
            let what = format!("{waiting} executions wait for {state:?}");
            return Err(broken("I41 who waits is counted", None, what));
        }
        match &state.standing.0 {
            Standing::Budget(account) => taken.units += check_account(account, &usage)?,
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
                if state.limit == cap_key().id {
                    taken.permits += held;
                }
            }
        }
    }
    let red = running.iter().filter(|row| *row.lane == *CAPPED).count() as u64;
    taken.free = red.saturating_sub(taken.permits);
    Ok(taken)
}

/// What is taken of a budget, if its books balance.
fn check_account(account: &Account, usage: &[LimitUsageRow]) -> Result<u64, Broken> {
    let (used, reserved) = (account.used(DIMENSION), account.reserved(DIMENSION));
    let (mut spent, mut held) = (0, 0);
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
    Ok(used + reserved)
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
