//! Accepting work: one item or thousands, each with its own outcome.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::contracts::{EventType, SubmitOutcome};
use crate::engine_error::{ConflictKind, EngineError, ValidationKind};
use crate::operations::Operation;
use crate::rows::{
    EventRow, ExecutionRow, IdempotencyKey, IdempotencyRow, LaneRow, LimitKey, LimitKind, LimitRow,
    TimerKind, TimerRow, limit_id,
};
use crate::state::{BlockingReason, EligibilityState, PublicState};
use crate::store::{Change, Needs, World, Write};
use crate::types::{ExecutionKey, TimestampMs};

/// A submission that has been checked, as the row it would become.
#[derive(Clone, Debug)]
pub struct PreparedSubmission {
    pub row: ExecutionRow,
    /// The engine made the identity, so nobody else can have used it.
    pub fresh_id: bool,
    pub fingerprint: [u8; 32],
    /// How long the idempotency key holds; absent means until the execution finishes.
    pub key_ttl: Option<Duration>,
    pub delay: Option<Duration>,
    pub deadline: Option<Duration>,
}

/// Why an item was refused before it got here; told again if the batch is decided again.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub kind: ValidationKind,
    pub detail: String,
}

#[derive(Debug)]
pub struct Submit {
    /// An item that was refused before it got here keeps its place.
    pub items: Vec<Result<PreparedSubmission, Refusal>>,
}

impl Operation for Submit {
    type Reply = Vec<SubmitOutcome>;

    const NAME: &'static str = "submit";
    const MAY_END_LEASES: bool = false;

    fn weight(&self) -> usize {
        self.items.len()
    }

    fn needs(&self, needs: &mut Needs) {
        for item in self.items.iter().flatten() {
            needs_of(needs, item);
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        change.executions.reserve_exact(self.items.len());
        change.events.reserve_exact(self.items.len());
        let mut accepted = Accepted::default();
        let outcomes = self.items.iter().map(|item| match item {
            Ok(item) => {
                let until = item.delay.map(|delay| world.now.after(delay));
                let deadline = item.deadline.map(|deadline| world.now.after(deadline));
                accept(world, &mut change, &mut accepted, item, until, deadline)
            }
            Err(Refusal { kind, detail }) => {
                SubmitOutcome::Refused(EngineError::validation(*kind, detail.clone()))
            }
        });
        let outcomes = outcomes.collect();
        Ok((outcomes, change))
    }
}

/// What this call has accepted so far: one call may name a lane, an id or a key more than once.
#[derive(Clone, Default)]
pub(crate) struct Accepted {
    lanes: HashSet<Arc<str>>,
    ids: HashMap<Uuid, (ExecutionKey, Arc<str>)>,
    keys: HashMap<IdempotencyKey, IdempotencyRow>,
}

pub(crate) fn needs_of(needs: &mut Needs, item: &PreparedSubmission) {
    // Waiting claims are decided behind submissions, and must know whether limits apply.
    if !needs.lanes.contains(&item.row.lane) {
        needs.lanes.extend([item.row.lane.clone(), LaneRow::every()]);
    }
    for id in named_budgets(&item.row) {
        needs.record::<LimitRow>(&LimitKey { id });
    }
    if !item.fresh_id {
        needs.execution(item.row.key);
    }
    if let Some(key) = idempotency_key(&item.row) {
        needs.idempotency.insert(key);
    }
}

pub(crate) fn accept(
    world: &World,
    change: &mut Change,
    accepted: &mut Accepted,
    item: &PreparedSubmission,
    delay_until: Option<TimestampMs>,
    deadline_at: Option<TimestampMs>,
) -> SubmitOutcome {
    let key = idempotency_key(&item.row);
    if let Some(key) = &key {
        let known = accepted.keys.get(key).or_else(|| world.idempotency.get(key));
        if let Some(known) = known.filter(|known| known.holds(world.now)) {
            return if known.fingerprint == item.fingerprint {
                SubmitOutcome::Duplicate { execution_id: known.execution.execution_id() }
            } else {
                SubmitOutcome::Refused(EngineError::Conflict(ConflictKind::IdempotencyKeyReused))
            };
        }
    }
    let stored = world.executions.get(&item.row.key).map(|row| (row.key, row.namespace.clone()));
    let owner = accepted.ids.get(&item.row.key.id).cloned().or(stored);
    if world.taken_elsewhere.contains(&item.row.key.id) {
        return SubmitOutcome::Refused(EngineError::Conflict(ConflictKind::ExecutionIdReused));
    }
    if let Some(owner) = owner {
        return if owner == (item.row.key, item.row.namespace.clone()) {
            SubmitOutcome::Duplicate { execution_id: item.row.key.execution_id() }
        } else {
            SubmitOutcome::Refused(EngineError::Conflict(ConflictKind::ExecutionIdReused))
        };
    }

    let missing = |id: Uuid| world.record::<LimitRow>(&LimitKey { id }).is_none();
    if named_budgets(&item.row).into_iter().any(missing) {
        return SubmitOutcome::Refused(EngineError::NotFound { entity: "budget" });
    }
    let row = admit(world.now, change, item, delay_until, deadline_at);
    if let Some(key) = key {
        remember_key(world, change, accepted, item, key);
    }
    if world.lanes.get(&row.lane).is_none() && accepted.lanes.insert(row.lane.clone()) {
        change.lanes.push(Write::Insert(LaneRow::active(row.lane.clone())));
    }
    if !item.fresh_id {
        accepted.ids.insert(row.key.id, (row.key, row.namespace.clone()));
    }
    let public_state = row.public_state;
    let execution_id = row.key.execution_id();
    change.executions.push(Write::Insert(row));
    SubmitOutcome::Created { execution_id, public_state }
}

/// The new row, its event and its timers.
fn admit(
    now: TimestampMs,
    change: &mut Change,
    item: &PreparedSubmission,
    delay_until: Option<TimestampMs>,
    deadline_at: Option<TimestampMs>,
) -> ExecutionRow {
    let mut row = item.row.clone();
    row.created_at = now;
    row.version = 1;
    let delay_until = delay_until.filter(|until| *until > now);
    if row.eligibility == EligibilityState::BlockedByDependencies {
        // The delay is looked at when its parents have decided.
        row.not_before = delay_until;
    } else if let Some(until) = delay_until {
        row.eligibility = EligibilityState::NotEligibleUntilTime;
        row.public_state = PublicState::Delayed;
        row.blocking = BlockingReason::WaitingForDelay;
        row.not_before = Some(until);
        change.timers.push(Write::Insert(TimerRow::single(TimerKind::Ready, until, row.key, 0)));
    }
    if let Some(at) = deadline_at {
        row.deadline_at = Some(at);
        change.timers.push(Write::Insert(TimerRow::single(TimerKind::Deadline, at, row.key, 0)));
    }
    let by = Some(row.creator.clone()).filter(|creator| !creator.is_empty());
    change.events.push(EventRow::about(&row, EventType::Submitted, now).by(by));
    row
}

fn remember_key(
    world: &World,
    change: &mut Change,
    accepted: &mut Accepted,
    item: &PreparedSubmission,
    key: IdempotencyKey,
) {
    let expires_at = item.key_ttl.map(|ttl| world.now.after(ttl));
    let fingerprint = item.fingerprint;
    let execution = item.row.key;
    let known = IdempotencyRow { key: key.clone(), execution, fingerprint, expires_at };
    if let Some(at) = expires_at {
        let timer = TimerRow::single(TimerKind::Idempotency, at, execution, 0);
        change.timers.push(Write::Insert(timer));
    }
    // A lapsed row may still be there: the new one takes its place.
    let stored = world.idempotency.get(&key).is_some();
    let lapsed = accepted.keys.insert(key, known.clone()).is_some() || stored;
    change.idempotency.push(if lapsed { Write::Update(known) } else { Write::Insert(known) });
}

/// The budgets that a submission names; they must be there.
fn named_budgets(row: &ExecutionRow) -> Vec<Uuid> {
    if !row.may_name_budgets() {
        return Vec::new();
    }
    let names = row.budget_names().into_iter();
    names.map(|name| limit_id(LimitKind::Budget, &row.namespace, &name)).collect()
}

fn idempotency_key(row: &ExecutionRow) -> Option<IdempotencyKey> {
    let key = row.idempotency_key.clone()?;
    Some(IdempotencyKey { namespace: row.namespace.clone(), key })
}
