//! One budget that is often at its limit: some of the work draws on it, and what was used comes
//! free again after a moment, so that nothing waits for ever.

use std::collections::BTreeMap;

use ff_core::contracts::{BudgetScope, DimensionLimits, PutBudgetArgs};
use ff_core::engine_backend::{EngineBackend, LimitOperations};
use ff_core::engine_error::EngineError;
use ff_core::types::{BudgetId, Namespace};

use crate::history::{Outcome, Standing};

pub const BUDGET: &str = "chaos";
const DIMENSION: &str = "units";
const HARD: u64 = 2;
const PERIOD_MS: u64 = 50;

/// Declares it, whoever comes first.
pub async fn declare(backend: &dyn EngineBackend) -> Result<(), EngineError> {
    let limits = DimensionLimits { hard: Some(HARD), soft: None };
    let args = PutBudgetArgs {
        namespace: Namespace::new("default"),
        budget_id: BudgetId::new(BUDGET),
        scope: BudgetScope::Named,
        dimensions: BTreeMap::from([(DIMENSION.to_owned(), limits)]),
        estimate: BTreeMap::from([(DIMENSION.to_owned(), 1)]),
        reset_period_ms: Some(PERIOD_MS),
        ..PutBudgetArgs::default()
    };
    backend.put_budget(args).await
}

pub async fn standing(backend: &dyn EngineBackend) -> Result<Outcome, EngineError> {
    let namespace = Namespace::new("default");
    let seen = backend.get_budget(&namespace, &BudgetId::new(BUDGET)).await?;
    let units = seen.dimensions.get(DIMENSION).copied().unwrap_or_default();
    let (used, reserved) = (units.used, units.reserved);
    Ok(Outcome::Budget(Standing { used, reserved, hard: units.hard.unwrap_or(u64::MAX) }))
}
