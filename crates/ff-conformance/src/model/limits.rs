//! Budgets and quotas in a sequence: small ones, so that claims and reports meet them.

use std::collections::BTreeMap;

use ff_core::backend::{CapabilitySet, ClaimPolicy, Handle};
use ff_core::contracts::{
    Amounts, ApproveBudgetArgs, BreachAction, BudgetScope, DimensionLimits, PutBudgetArgs,
    PutQuotaArgs, QuotaKey, RateLimit, ReportUsageArgs, Submission,
};
use ff_core::engine_backend::{EngineBackend, LimitOperations};
use ff_core::types::{
    BudgetId, ExecutionId, LaneId, Namespace, QuotaId, WorkerId, WorkerInstanceId,
};

use super::generate::Sequence;
use super::step::text;

/// A call about limits, and the namespace that they are in.
#[derive(Clone, Debug)]
pub struct LimitStep {
    namespace: Namespace,
    call: LimitCall,
}

#[derive(Clone, Debug)]
enum LimitCall {
    PutBudget(Box<PutBudgetArgs>),
    GetBudget,
    ListBudgets,
    ResetBudget,
    ReleaseBudget(ExecutionId),
    ApproveBudget(ApproveBudgetArgs),
    DeleteBudget,
    Report(Handle, ReportUsageArgs),
    PutQuota(Box<PutQuotaArgs>),
    GetQuota,
    ListQuotas,
    DeleteQuota,
}

pub(super) const BUDGET: &str = "budget";
const QUOTA: &str = "quota";
const DIMENSION: &str = "units";
const OTHER: &str = "cents";

/// An engine whose claims have met a limit looks further from then on, so both of them have met one
/// before they are compared.
pub(super) async fn meet_limits(on: &dyn EngineBackend) {
    let (namespace, quota_id) = (Namespace::new("model"), QuotaId::new(QUOTA));
    let args = PutQuotaArgs {
        namespace: namespace.clone(),
        quota_id: quota_id.clone(),
        concurrency: Some(1),
        ..PutQuotaArgs::default()
    };
    on.put_quota(args).await.expect("a quota like others");
    let work = Submission::new("model", "met").namespace("model");
    on.submit(vec![work]).await.expect("work like other work");
    let worker = (WorkerId::new("model"), WorkerInstanceId::new("model"));
    let policy = ClaimPolicy::new(worker.0, worker.1, 1_000, None);
    let lane = LaneId::new("model");
    let handle = on.claim(&lane, &CapabilitySet::default(), policy).await;
    let handle = handle.expect("a claim like others").expect("there is one");
    on.complete(&handle, None).await.expect("it is held");
    on.delete_quota(&namespace, &quota_id).await.expect("it is there");
}

fn units(amount: u64) -> Amounts {
    BTreeMap::from([(DIMENSION.to_owned(), amount)])
}

impl LimitStep {
    pub fn handle_mut(&mut self) -> Option<&mut Handle> {
        match &mut self.call {
            LimitCall::Report(handle, _) => Some(handle),
            _ => None,
        }
    }

    pub async fn run(&self, on: &dyn EngineBackend) -> String {
        let (own, budget, quota) = (&self.namespace, BudgetId::new(BUDGET), QuotaId::new(QUOTA));
        match self.call.clone() {
            LimitCall::PutBudget(args) => text(on, &on.put_budget(*args).await),
            LimitCall::GetBudget => text(on, &on.get_budget(own, &budget).await),
            LimitCall::ListBudgets => text(on, &on.list_budgets(own, None, 10).await),
            LimitCall::ResetBudget => text(on, &on.reset_budget(own, &budget).await),
            LimitCall::ReleaseBudget(id) => text(on, &on.release_budget(own, &budget, &id).await),
            LimitCall::ApproveBudget(args) => text(on, &on.approve_budget(args).await),
            LimitCall::DeleteBudget => text(on, &on.delete_budget(own, &budget).await),
            LimitCall::Report(handle, args) => text(on, &on.report_usage(&handle, args).await),
            LimitCall::PutQuota(args) => text(on, &on.put_quota(*args).await),
            LimitCall::GetQuota => text(on, &on.get_quota(own, &quota).await),
            LimitCall::ListQuotas => text(on, &on.list_quotas(own, None, 10).await),
            LimitCall::DeleteQuota => text(on, &on.delete_quota(own, &quota).await),
        }
    }
}

impl Sequence {
    fn to_limits(&self, call: LimitCall) -> LimitStep {
        LimitStep { namespace: self.namespace(), call }
    }

    pub(super) fn limit_step(&mut self, id: ExecutionId) -> LimitStep {
        let call = match self.rng().u32(..14) {
            0..3 => LimitCall::PutBudget(Box::new(self.budget())),
            3 => LimitCall::ResetBudget,
            4 => LimitCall::ReleaseBudget(id),
            5 => {
                let raise = if self.rng().bool() { units(5) } else { Amounts::new() };
                LimitCall::ApproveBudget(ApproveBudgetArgs {
                    execution_id: id,
                    raise,
                    by: "model".into(),
                })
            }
            // Forgotten more often than the rest, so that work goes on.
            6..8 => LimitCall::DeleteBudget,
            8..10 => LimitCall::PutQuota(Box::new(self.quota())),
            10..12 => LimitCall::DeleteQuota,
            12 => LimitCall::GetQuota,
            _ => LimitCall::GetBudget,
        };
        self.to_limits(call)
    }

    pub(super) fn report(&mut self, handle: Handle) -> LimitStep {
        let args = ReportUsageArgs {
            budget_id: BudgetId::new(BUDGET),
            amounts: self.amounts(),
            dedup_key: self.some(60, |own| own.rng().u32(..3).to_string()),
        };
        self.to_limits(LimitCall::Report(handle, args))
    }

    /// Mostly of one dimension, which every budget has.
    pub(super) fn amounts(&mut self) -> Amounts {
        let mut amounts = units(self.rng().u64(1..6));
        amounts.extend(self.some(25, |own| (OTHER.to_owned(), own.rng().u64(..4))));
        amounts
    }

    fn budget(&mut self) -> PutBudgetArgs {
        let hard = self.rng().u64(3..25);
        let limits = DimensionLimits { hard: Some(hard), soft: self.some(50, |_| hard / 2) };
        let mut dimensions = BTreeMap::from([(DIMENSION.to_owned(), limits)]);
        let mut estimate = units(self.rng().u64(1..5));
        if self.rng().u32(..3) == 0 {
            let hard = self.some(80, |own| own.rng().u64(2..10));
            dimensions.insert(OTHER.to_owned(), DimensionLimits { hard, soft: None });
            estimate.extend(self.some(60, |own| (OTHER.to_owned(), own.rng().u64(..3))));
        }
        PutBudgetArgs {
            namespace: self.namespace(),
            budget_id: BudgetId::new(BUDGET),
            scope: match self.rng().u32(..6) {
                0 => BudgetScope::Named,
                1 => BudgetScope::Lane(self.any_lane()),
                2 => BudgetScope::Tag { name: "model.tag".into(), value: "1".into() },
                3 => BudgetScope::Flow(self.any_flow()),
                4 => BudgetScope::Execution(self.id()),
                _ => BudgetScope::Namespace,
            },
            dimensions,
            estimate,
            reset_period_ms: self.some(60, |own| [1_000, 60_000][own.rng().usize(..2)]),
            on_breach: match self.rng().u32(..3) {
                0 => BreachAction::Refuse,
                1 => BreachAction::Suspend,
                _ => BreachAction::CancelPending,
            },
        }
    }

    fn quota(&mut self) -> PutQuotaArgs {
        PutQuotaArgs {
            namespace: self.namespace(),
            quota_id: QuotaId::new(QUOTA),
            lane_id: self.some(50, Self::any_lane),
            key: match self.rng().u32(..5) {
                0 => QuotaKey::All,
                1 => QuotaKey::Lane,
                2 => QuotaKey::Kind,
                3 => QuotaKey::Namespace,
                _ => QuotaKey::Tag("model.tag".into()),
            },
            rate: self.some(50, |own| RateLimit {
                limit: own.rng().u32(1..4),
                window_ms: [1_000, 30_000][own.rng().usize(..2)],
            }),
            concurrency: self.some(60, |own| own.rng().u32(1..4)),
            fair: self.rng().u32(..3) == 0,
            weights: self
                .some(50, |own| {
                    let value = ["1", "kind", "created"][own.rng().usize(..3)];
                    BTreeMap::from([(value.to_owned(), own.rng().u32(1..5))])
                })
                .unwrap_or_default(),
            ..PutQuotaArgs::default()
        }
    }

    pub(super) async fn end_limits(&self, on: &dyn EngineBackend) {
        // Most sequences have none.
        let _ = on.delete_budget(&self.namespace(), &BudgetId::new(BUDGET)).await;
        let _ = on.delete_quota(&self.namespace(), &QuotaId::new(QUOTA)).await;
    }

    /// Reads that show all that there is of the sequence's limits.
    pub(super) fn every_limit(&self) -> Vec<LimitStep> {
        let calls = [LimitCall::GetBudget, LimitCall::ListBudgets, LimitCall::GetQuota];
        let mut steps: Vec<_> = calls.into_iter().map(|call| self.to_limits(call)).collect();
        steps.push(self.to_limits(LimitCall::ListQuotas));
        steps
    }
}
