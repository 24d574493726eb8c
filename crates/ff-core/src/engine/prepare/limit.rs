//! Checks what callers say of budgets and quotas.

use super::{check_count, check_duration, check_tag_key, check_text};
use crate::contracts::{
    Amounts, BudgetScope, PutBudgetArgs, PutQuotaArgs, QuotaKey, RateLimit, ReportUsageArgs,
};
use crate::engine_error::EngineError;
use crate::limits;
use crate::types::Namespace;

/// The namespace that a caller means: its own, if it is confined to one.
pub(crate) fn namespace(
    scope: Option<&Namespace>,
    wanted: &Namespace,
) -> Result<Namespace, EngineError> {
    match scope {
        Some(scope) if wanted.as_str().is_empty() || scope == wanted => Ok(scope.clone()),
        Some(_) => Err(EngineError::invalid("the call names a foreign namespace")),
        None => Ok(wanted.clone()),
    }
}

/// Everything that is wrong with a budget before it is stored.
pub(crate) fn check_budget(args: &PutBudgetArgs) -> Result<(), EngineError> {
    args.budget_id.check()?;
    let everywhere = args.namespace.as_str().is_empty();
    if !everywhere {
        args.namespace.check()?;
    }
    let own =
        matches!(args.scope, BudgetScope::Named | BudgetScope::Execution(_) | BudgetScope::Flow(_));
    if everywhere && own {
        return Err(EngineError::invalid("a budget for one namespace must say for which one"));
    }
    match &args.scope {
        BudgetScope::Lane(lane) => lane.check()?,
        BudgetScope::Tag { name, value } => {
            check_tag_key(name)?;
            check_text("tag value", value, 0, limits::TAG_VALUE_BYTES)?;
        }
        BudgetScope::Named
        | BudgetScope::Execution(_)
        | BudgetScope::Flow(_)
        | BudgetScope::Namespace => {}
    }
    check_count("dimensions", args.dimensions.len(), limits::BUDGET_DIMENSIONS)?;
    for name in args.dimensions.keys() {
        check_text("dimension", name, 1, limits::DIMENSION_BYTES)?;
    }
    check_amounts(&args.estimate)?;
    if let Some(unknown) = args.estimate.keys().find(|name| !args.dimensions.contains_key(*name)) {
        let detail = format!("the estimate names dimension {unknown:?}, which the budget lacks");
        return Err(EngineError::invalid(detail));
    }
    if args.reset_period_ms == Some(0) {
        return Err(EngineError::invalid("a reset period of 0 ms would reset all the time"));
    }
    let period = args.reset_period_ms.map(std::time::Duration::from_millis);
    check_duration("the reset period", period)
}

/// Amounts by dimension, whatever they are for.
pub(crate) fn check_amounts(amounts: &Amounts) -> Result<(), EngineError> {
    let (count, max) = (amounts.len(), limits::BUDGET_DIMENSIONS);
    if count > max {
        return Err(EngineError::invalid(format!("{count} dimensions, the limit is {max}")));
    }
    for (name, amount) in amounts {
        check_text("dimension", name, 1, limits::DIMENSION_BYTES)?;
        if *amount > limits::AMOUNT_MAX {
            let max = limits::AMOUNT_MAX;
            let detail = format!("{amount} of dimension {name:?}, the limit is {max}");
            return Err(EngineError::invalid(detail));
        }
    }
    Ok(())
}

pub(crate) fn check_report(args: &ReportUsageArgs) -> Result<(), EngineError> {
    args.budget_id.check()?;
    check_count("dimensions", args.amounts.len(), limits::BUDGET_DIMENSIONS)?;
    check_amounts(&args.amounts)?;
    match &args.dedup_key {
        Some(key) => check_text("dedup key", key, 1, limits::IDEMPOTENCY_KEY_BYTES),
        None => Ok(()),
    }
}

/// Everything that is wrong with a quota before it is stored.
pub(crate) fn check_quota(args: &PutQuotaArgs) -> Result<(), EngineError> {
    args.quota_id.check()?;
    if !args.namespace.as_str().is_empty() {
        args.namespace.check()?;
    }
    if let Some(lane) = &args.lane_id {
        lane.check()?;
    }
    if let Some(kind) = &args.execution_kind {
        check_text("execution kind", kind, 1, limits::KIND_BYTES)?;
    }
    if let QuotaKey::Tag(name) = &args.key {
        check_tag_key(name)?;
    }
    if let Some(RateLimit { limit, window_ms }) = args.rate {
        check_count("claims per window", limit as usize, limits::RATE_MAX)?;
        let window = usize::try_from(window_ms).unwrap_or(usize::MAX);
        check_count("milliseconds of window", window, limits::RATE_WINDOW_MAX_MS)?;
    }
    if args.concurrency == Some(0) {
        let detail = "a concurrency of 0 would let nothing run; pause the lane instead";
        return Err(EngineError::invalid(detail));
    }
    let (count, max) = (args.weights.len(), limits::QUOTA_WEIGHTS);
    if count > max {
        return Err(EngineError::invalid(format!("{count} weights, the limit is {max}")));
    }
    for (value, weight) in &args.weights {
        check_text("key value", value, 0, limits::TAG_VALUE_BYTES)?;
        check_count("weight", *weight as usize, limits::WEIGHT_MAX)?;
    }
    Ok(())
}
