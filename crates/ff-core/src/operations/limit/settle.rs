//! What a lease holds of limits goes with it, in the change that ends it.
//!
//! Both functions are called for every batch and every change, so no path to the end of a lease
//! has to think of it, and none can forget it.

use super::drafts::Drafts;
use super::due;
use crate::mutants::{self, Mutant};
use crate::rows::{
    End, ExecutionRow, Holds, Json, LimitKey, LimitRow, LimitStateKey, LimitStateRow,
    LimitUsageKey, LimitUsageRow, Rewritten,
};
use crate::state::{AttemptOutcome, LifecyclePhase};
use crate::store::{Change, Needs, World, Write};

/// Names where the limits stand that leases in the world hold something of.
pub(crate) fn more(world: &World, needs: &mut Needs) {
    for row in world.executions.rows() {
        let Some(holds) = row.limit_holds() else { continue };
        for id in holds.permits.iter().chain(&holds.budgets) {
            needs.record::<LimitStateRow>(&LimitStateKey { id: *id });
        }
        for id in &holds.budgets {
            needs.scan(&due::rule(*id));
            needs.record::<LimitUsageRow>(&LimitUsageKey::sum(row.key, *id));
        }
    }
}

/// Gives back, or counts as used, what leases held that this change ends.
pub(crate) fn settle(world: &World, change: &mut Change) {
    let mut ended = Vec::new();
    for at in 0..change.executions.len() {
        let Write::Update(after) = &mut change.executions[at] else { continue };
        if !after.may_hold_limits() || after.phase == LifecyclePhase::Active {
            continue;
        }
        let before = world.executions.get(&after.key);
        if let Some(before) = before.filter(|row| row.phase == LifecyclePhase::Active)
            && let Some(holds) = before.limit_holds()
        {
            after.set_limit_holds(None);
            after.rewritten = Rewritten::Everything;
            ended.push((before, holds));
        }
    }
    if ended.is_empty() {
        return;
    }
    let mut drafts = Drafts::after(world, change);
    for (before, holds) in ended {
        give_back(world, change, &mut drafts, before, &holds);
    }
    drafts.write(change);
}

fn give_back(
    world: &World,
    change: &mut Change,
    drafts: &mut Drafts<'_>,
    before: &ExecutionRow,
    holds: &Holds,
) {
    let outcome = outcome(change, before);
    let leaks =
        mutants::active(Mutant::PermitLeaked) && outcome == Some(AttemptOutcome::LeaseExpired);
    for id in holds.permits.iter().filter(|_| !leaks) {
        debug_assert!(drafts.get(*id).is_some(), "what leases hold is loaded with them");
        if let Some(permits) = drafts.permits(*id) {
            permits.in_use = permits.in_use.saturating_sub(1);
        }
    }
    let end = match outcome {
        Some(AttemptOutcome::Success | AttemptOutcome::Failed | AttemptOutcome::Retry) => {
            End::Settled
        }
        _ => End::Refunded,
    };
    for id in &holds.budgets {
        let key = LimitUsageKey::sum(before.key, *id);
        let usage = world.record::<LimitUsageRow>(&key);
        let limit = world.record::<LimitRow>(&LimitKey { id: *id });
        if let (Some(account), Some(mut usage)) = (drafts.account(*id), usage) {
            // Usage counts in the period in which it is settled.
            let period = limit.as_ref().and_then(LimitRow::budget);
            account.roll(period.and_then(|budget| budget.reset_period_ms), world.now);
            let Json(share) = &mut usage.share;
            account.end(share, end);
            change.update(&usage);
        }
    }
    for id in holds.permits.iter().chain(&holds.budgets) {
        drafts.arm_if_waited_for(change, *id);
    }
}

/// How the attempt ended, if this change says so.
fn outcome(change: &Change, before: &ExecutionRow) -> Option<AttemptOutcome> {
    change.attempts.iter().rev().find_map(|write| match write {
        Write::Update(attempt) | Write::Insert(attempt)
            if attempt.key.execution == before.key && attempt.key.index == before.attempt_index =>
        {
            attempt.outcome
        }
        _ => None,
    })
}
