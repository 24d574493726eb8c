//! The sweeper looks at a limit: who waits for it is let go as far as there is room.

use std::collections::HashSet;

use uuid::Uuid;

use super::drafts::{Drafts, look_at};
use super::gate::KEEP;
use crate::contracts::{EventType, PutBudgetArgs, PutQuotaArgs};
use crate::operations::execution::requeue::make_ready;
use crate::operations::execution::transition;
use crate::rows::{
    Account, ExecutionRow, LimitKey, LimitRow, LimitStateKey, LimitStateRow, LimitWaitRow, Permits,
    Standing, TimerRow, values,
};
use crate::state::EligibilityState;
use crate::store::{Change, Needs, Scan, World, Write};
use crate::types::{ExecutionKey, TimestampMs};

/// So many executions are let go at once.
const CHUNK: usize = 64;
/// So many keys of one quota are looked at together.
const KEYS: usize = 256;
/// A key of a quota that nobody has used for so long is forgotten.
const IDLE_MS: u64 = 60_000;

/// Names what the sweeper must see: first who waits, then them and where the limit stands.
pub(crate) fn more(world: &World, needs: &mut Needs, timer: &TimerRow) {
    let id = timer.key.subject;
    needs.record::<LimitRow>(&LimitKey { id });
    needs.scan(&waits(id));
    if !world.has_scanned(&waits(id)) {
        return;
    }
    for wait in world.scan::<LimitWaitRow>(&waits(id)) {
        needs.execution(wait.key.execution);
    }
    needs.record::<LimitStateRow>(&LimitStateKey { id });
    let state = world.record::<LimitStateRow>(&LimitStateKey { id });
    if let Some(state) = &state {
        needs.record::<LimitRow>(&LimitKey { id: state.limit });
    }
    let has_keys = match world.record::<LimitRow>(&LimitKey { id }) {
        Some(limit) => limit.quota().is_some(),
        // A quota that was deleted, unless this is one of its keys.
        None => state.is_none_or(|state| {
            state.limit == id && matches!(state.standing.0, Standing::Quota(_))
        }),
    };
    if has_keys {
        needs.scan(&waiting_keys(id));
    }
}

fn waits(state: Uuid) -> Scan {
    Scan::of::<LimitWaitRow>(values![state]).limit(CHUNK)
}

fn waiting_keys(limit: Uuid) -> Scan {
    let scan = Scan::of::<LimitStateRow>(values![limit, true]);
    scan.by(&LimitStateRow::BY_LIMIT).limit(KEYS).unlocked()
}

/// Looks at one limit. Executions that this sweep has moved are left for the next one.
pub(crate) fn due(
    world: &World,
    change: &mut Change,
    timer: &TimerRow,
    moved: &mut HashSet<ExecutionKey>,
) {
    let id = timer.key.subject;
    change.timers.push(Write::Delete(timer.key));
    // What a quota says has changed: each of its keys has to be looked at.
    let keys = waiting_keys(id);
    for state in world.scan::<LimitStateRow>(&keys) {
        look_at(change, state.key.id, world.now);
    }
    if world.has_scanned(&keys) && world.scan_is_cut(&keys) {
        look_at(change, id, world.now.after_ms(1));
    }
    let mut drafts = Drafts::after(world, change);
    let Some(state) = drafts.get(id).cloned() else { return };
    let limit = world.record::<LimitRow>(&LimitKey { id: state.limit });
    let room = room(limit.as_ref(), &state, world.now);
    let gone = let_go(world, change, id, room, moved);
    let left = state.waiting.saturating_sub(gone);
    if let Some(state) = drafts.change(id) {
        state.set_waiting(left);
    }
    match (left, again(limit.as_ref(), &state, room, left, world.now)) {
        (_, Some(at)) => drafts.arm(change, id, at),
        (0, None) if limit.as_ref().is_none_or(|limit| limit.quota().is_some()) => {
            drafts.delete(change, id);
        }
        (_, None) => {}
    }
    drafts.write(change);
}

/// Makes as many claimable as there is room for; says how many do not wait any more.
fn let_go(
    world: &World,
    change: &mut Change,
    state: Uuid,
    room: u64,
    moved: &mut HashSet<ExecutionKey>,
) -> u64 {
    let (mut room, mut gone) = (room, 0);
    for wait in world.scan::<LimitWaitRow>(&waits(state)) {
        if moved.contains(&wait.key.execution) {
            continue;
        }
        let row = world.executions.get(&wait.key.execution);
        if let Some(row) = row.filter(|row| is_waiting(row, &wait)) {
            if room == 0 {
                break;
            }
            room -= 1;
            let mut after = row.clone();
            make_ready(&mut after);
            after.set_limit_wait(None);
            transition(change, row, after, EventType::Ready, world.now, |event| event);
            moved.insert(row.key);
        }
        change.delete::<LimitWaitRow>(&wait.key);
        gone += 1;
    }
    gone
}

/// Whether an execution is still where this wait left it.
fn is_waiting(row: &ExecutionRow, wait: &LimitWaitRow) -> bool {
    let blocked = matches!(
        row.eligibility,
        EligibilityState::BlockedByBudget | EligibilityState::BlockedByQuota
    );
    blocked
        && row
            .limit_wait()
            .is_some_and(|own| own.state == wait.key.state && own.ticket == wait.key.ticket)
}

/// How many more executions a limit lets through.
fn room(limit: Option<&LimitRow>, state: &LimitStateRow, now: TimestampMs) -> u64 {
    let Some(limit) = limit else { return u64::MAX };
    match (&state.standing.0, limit.budget(), limit.quota()) {
        (Standing::Budget(account), Some(budget), _) => budget_room(account, budget, now),
        (Standing::Quota(permits), _, Some(quota)) => quota_room(permits, quota, now),
        _ => u64::MAX,
    }
}

fn budget_room(account: &Account, budget: &PutBudgetArgs, now: TimestampMs) -> u64 {
    let mut account = account.clone();
    account.roll(budget.reset_period_ms, now);
    let left = budget.dimensions.iter().filter_map(|(dimension, limits)| {
        let taken = account.used(dimension).saturating_add(account.reserved(dimension));
        let each = budget.estimate.get(dimension).copied().unwrap_or(0).max(1);
        limits.hard.map(|hard| hard.saturating_sub(taken).div_ceil(each))
    });
    left.min().unwrap_or(u64::MAX)
}

fn quota_room(permits: &Permits, quota: &PutQuotaArgs, now: TimestampMs) -> u64 {
    let slots = quota.concurrency.map(|cap| u64::from(cap).saturating_sub(permits.in_use));
    let rate = quota.rate.map(|rate| permits.window.room(rate, now));
    let turns = quota.fair.then_some(KEEP as u64);
    [slots, rate, turns].into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// When to look again: once there can be room, soon if those who were let go may not take it, and
/// otherwise once a key of a quota may be forgotten.
fn again(
    limit: Option<&LimitRow>,
    state: &LimitStateRow,
    room: u64,
    left: u64,
    now: TimestampMs,
) -> Option<TimestampMs> {
    let Some(limit) = limit else { return again_without(state, left, now) };
    match (&state.standing.0, limit.budget(), limit.quota()) {
        (Standing::Budget(account), Some(budget), _) if left > 0 => match room {
            0 => account.next_reset(budget.reset_period_ms).map(|at| at.max(now.after_ms(1))),
            _ => Some(now.after_ms(1_000)),
        },
        (Standing::Quota(permits), _, Some(quota)) if left > 0 => {
            let full = quota.concurrency.is_some_and(|cap| permits.in_use >= u64::from(cap));
            match quota.rate {
                // A lease that ends asks to look again, and so does a claim that sees little.
                None if full || quota.fair => None,
                Some(rate) if room == 0 && !full => permits.window.next_at(rate, now),
                Some(_) if full => None,
                Some(rate) => {
                    let mut window = permits.window.clone();
                    (0..room.min(CHUNK as u64)).for_each(|_| window.admit(rate, now));
                    let next = window.next_at(rate, now).unwrap_or(now);
                    Some(next.clamp(now.after_ms(20), now.after_ms(5_000)))
                }
                None => Some(now.after_ms(1_000)),
            }
        }
        (Standing::Quota(permits), _, Some(quota)) => {
            let idle_at = permits.used_at.after_ms(idle_ms(quota));
            (permits.in_use > 0 || idle_at > now).then(|| idle_at.max(now.after_ms(IDLE_MS)))
        }
        _ => None,
    }
}

/// When to look again at what is left of a deleted limit: until nobody waits and no lease holds
/// anything of it.
fn again_without(state: &LimitStateRow, left: u64, now: TimestampMs) -> Option<TimestampMs> {
    let held = match &state.standing.0 {
        Standing::Budget(account) => !account.reserved.is_empty(),
        Standing::Quota(permits) => permits.in_use > 0,
    };
    match (left > 0, held) {
        (true, _) => Some(now.after_ms(1)),
        (false, true) => Some(now.after_ms(IDLE_MS)),
        (false, false) => None,
    }
}

/// How long a key of a quota must be kept after it was used.
pub(super) fn idle_ms(quota: &PutQuotaArgs) -> u64 {
    // Slices of a window reach a little beyond its end.
    let window = quota.rate.map_or(0, |rate| rate.window_ms + rate.window_ms / 64 + 1);
    window.max(IDLE_MS)
}
