//! What the load is limited by: a budget that is often at its limit, and what was used of it comes
//! free again after a moment; a ledger that limits nothing and forgets nothing; and a quota.

use std::collections::BTreeMap;

use ff_core::backend::Handle;
use ff_core::contracts::{
    BudgetScope, BudgetSnapshot, DimensionLimits, PutBudgetArgs, PutQuotaArgs, QuotaSnapshot,
    RateLimit, ReportUsageArgs, UsageOutcome,
};
use ff_core::engine_backend::{EngineBackend, LimitOperations};
use ff_core::engine_error::EngineError;
use ff_core::types::{BudgetId, Namespace, QuotaId};

use crate::history::{Lease, Outcome, Standing};

pub const BUDGET: &str = "chaos";
pub const LEDGER: &str = "ledger";
pub const QUOTA: &str = "chaos";
/// The kind of work that the quota is about.
pub const METERED: &str = "metered";
/// At most so many claims of metered work within any so many milliseconds.
pub const RATE: RateLimit = RateLimit { limit: 12, window_ms: 200 };

const DIMENSION: &str = "units";
const HARD: u64 = 4;
const PERIOD_MS: u64 = 50;
const AT_ONCE: u32 = 3;

fn namespace() -> Namespace {
    Namespace::new("default")
}

/// What is declared: the ledger and the budget.
pub fn budgets() -> [PutBudgetArgs; 2] {
    let dimension = |hard| DimensionLimits { hard, soft: None };
    let ledger = PutBudgetArgs {
        namespace: namespace(),
        budget_id: BudgetId::new(LEDGER),
        scope: BudgetScope::Named,
        dimensions: BTreeMap::from([(DIMENSION.to_owned(), dimension(None))]),
        ..PutBudgetArgs::default()
    };
    let budget = PutBudgetArgs {
        budget_id: BudgetId::new(BUDGET),
        dimensions: BTreeMap::from([(DIMENSION.to_owned(), dimension(Some(HARD)))]),
        estimate: BTreeMap::from([(DIMENSION.to_owned(), 1)]),
        reset_period_ms: Some(PERIOD_MS),
        ..ledger.clone()
    };
    [ledger, budget]
}

/// Declares them, whoever comes first.
pub async fn declare(backend: &dyn EngineBackend) -> Result<(), EngineError> {
    for budget in budgets() {
        backend.put_budget(budget).await?;
    }
    backend.put_quota(metered()).await
}

/// The quota that is declared.
pub fn metered() -> PutQuotaArgs {
    PutQuotaArgs {
        namespace: namespace(),
        quota_id: QuotaId::new(QUOTA),
        execution_kind: Some(METERED.to_owned()),
        rate: Some(RATE),
        concurrency: Some(AT_ONCE),
        ..PutQuotaArgs::default()
    }
}

pub async fn budget(backend: &dyn EngineBackend, name: &str) -> Result<Standing, EngineError> {
    Ok(standing(&backend.get_budget(&namespace(), &BudgetId::new(name)).await?))
}

pub fn standing(seen: &BudgetSnapshot) -> Standing {
    let units = seen.dimensions.get(DIMENSION).copied().unwrap_or_default();
    let (used, reserved) = (units.used, units.reserved);
    Standing { used, reserved, hard: units.hard.unwrap_or(u64::MAX) }
}

/// Permits of a quota are held, never used up.
pub async fn quota(backend: &dyn EngineBackend) -> Result<Standing, EngineError> {
    Ok(permits(&backend.get_quota(&namespace(), &QuotaId::new(QUOTA)).await?))
}

pub fn permits(seen: &QuotaSnapshot) -> Standing {
    let reserved = seen.usage.iter().map(|usage| usage.in_use).sum();
    Standing { used: 0, reserved, hard: u64::from(AT_ONCE) }
}

/// The holder says what it has used of the ledger.
pub async fn report(
    backend: &dyn EngineBackend,
    lease: &Lease,
    key: &str,
    amount: u64,
) -> Result<Outcome, EngineError> {
    let args = usage(key, amount);
    Ok(counted(&backend.report_usage(&Handle::decode(&lease.handle)?, args).await?))
}

pub fn usage(key: &str, amount: u64) -> ReportUsageArgs {
    ReportUsageArgs {
        budget_id: BudgetId::new(LEDGER),
        amounts: BTreeMap::from([(DIMENSION.to_owned(), amount)]),
        dedup_key: Some(key.to_owned()),
    }
}

pub fn counted(outcome: &UsageOutcome) -> Outcome {
    match outcome {
        UsageOutcome::Applied | UsageOutcome::SoftBreach { .. } => Outcome::Done,
        UsageOutcome::AlreadyApplied | UsageOutcome::HardBreach { .. } => Outcome::Unchanged,
    }
}
