//! The sweeper looks at a limit: who waits for it is let go as far as there is room.

use std::collections::HashSet;

use uuid::Uuid;

use super::drafts::{Drafts, look_at};
use super::gate::estimate;
use super::spread::KEEP;
use crate::contracts::{Amounts, EventType, PutBudgetArgs, PutQuotaArgs};
use crate::operations::execution::requeue::make_ready;
use crate::operations::execution::transition;
use crate::rows::{
    Account, ExecutionRow, LimitKey, LimitRow, LimitStateKey, LimitStateRow, LimitWaitRow, Pass,
    Permits, Share, Standing, TimerRow, values,
};
use crate::state::EligibilityState;
use crate::store::{Change, Needs, Scan, World, Write};
use crate::types::{ExecutionKey, TimestampMs};

/// So many executions are let go at once.
const CHUNK: usize = 64;
/// So many keys of one quota are looked at together.
pub(super) const KEYS: usize = 256;
/// So long after one chunk of those who wait for a budget the next one is looked at.
const PACE_MS: u64 = 50;
/// A key of a quota that nobody has used for so long is forgotten.
const IDLE_MS: u64 = 60_000;

/// Names what the sweeper must see: first who waits, then them and where the limit stands.
pub(crate) fn more(world: &World, needs: &mut Needs, timer: &TimerRow) {
    let id = timer.key.subject;
    needs.scan(&rule(id));
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
        needs.scan(&rule(state.limit));
    }
    let has_keys = match world.record::<LimitRow>(&LimitKey { id }) {
        Some(limit) => limit.quota().is_some(),
        // A quota that was deleted, unless this is one of its keys.
        None => state.as_ref().is_none_or(|state| {
            state.limit == id && matches!(state.standing.0, Standing::Quota(_))
        }),
    };
    match state.map(|state| state.standing.0) {
        Some(Standing::Quota(Permits { reached, .. })) if has_keys => {
            needs.scan(&waiting_keys(id, reached));
        }
        Some(Standing::Budget(Account { pass: Some(pass), .. })) => {
            let behind = waits_behind(id, &pass);
            needs.scan(&behind);
            for wait in world.scan::<LimitWaitRow>(&behind) {
                needs.execution(wait.key.execution);
            }
        }
        _ if has_keys => needs.scan(&waiting_keys(id, None)),
        _ => {}
    }
}

/// What a limit says. Whoever changes that has it looked at again, so nobody waits to read it:
/// those who end leases have other locks by then.
pub(super) fn rule(limit: Uuid) -> Scan {
    Scan::of::<LimitRow>(values![limit]).limit(1).unlocked()
}

fn waits(state: Uuid) -> Scan {
    Scan::of::<LimitWaitRow>(values![state]).limit(CHUNK)
}

fn waits_behind(state: Uuid, pass: &Pass) -> Scan {
    let (partition, id) = pass.execution;
    waits(state).after(values![pass.rank, ExecutionKey { partition, id }, pass.ticket])
}

/// The keys of a quota that somebody waits for, behind one of them.
pub(super) fn waiting_keys(limit: Uuid, after: Option<Uuid>) -> Scan {
    let scan = Scan::of::<LimitStateRow>(values![limit, true]).by(&LimitStateRow::BY_LIMIT);
    let scan = match after {
        Some(after) => scan.after(values![after]),
        None => scan,
    };
    scan.limit(KEYS).unlocked()
}

/// Looks at one limit. Executions that this sweep has moved are left for the next one.
pub(crate) fn due(
    world: &World,
    change: &mut Change,
    timer: &TimerRow,
    moved: &mut HashSet<ExecutionKey>,
) {
    let id = timer.key.subject;
    // Another sweep of this batch has looked: who was let go has had no time to take his room.
    if world.timers.is_loaded(&timer.key) && world.timers.get(&timer.key).is_none() {
        return;
    }
    change.timers.push(Write::Delete(timer.key));
    let mut drafts = Drafts::after(world, change);
    if look_at_keys(world, change, &mut drafts, id) {
        drafts.write(change);
        return;
    }
    let Some(state) = drafts.get(id).cloned() else { return };
    let limit = world.record::<LimitRow>(&LimitKey { id: state.limit });
    let budget = limit.as_ref().and_then(LimitRow::budget);
    if let Some(budget) = budget
        && let Some(account) = drafts.account(id)
    {
        let again = go_over(world, change, account, (id, budget), moved);
        if let Some(state) = drafts.change(id) {
            state.set_waiting(state.waiting.saturating_sub(again.gone));
            if let Some(at) = again.at.filter(|_| state.is_waiting) {
                drafts.arm(change, id, at);
            }
        }
        drafts.write(change);
        return;
    }
    let mut room = room(limit.as_ref(), &state, world.now);
    let before = room.0;
    let waits = world.scan::<LimitWaitRow>(&waits(id));
    let gone = let_go(world, change, &waits, &mut room, moved).gone;
    let left = state.waiting.saturating_sub(gone);
    if let Some(state) = drafts.change(id) {
        state.set_waiting(left);
    }
    match (left, again(limit.as_ref(), &state, before, left, world.now)) {
        (_, Some(at)) => drafts.arm(change, id, at),
        (0, None) if limit.as_ref().is_none_or(|limit| limit.quota().is_some()) => {
            drafts.delete(change, id);
        }
        (_, None) => {}
    }
    drafts.write(change);
}

/// What a quota says has changed: each of its keys has to be looked at. Says whether there are more
/// of them than are looked at together.
fn look_at_keys(world: &World, change: &mut Change, drafts: &mut Drafts<'_>, id: Uuid) -> bool {
    let reached = drafts.permits_of(id).reached;
    let keys = waiting_keys(id, reached);
    let found = world.scan::<LimitStateRow>(&keys);
    for state in &found {
        look_at(change, state.key.id, world.now);
    }
    let more = world.has_scanned(&keys) && world.scan_is_cut(&keys);
    if more {
        drafts.open_key(id, id, &"".into());
        drafts.arm(change, id, world.now.after_ms(1));
    }
    if (more || reached.is_some())
        && let Some(permits) = drafts.permits(id)
    {
        permits.reached = found.last().map(|state| state.key.id).or(reached).filter(|_| more);
    }
    more
}

/// When a limit that is waited for must be looked at, if time alone can make room.
pub(crate) fn next_look(
    limit: Option<&LimitRow>,
    state: &LimitStateRow,
    now: TimestampMs,
) -> Option<TimestampMs> {
    if state.waiting == 0 {
        return None;
    }
    if let (Some(budget), Standing::Budget(account)) =
        (limit.and_then(LimitRow::budget), &state.standing.0)
    {
        return match account.pass {
            Some(_) => Some(now),
            None => account.next_reset(budget.reset_period_ms),
        };
    }
    again(limit, state, room(limit, state, now).0, state.waiting, now)
}

/// What came of a look at those who wait.
struct Looked {
    /// So many do not wait any more.
    gone: u64,
    /// Some of them were let go, or could not be looked at.
    again: bool,
}

/// How many more a limit lets through, one by one.
trait Room {
    fn is_over(&self) -> bool;
    /// Counts one more, if there is room for it.
    fn take(&mut self, row: &ExecutionRow) -> bool;
}

/// So many, whatever they are.
struct Places(u64);

impl Room for Places {
    fn is_over(&self) -> bool {
        self.0 == 0
    }

    fn take(&mut self, _: &ExecutionRow) -> bool {
        self.0 = self.0.saturating_sub(1);
        true
    }
}

/// As many as a claim would let through.
struct Left<'b> {
    account: Account,
    budget: &'b PutBudgetArgs,
}

impl Room for Left<'_> {
    fn is_over(&self) -> bool {
        self.account.lacks(&self.budget.dimensions, &Amounts::new()).is_some()
    }

    fn take(&mut self, row: &ExecutionRow) -> bool {
        let estimate = estimate(self.budget, row);
        let Self { account, budget } = self;
        account.reserve(&budget.dimensions, &estimate, &mut Share::default()).is_ok()
    }
}

/// Makes those claimable that there is room for.
fn let_go(
    world: &World,
    change: &mut Change,
    waits: &[LimitWaitRow],
    room: &mut impl Room,
    moved: &mut HashSet<ExecutionKey>,
) -> Looked {
    let mut looked = Looked { gone: 0, again: false };
    for wait in waits {
        if moved.contains(&wait.key.execution) {
            looked.again = true;
            continue;
        }
        let row = world.executions.get(&wait.key.execution);
        if let Some(row) = row.filter(|row| is_waiting(row, wait)) {
            if room.is_over() {
                break;
            }
            if !room.take(row) {
                continue;
            }
            let mut after = row.clone();
            make_ready(&mut after);
            after.set_limit_wait(None);
            transition(change, row, after, EventType::Ready, world.now, |event| event);
            moved.insert(row.key);
            looked.again = true;
        }
        change.delete::<LimitWaitRow>(&wait.key);
        looked.gone += 1;
    }
    looked
}

/// When to look at a budget again, unless nobody waits for it any more.
struct Again {
    gone: u64,
    at: Option<TimestampMs>,
}

/// Goes over those who wait for a budget: the first of them each time, and the others in chunks,
/// because one that fits may stand behind many that do not.
fn go_over(
    world: &World,
    change: &mut Change,
    account: &mut Account,
    (id, budget): (Uuid, &PutBudgetArgs),
    moved: &mut HashSet<ExecutionKey>,
) -> Again {
    let now = world.now;
    account.roll(budget.reset_period_ms, now);
    let mut room = Left { account: account.clone(), budget };
    let before = account.pass;
    let mut scan = waits(id);
    let mut found = world.scan::<LimitWaitRow>(&scan);
    if let Some(pass) = &before {
        scan = waits_behind(id, pass);
        // As many as have gone since, the first ones reach beyond the place.
        found.extend(world.scan::<LimitWaitRow>(&scan));
        found.sort_by(|one, other| one.key.cmp(&other.key));
        found.dedup_by(|one, other| one.key == other.key);
    }
    let looked = let_go(world, change, &found, &mut room, moved);
    let again = looked.again || before.is_some_and(|pass| pass.again);
    let last = world.scan::<LimitWaitRow>(&scan).last().map(|wait| wait.key.place());
    let goes_on = !room.is_over() && world.scan_is_cut(&scan);
    account.pass = last.or(before).filter(|_| goes_on).map(|place| Pass { again, ..place });
    let at = match (goes_on, again) {
        (true, _) => Some(now.after_ms(PACE_MS)),
        // Those who were let go may not take what there is.
        (false, true) => Some(now.after_ms(1_000)),
        (false, false) => account.next_reset(budget.reset_period_ms),
    };
    Again { gone: looked.gone, at }
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

/// How many more executions a key of a quota lets through.
fn room(limit: Option<&LimitRow>, state: &LimitStateRow, now: TimestampMs) -> Places {
    Places(match (&state.standing.0, limit.and_then(LimitRow::quota)) {
        (Standing::Quota(permits), Some(quota)) => quota_room(permits, quota, now),
        _ => u64::MAX,
    })
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
    match (&state.standing.0, limit.quota()) {
        (Standing::Quota(permits), Some(quota)) if left > 0 => {
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
        (Standing::Quota(permits), Some(quota)) => {
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
