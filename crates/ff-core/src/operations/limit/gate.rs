//! What limits say to a claim: an execution is handed out with what it holds of them, or it leaves
//! the claim index until there is room, so that it stands in nobody's way.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::drafts::{Drafts, put};
use super::{spread, turns};
use crate::contracts::{
    Amounts, BreachAction, BudgetScope, EventType, PutBudgetArgs, PutQuotaArgs, QuotaKey,
};
use crate::engine_error::EngineError;
use crate::operations::execution::ending;
use crate::operations::execution::finish::{AttemptEnding, Ending, finish};
use crate::operations::execution::transition;
use crate::rows::{
    ExecutionRow, Holds, Json, LimitKey, LimitKind, LimitRow, LimitStateKey, LimitStateRow,
    LimitUsageKey, LimitUsageRow, LimitWait, LimitWaitKey, LimitWaitRow, Share, Short,
    budget_names, limit_id, quota_state_id, values,
};
use crate::state::{
    AttemptOutcome, BlockingReason, EligibilityState, LifecyclePhase, PublicState, TerminalOutcome,
};
use crate::store::{Change, Needs, Scan, World};
use crate::types::TimestampMs;

/// So many executions a claim in a lane with limits looks at beyond what it wants.
pub(crate) const VIEW: usize = 64;
/// So many limits a lane can have, and so many there can be for all lanes.
const RULES: usize = 256;
/// Some that were declared at the same moment do not see each other.
const RULES_READ: usize = RULES + 64;

/// Names what a claim must see of limits: first the rules, then where they stand.
pub(crate) fn more(
    world: &World,
    needs: &mut Needs,
    lanes: &[Arc<str>],
    candidates: &[&ExecutionRow],
) {
    let mut ready = true;
    for lane in world.limited_lanes(lanes) {
        let scan = rules_of(&lane);
        needs.scan(&scan);
        ready &= world.has_scanned(&scan);
    }
    for row in candidates {
        for id in named(world, row) {
            needs.record::<LimitRow>(&LimitKey { id });
        }
    }
    if !ready {
        return;
    }
    let rules = rules(world, lanes);
    for rule in rules.iter().filter(|rule| rule.quota().is_some_and(|quota| quota.fair)) {
        spread::more(world, needs, rule.key.id);
    }
    for row in candidates {
        for limit in applying(world, &rules, row) {
            needs.record::<LimitStateRow>(&LimitStateKey { id: state_id(&limit, row) });
            let Some(budget) = limit.budget() else { continue };
            needs.record::<LimitUsageRow>(&LimitUsageKey::sum(row.key, limit.key.id));
            if budget.on_breach == BreachAction::CancelPending {
                ending::more(world, needs, row.key);
            }
        }
    }
}

pub(super) fn rules_of(lane: &Arc<str>) -> Scan {
    Scan::of::<LimitRow>(values![lane.clone()]).by(&LimitRow::BY_LANE).limit(RULES_READ).unlocked()
}

/// Refuses a limit that claims would not look at.
pub(super) fn check_room(
    world: &World,
    known: Option<&LimitRow>,
    lane: &Arc<str>,
) -> Result<(), EngineError> {
    let here = known.is_some_and(|known| known.lane.as_ref() == Some(lane));
    let rules = world.scan::<LimitRow>(&rules_of(lane)).len();
    if here || rules < RULES {
        return Ok(());
    }
    let whose = if lane.is_empty() { "all lanes".to_owned() } else { format!("lane {lane:?}") };
    let detail = format!("{whose} have {rules} limits already, the most is {RULES}");
    Err(EngineError::invalid(detail))
}

fn rules(world: &World, lanes: &[Arc<str>]) -> Vec<LimitRow> {
    let lanes = world.limited_lanes(lanes);
    lanes.iter().flat_map(|lane| world.scan::<LimitRow>(&rules_of(lane))).collect()
}

/// The budgets that an execution or its flow names.
fn named(world: &World, row: &ExecutionRow) -> Vec<Uuid> {
    let mut names = match row.may_name_budgets() {
        true => row.budget_names(),
        false => Vec::new(),
    };
    if let Some(flow) = world.flow_of(row).filter(|flow| flow.raw_fields.len() > 2) {
        names.extend(budget_names(&flow.raw_fields));
    }
    names.iter().map(|name| limit_id(LimitKind::Budget, &row.namespace, name)).collect()
}

/// The limits that an execution is under, each once, in the order of their identities.
fn applying(world: &World, rules: &[LimitRow], row: &ExecutionRow) -> Vec<LimitRow> {
    let mut limits: BTreeMap<Uuid, LimitRow> = BTreeMap::new();
    for rule in rules.iter().filter(|rule| applies(rule, row)) {
        limits.insert(rule.key.id, rule.clone());
    }
    for id in named(world, row) {
        if let Some(budget) = world.record::<LimitRow>(&LimitKey { id }) {
            limits.insert(id, budget);
        }
    }
    limits.into_values().collect()
}

pub(super) fn applies(rule: &LimitRow, row: &ExecutionRow) -> bool {
    let lane = rule.lane.as_ref().is_some_and(|lane| lane.is_empty() || *lane == row.lane);
    let namespace = rule.namespace.is_empty() || rule.namespace == row.namespace;
    if !lane || !namespace {
        return false;
    }
    match (rule.quota(), rule.budget()) {
        (Some(quota), _) => quota.execution_kind.as_deref().is_none_or(|kind| *kind == *row.kind),
        (_, Some(budget)) => match &budget.scope {
            BudgetScope::Lane(_) | BudgetScope::Namespace => true,
            BudgetScope::Tag { name, value } => row.tags().get(name) == Some(value),
            BudgetScope::Named | BudgetScope::Execution(_) | BudgetScope::Flow(_) => false,
        },
        (None, None) => false,
    }
}

fn state_id(limit: &LimitRow, row: &ExecutionRow) -> Uuid {
    match limit.quota() {
        Some(quota) => quota_state_id(limit.key.id, &key_value(quota, row)),
        None => limit.key.id,
    }
}

pub(super) fn key_value(quota: &PutQuotaArgs, row: &ExecutionRow) -> Arc<str> {
    match &quota.key {
        QuotaKey::All => "".into(),
        QuotaKey::Lane => row.lane.clone(),
        QuotaKey::Kind => row.kind.clone(),
        QuotaKey::Namespace => row.namespace.clone(),
        QuotaKey::Tag(name) => row.tags().remove(name).unwrap_or_default().into(),
    }
}

/// Takes out the lanes whose rules have not been looked at, for a claim must not guess; says
/// whether there are any.
pub(crate) fn drop_unknown(world: &World, lanes: &mut Vec<Arc<str>>) -> bool {
    if world.limited_lanes(lanes).is_empty() {
        return false;
    }
    let before = lanes.len();
    lanes.retain(|lane| {
        let limited = world.limited_lanes(std::slice::from_ref(lane));
        limited.iter().all(|lane| world.has_scanned(&rules_of(lane)))
    });
    lanes.len() < before
}

/// What an execution is expected to use of a budget.
pub(crate) fn estimate(budget: &PutBudgetArgs, row: &ExecutionRow) -> Amounts {
    let own = row.policy().budget_estimate;
    let of = |dimension: &String| own.get(dimension).or_else(|| budget.estimate.get(dimension));
    let dimensions = budget.dimensions.keys();
    dimensions.filter_map(|name| of(name).map(|amount| (name.clone(), *amount))).collect()
}

/// What becomes of a candidate.
pub(crate) enum Verdict {
    /// It may be handed out, and its lease holds this.
    Admitted(Option<Holds>),
    /// It has left the claim index.
    PutAside,
}

/// Why an execution is not let through.
enum Closed {
    Quota { limit: LimitRow, state: Uuid, next_at: Option<TimestampMs>, words: &'static str },
    Budget { limit: LimitRow, short: Short },
}

/// The limits of one claim, and what it has taken of them so far.
pub(crate) struct Gate<'w> {
    pub(super) world: &'w World,
    pub(super) rules: Vec<LimitRow>,
    pub(super) drafts: Drafts<'w>,
    shares: Vec<LimitUsageRow>,
}

impl<'w> Gate<'w> {
    /// Nothing if no limit can apply.
    pub fn open(world: &'w World, lanes: &[Arc<str>], found: &[&'w ExecutionRow]) -> Option<Self> {
        let rules = rules(world, lanes);
        if rules.is_empty() && !found.iter().any(|row| !named(world, row).is_empty()) {
            return None;
        }
        Some(Self { world, rules, drafts: Drafts::new(world), shares: Vec::new() })
    }

    /// Lets candidates of a fair lane take turns: they keep the places of their lane among those of
    /// other lanes, and share them out.
    pub fn take_turns(&mut self, found: &mut [&'w ExecutionRow]) {
        for rule in self.rules.clone() {
            let Some(quota) = rule.quota().filter(|quota| quota.fair) else { continue };
            let places: Vec<usize> =
                (0..found.len()).filter(|at| applies(&rule, found[*at])).collect();
            let line = self.drafts.permits_of(rule.key.id).pass;
            let mut passes = BTreeMap::new();
            let mut candidates = Vec::with_capacity(places.len());
            for at in &places {
                let value = key_value(quota, found[*at]);
                let pass = self.drafts.permits_of(quota_state_id(rule.key.id, &value)).pass;
                passes.insert(value.clone(), turns::entry(pass, line));
                candidates.push((value, found[*at].rank()));
            }
            let weight = |value: &Arc<str>| weight(quota, value);
            let order = turns::order(&candidates, &passes, weight);
            let rows: Vec<&ExecutionRow> = order.iter().map(|at| found[places[*at]]).collect();
            for (place, row) in places.into_iter().zip(rows) {
                found[place] = row;
            }
        }
    }

    /// Hands one execution out, as far as limits are concerned, or puts it aside.
    pub fn admit(&mut self, change: &mut Change, row: &ExecutionRow) -> Verdict {
        let limits = applying(self.world, &self.rules, row);
        for limit in &limits {
            if let Some(closed) = self.closed(limit, row) {
                self.put_aside(change, row, closed);
                return Verdict::PutAside;
            }
        }
        let mut holds = Holds::default();
        for limit in &limits {
            match (limit.quota(), limit.budget()) {
                (Some(quota), _) => self.take_permit(change, limit, quota, row, &mut holds),
                (_, Some(budget)) => self.reserve(limit, budget, row, &mut holds),
                (None, None) => {}
            }
        }
        let empty = holds == Holds::default();
        Verdict::Admitted((!empty).then_some(holds))
    }

    /// Writes what has been taken.
    pub fn close(self, change: &mut Change) {
        self.drafts.write(change);
        for share in &self.shares {
            let known = self.world.record::<LimitUsageRow>(&share.key).is_some();
            put(change, known, share);
        }
    }

    fn closed(&mut self, limit: &LimitRow, row: &ExecutionRow) -> Option<Closed> {
        let now = self.world.now;
        if let Some(budget) = limit.budget() {
            let account = self.drafts.account(limit.key.id)?;
            account.roll(budget.reset_period_ms, now);
            let short = account.lacks(&budget.dimensions, &estimate(budget, row))?;
            account.breached(&short.dimension, now);
            return Some(Closed::Budget { limit: limit.clone(), short });
        }
        let quota = limit.quota()?;
        let state = state_id(limit, row);
        let permits = self.drafts.permits_of(state);
        let closed =
            |next_at, words| Some(Closed::Quota { limit: limit.clone(), state, next_at, words });
        if quota.concurrency.is_some_and(|cap| permits.in_use >= u64::from(cap)) {
            return closed(None, "concurrency");
        }
        if let Some(rate) = quota.rate
            && permits.window.room(rate, now) == 0
        {
            return closed(permits.window.next_at(rate, now), "rate");
        }
        None
    }

    fn take_permit(
        &mut self,
        change: &mut Change,
        limit: &LimitRow,
        quota: &PutQuotaArgs,
        row: &ExecutionRow,
        holds: &mut Holds,
    ) {
        if quota.rate.is_none() && quota.concurrency.is_none() && !quota.fair {
            return;
        }
        let now = self.world.now;
        let value = key_value(quota, row);
        let state = quota_state_id(limit.key.id, &value);
        if self.drafts.open_key(state, limit.key.id, &value) {
            self.drafts.arm(change, state, now.after_ms(super::due::idle_ms(quota)));
        }
        let line = match quota.fair {
            true => self.drafts.permits_of(limit.key.id).pass,
            false => 0,
        };
        let Some(permits) = self.drafts.permits(state) else { return };
        permits.used_at = now;
        if let Some(rate) = quota.rate {
            permits.window.admit(rate, now);
        }
        if quota.concurrency.is_some() {
            permits.in_use += 1;
            permits.grants += 1;
            holds.permits.push(state);
        }
        if quota.fair {
            let start = turns::entry(permits.pass, line);
            permits.pass = start.saturating_add(turns::stride(weight(quota, &value)));
            self.drafts.open_key(limit.key.id, limit.key.id, &"".into());
            if let Some(whole) = self.drafts.permits(limit.key.id) {
                whole.pass = start;
                whole.used_at = now;
            }
        }
    }

    fn reserve(
        &mut self,
        limit: &LimitRow,
        budget: &PutBudgetArgs,
        row: &ExecutionRow,
        holds: &mut Holds,
    ) {
        let estimate = estimate(budget, row);
        let Some(account) = self.drafts.account(limit.key.id).filter(|_| !estimate.is_empty())
        else {
            return;
        };
        let key = LimitUsageKey::sum(row.key, limit.key.id);
        let known = self.world.record::<LimitUsageRow>(&key);
        let mut share = known.map_or_else(Share::default, |known| known.share.0);
        if account.reserve(&budget.dimensions, &estimate, &mut share).is_ok() {
            self.shares.push(LimitUsageRow { key, share: Json(share) });
            holds.budgets.push(limit.key.id);
        }
    }

    fn put_aside(&mut self, change: &mut Change, row: &ExecutionRow, closed: Closed) {
        match closed {
            Closed::Quota { limit, state, next_at, words } => {
                let details = json!({
                    "limit": "quota", "quota_id": &*limit.name, "by": words, "next_at": next_at,
                });
                if let Some(quota) = limit.quota() {
                    self.drafts.open_key(state, limit.key.id, &key_value(quota, row));
                }
                let reason = BlockingReason::WaitingForQuota;
                self.wait(change, row, &limit, state, reason, next_at, &details);
            }
            Closed::Budget { limit, short } => self.breach(change, row, &limit, &short),
        }
    }

    /// A budget has no room for an execution: what was declared for that happens.
    fn breach(&mut self, change: &mut Change, row: &ExecutionRow, limit: &LimitRow, short: &Short) {
        let Some(budget) = limit.budget() else { return };
        let details = json!({
            "limit": "budget", "budget_id": &*limit.name, "dimension": short.dimension,
            "used": short.used, "reserved": short.reserved, "hard": short.hard,
        });
        match budget.on_breach {
            BreachAction::Refuse => {
                let next_at = self
                    .drafts
                    .account(limit.key.id)
                    .and_then(|account| account.next_reset(budget.reset_period_ms));
                let reason = BlockingReason::WaitingForBudget;
                self.wait(change, row, limit, limit.key.id, reason, next_at, &details);
            }
            BreachAction::Suspend => {
                let mut after = row.clone();
                after.phase = LifecyclePhase::Suspended;
                after.eligibility = EligibilityState::NotApplicable;
                after.public_state = PublicState::Suspended;
                after.blocking = BlockingReason::WaitingForApproval;
                let ticket = row.version + 1;
                let (limit, state) = (limit.key.id, limit.key.id);
                after.set_limit_wait(Some(&LimitWait { limit, state, ticket }));
                let now = self.world.now;
                transition(change, row, after, EventType::Suspended, now, |event| {
                    event.details(&details)
                });
            }
            BreachAction::CancelPending => {
                let ending = Ending {
                    reason: Some(format!("budget {} is used up", limit.name).into()),
                    by: Some("budget".into()),
                    ..Ending::new(
                        TerminalOutcome::Cancelled,
                        self.world.now,
                        AttemptEnding::FromOutside(AttemptOutcome::Cancelled),
                    )
                };
                finish(self.world, change, row, ending, |_| {});
            }
        }
    }

    /// Takes an execution out of the claim index until its limit has room.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn wait(
        &mut self,
        change: &mut Change,
        row: &ExecutionRow,
        limit: &LimitRow,
        state: Uuid,
        reason: BlockingReason,
        next_at: Option<TimestampMs>,
        details: &serde_json::Value,
    ) {
        let now = self.world.now;
        let ticket = row.version + 1;
        let key = LimitWaitKey { state, rank: row.rank(), execution: row.key, ticket };
        change.insert(&LimitWaitRow { key, since: now });
        if let Some(standing) = self.drafts.change(state) {
            standing.set_waiting(standing.waiting + 1);
        }
        if let Some(at) = next_at {
            self.drafts.arm(change, state, at.max(now.after_ms(1)));
        }
        let mut after = row.clone();
        after.phase = LifecyclePhase::Runnable;
        after.eligibility = match reason {
            BlockingReason::WaitingForBudget => EligibilityState::BlockedByBudget,
            _ => EligibilityState::BlockedByQuota,
        };
        after.public_state = PublicState::RateLimited;
        after.blocking = reason;
        after.set_limit_wait(Some(&LimitWait { limit: limit.key.id, state, ticket }));
        transition(change, row, after, EventType::Limited, now, |event| event.details(details));
    }
}

pub(super) fn weight(quota: &PutQuotaArgs, value: &str) -> u32 {
    quota.weights.get(value).copied().unwrap_or(1)
}
