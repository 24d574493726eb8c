//! Why an execution waits for a budget or a quota: its numbers, and when there can be room.

use std::time::Duration;

use serde_json::{Value, json};

use super::limit::{account, permits};
use crate::contracts::{BreachAction, Explanation, PutBudgetArgs, PutQuotaArgs};
use crate::rows::{ExecutionRow, LimitRow, LimitStateRow, LimitWait};
use crate::state::{BlockingReason, EligibilityState, LifecyclePhase};
use crate::types::{TimestampMs, duration_in_words};

type Found = (&'static str, String, Value, Option<TimestampMs>);

/// What the execution waits for, if it is a limit.
pub fn waits_for_limit(row: &ExecutionRow) -> Option<LimitWait> {
    let blocked = matches!(
        row.eligibility,
        EligibilityState::BlockedByBudget | EligibilityState::BlockedByQuota
    );
    let suspended = row.phase == LifecyclePhase::Suspended
        && row.blocking == BlockingReason::WaitingForApproval;
    row.limit_wait().filter(|_| !row.is_finished() && (blocked || suspended))
}

pub fn explain_limit(
    row: &ExecutionRow,
    limit: Option<&LimitRow>,
    state: Option<&LimitStateRow>,
    now: TimestampMs,
) -> Explanation {
    let found = limit.and_then(|limit| match (limit.budget(), limit.quota()) {
        (Some(own), _) => budget(row, own, state, now),
        (_, Some(own)) => Some(quota(own, state, now)),
        (None, None) => None,
    });
    let gone = || {
        let words = "Its limit is gone; it is about to be handed out again.".to_owned();
        ("limit", words, json!({}), Some(now))
    };
    let (rule, words, details, next_change_at) = found.unwrap_or_else(gone);
    Explanation {
        execution_id: row.key.execution_id(),
        public_state: row.public_state,
        rule: rule.into(),
        words,
        details,
        next_change_at,
    }
}

fn budget(
    row: &ExecutionRow,
    budget: &PutBudgetArgs,
    state: Option<&LimitStateRow>,
    now: TimestampMs,
) -> Option<Found> {
    let account = account(budget, state, now)?;
    let estimate = crate::operations::limit::estimate(budget, row);
    let name = &budget.budget_id;
    let next_at = account.next_reset(budget.reset_period_ms);
    let mut details = json!({
        "budget_id": name,
        "on_breach": budget.on_breach,
        "next_reset_at": next_at,
        "waiting": state.map_or(0, |state| state.waiting),
    });
    let Some(short) = account.lacks(&budget.dimensions, &estimate) else {
        let words = format!("Budget {name} has room again; it is about to be handed out.");
        return Some(("budget", words, details, Some(now)));
    };
    let wanted = estimate.get(&short.dimension).copied().unwrap_or(0);
    details["dimension"] = json!(short.dimension);
    details["used"] = json!(short.used);
    details["reserved"] = json!(short.reserved);
    details["hard"] = json!(short.hard);
    details["estimate"] = json!(wanted);
    let numbers = format!(
        "of {} {} used and {} reserved, and it needs {}",
        short.used,
        short.dimension,
        short.reserved,
        wanted.max(1)
    );
    let room = format!("Budget {name} has no room: {numbers} within {}", short.hard);
    if row.phase == LifecyclePhase::Suspended || budget.on_breach == BreachAction::Suspend {
        let words = format!("{room}. It is suspended until somebody approves it.");
        return Some(("budget_approval", words, details, None));
    }
    Some(("budget", format!("{room}."), details, next_at))
}

fn quota(quota: &PutQuotaArgs, state: Option<&LimitStateRow>, now: TimestampMs) -> Found {
    let permits = state.map(permits).unwrap_or_default();
    let name = &quota.quota_id;
    let key = state.map_or("", |state| &state.value);
    let of_key = if key.is_empty() { String::new() } else { format!(" for {key:?}") };
    let in_window = quota.rate.map_or(0, |rate| permits.window.count(rate, now));
    let details = json!({
        "quota_id": name,
        "key": key,
        "in_use": permits.in_use,
        "concurrency": quota.concurrency,
        "in_window": in_window,
        "rate": quota.rate,
        "waiting": state.map_or(0, |state| state.waiting),
    });
    if let Some(cap) = quota.concurrency.filter(|cap| permits.in_use >= u64::from(*cap)) {
        let running = permits.in_use;
        let words = format!("Quota {name}{of_key} is full: {running} of {cap} are running.");
        return ("quota_concurrency", words, details, None);
    }
    if let Some(rate) = quota.rate.filter(|rate| permits.window.room(*rate, now) == 0) {
        let window = duration_in_words(Duration::from_millis(rate.window_ms));
        let words = format!(
            "Quota {name}{of_key} has let {in_window} of {} through within {window}.",
            rate.limit
        );
        return ("quota_rate", words, details, permits.window.next_at(rate, now));
    }
    if quota.fair {
        let words = format!("Quota {name} lets keys take turns, and it is not its turn{of_key}.");
        return ("quota_turn", words, details, None);
    }
    let words = format!("Quota {name}{of_key} has room again; it is about to be handed out.");
    ("quota", words, details, Some(now))
}
