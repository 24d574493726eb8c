//! Budgets and quotas as users see them.

use std::collections::BTreeSet;

use crate::contracts::{BudgetSnapshot, DimensionUsage, PutBudgetArgs, QuotaSnapshot, QuotaUsage};
use crate::rows::{Account, LimitRow, LimitStateRow, Permits, Standing};
use crate::types::TimestampMs;

/// A budget as it stands at this instant, also if its period has ended and nobody has looked.
pub fn budget(
    limit: &LimitRow,
    state: Option<&LimitStateRow>,
    now: TimestampMs,
) -> Option<BudgetSnapshot> {
    let budget = limit.budget()?;
    let account = account(budget, state, now)?;
    let dimensions = budget.dimensions.iter().map(|(name, limits)| {
        let (used, reserved) = (account.used(name), account.reserved(name));
        let usage = DimensionUsage { used, reserved, hard: limits.hard, soft: limits.soft };
        (name.clone(), usage)
    });
    Some(BudgetSnapshot {
        namespace: budget.namespace.clone(),
        budget_id: budget.budget_id.clone(),
        scope: budget.scope.clone(),
        dimensions: dimensions.collect(),
        estimate: budget.estimate.clone(),
        reset_period_ms: budget.reset_period_ms,
        next_reset_at: account.next_reset(budget.reset_period_ms),
        on_breach: budget.on_breach,
        hard_breaches: account.hard_breaches,
        soft_breaches: account.soft_breaches,
        last_breach_at: account.last_breach_at,
        last_breach_dimension: account.last_breach_dimension,
    })
}

pub(super) fn account(
    budget: &PutBudgetArgs,
    state: Option<&LimitStateRow>,
    now: TimestampMs,
) -> Option<Account> {
    let mut account = match &state?.standing.0 {
        Standing::Budget(account) => account.clone(),
        Standing::Quota(_) => return None,
    };
    account.roll(budget.reset_period_ms, now);
    Some(account)
}

pub fn quota(
    limit: &LimitRow,
    states: &[LimitStateRow],
    usage_truncated: bool,
    now: TimestampMs,
) -> Option<QuotaSnapshot> {
    let quota = limit.quota()?;
    // The row of the quota itself only says how far the line of turns has come. Keys that wait and
    // keys that do not are two looks: what has moved from one to the other is seen by both.
    let mut seen = BTreeSet::from([limit.key.id]);
    let keys = states.iter().filter(|state| seen.insert(state.key.id));
    let mut usage: Vec<QuotaUsage> = keys
        .map(|state| {
            let permits = permits(state);
            let next_at = quota.rate.and_then(|rate| permits.window.next_at(rate, now));
            QuotaUsage {
                key: state.value.to_string(),
                in_use: permits.in_use,
                in_window: quota.rate.map_or(0, |rate| permits.window.count(rate, now)),
                next_at: next_at.filter(|at| *at > now),
                waiting: state.is_waiting,
            }
        })
        .collect();
    usage.sort_by(|one, other| one.key.cmp(&other.key));
    Some(QuotaSnapshot { quota: quota.clone(), usage, usage_truncated })
}

pub(super) fn permits(state: &LimitStateRow) -> Permits {
    match &state.standing.0 {
        Standing::Quota(permits) => permits.clone(),
        Standing::Budget(_) => Permits::default(),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::contracts::PutQuotaArgs;
    use crate::rows::{Json, LimitKey, LimitKind, LimitStateKey, Rule, Word};

    /// A quota of three had four permits in use, seen while its only key ceased to wait.
    #[test]
    fn a_key_that_was_seen_twice_is_told_once() {
        let limit = LimitRow {
            key: LimitKey { id: Uuid::from_u128(1) },
            kind: Word(LimitKind::Quota),
            namespace: "default".into(),
            name: "quota".into(),
            lane: None,
            rule: Json(Rule::Quota(PutQuotaArgs::default())),
            created_at: TimestampMs(0),
        };
        let state = |id, is_waiting, in_use| LimitStateRow {
            key: LimitStateKey { id: Uuid::from_u128(id) },
            limit: limit.key.id,
            value: "".into(),
            waiting: u64::from(is_waiting),
            is_waiting,
            look_at: None,
            standing: Json(Standing::Quota(Permits { in_use, ..Permits::default() })),
        };
        let states = [state(2, true, 3), state(1, false, 0), state(2, false, 1)];
        let seen = quota(&limit, &states, false, TimestampMs(0)).expect("a quota");
        assert_eq!(seen.usage.iter().map(|usage| usage.in_use).collect::<Vec<_>>(), [3]);
    }
}
