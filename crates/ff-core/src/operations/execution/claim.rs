//! The one door to work: fresh, resumed and reclaimed executions alike.

use std::sync::Arc;

use uuid::Uuid;

use super::transition;
use crate::backend::{CapabilitySet, Handle, HandleKind};
use crate::contracts::{EventType, WaitEnd};
use crate::engine_error::EngineError;
use crate::operations::limit::gate::{self, Gate, Verdict};
use crate::operations::suspension::end_waits;
use crate::operations::{Operation, flow};
use crate::rows::{
    AttemptKey, AttemptRow, Blob, EventRow, ExecutionRow, Holds, TimerKey, TimerKind, TimerMember,
    TimerRow,
};
use crate::state::{
    AttemptState, AttemptType, BlockingReason, EligibilityState, LifecyclePhase, OwnershipState,
    PublicState,
};
use crate::store::{Change, Needs, World, Write};
use crate::types::{ExecutionKey, TimestampMs, WorkerInstanceId};

#[derive(Debug)]
pub struct Claim {
    pub lanes: Vec<Arc<str>>,
    pub capabilities: CapabilitySet,
    pub worker_id: Arc<str>,
    pub worker_instance_id: Arc<str>,
    pub lease_ttl_ms: u32,
    pub max: usize,
    /// How many executions it looks at, if that is more than it wants.
    pub view: usize,
    /// Names the timer that watches this call's leases, and lends them its random bits.
    pub claim_id: Uuid,
}

/// What was handed out: what a worker is told of it.
#[derive(Debug)]
pub struct Grant {
    pub key: ExecutionKey,
    pub namespace: Arc<str>,
    pub lane: Arc<str>,
    pub kind: Arc<str>,
    pub flow_id: Option<Uuid>,
    /// The parents' results are handed out together with the payload.
    pub merges_results: bool,
    pub payload: Blob,
    pub payload_encoding: Option<Arc<str>>,
    pub tags: Arc<str>,
    pub priority: i32,
    pub attempt_type: AttemptType,
    pub lease_expires_at: TimestampMs,
    pub created_at: TimestampMs,
    pub deadline_at: Option<TimestampMs>,
    /// How often the execution has been replayed; known only of an attempt that goes on.
    pub generation: u32,
    /// There are steps to be told of.
    pub has_steps: bool,
    pub handle: Handle,
}

/// The answer to a claim.
#[derive(Debug)]
pub struct Claimed {
    pub grants: Vec<Grant>,
    /// Others took what this claim had looked at, and there may be more: look again at once.
    pub look_again: bool,
    /// Limits apply in these lanes: a wider view is worth its price.
    pub limited: bool,
    /// It has put work aside that has to wait: what is behind it comes into sight.
    pub passed_over: bool,
}

impl Operation for Claim {
    type Reply = Claimed;

    const NAME: &'static str = "claim";
    // Work that nobody is there to take would lie still until its lease ends.
    const NEEDS_CALLER: bool = true;

    fn is_served(claimed: &Claimed) -> bool {
        !claimed.grants.is_empty()
    }

    fn weight(&self) -> usize {
        self.max
    }

    fn needs(&self, needs: &mut Needs) {
        for lane in &self.lanes {
            let view = self.view.max(self.max);
            needs.claim(lane.clone(), self.capabilities.tokens.clone(), view);
        }
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        let offered = &self.capabilities.tokens;
        if world.claims_may_be_limited(&self.lanes, offered) {
            gate::more(world, needs, &self.lanes, &world.claimable(&self.lanes, offered));
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        let offered = &self.capabilities.tokens;
        let open = |lane: &&Arc<str>| world.lane_is_open(lane);
        let mut lanes: Vec<_> = self.lanes.iter().filter(open).cloned().collect();
        let unknown = gate::drop_unknown(world, &mut lanes);
        let mut found = world.claimable(&lanes, offered);
        let more = world.more_claimable(&lanes, offered);
        let mut gate = Gate::open(world, &lanes, &found);
        if let Some(gate) = &mut gate {
            gate.take_turns(&mut found);
        }
        let most = found.len().min(self.max);
        let mut grants = Vec::with_capacity(most);
        change.executions.reserve(most);
        change.attempts.reserve(most);
        change.events.reserve(most);
        let mut looked_at = 0;
        let mut passed_over = false;
        for row in &found {
            if grants.len() == self.max {
                break;
            }
            looked_at += 1;
            if let Some(flow) = world.flow_of(row).filter(|flow| flow.state.is_finished()) {
                hold(world, &mut change, row);
                flow::returned(&mut change, flow, row, world.now);
                continue;
            }
            if let Some(at) = row.deadline_at.filter(|at| *at <= world.now) {
                // Too late to be handed out. The sweeper ends it: it sees all that depends on it.
                let timer = TimerRow::single(TimerKind::Deadline, at, row.key, 0);
                change.timers.push(Write::Update(timer));
                continue;
            }
            let holds = match &mut gate {
                Some(gate) => match gate.admit(&mut change, row) {
                    Verdict::Admitted(holds) => holds,
                    Verdict::PutAside => {
                        passed_over = true;
                        continue;
                    }
                },
                None => None,
            };
            grants.push(self.grant(world, &mut change, row, holds.as_ref()));
        }
        if !grants.is_empty() {
            change.timers.push(Write::Insert(self.lease_timer(world, &grants)));
        }
        let limited = gate.is_some();
        if let Some(mut gate) = gate {
            passed_over |= gate.spread(&mut change, &found[looked_at..], more);
            gate.close(&mut change);
        }
        let look_again = grants.is_empty() && (more || unknown);
        Ok((Claimed { grants, look_again, limited, passed_over }, change))
    }
}

/// What the event of a claim says if the worker before has lost its lease.
const RECLAIMED: &str = r#"{"kind":"reclaimed"}"#;

impl Claim {
    fn grant(
        &self,
        world: &World,
        change: &mut Change,
        row: &ExecutionRow,
        holds: Option<&Holds>,
    ) -> Grant {
        let known = world.current_attempt(row);
        let epoch = row.lease_epoch.max(known.map_or(0, |attempt| attempt.lease_epoch)) + 1;
        let expires_at = world.now.after_ms(u64::from(self.lease_ttl_ms));
        let (attempt_type, kind) = kind_of_claim(row, known);
        let begun = self.attempt(world, row, known, (attempt_type, kind));
        let attempt =
            AttemptRow { lease_epoch: epoch, lease_expires_at: Some(expires_at), ..begun };
        let mut after = row.clone();
        after.phase = LifecyclePhase::Active;
        after.ownership = OwnershipState::Leased;
        after.eligibility = EligibilityState::NotApplicable;
        after.public_state = PublicState::Active;
        after.attempt_state = AttemptState::RunningAttempt;
        after.blocking = BlockingReason::None;
        after.started_at = after.started_at.or(Some(world.now));
        after.lease_epoch = epoch;
        after.set_limit_wait(None);
        if holds.is_some() {
            after.set_limit_holds(holds);
        }
        if row.policy.is_some()
            && let Some(timer) = attempt_timer(&after, world.now)
        {
            // Claimed, revoked and claimed within one millisecond: its timer is there already.
            change.timers.push(Write::Update(timer));
        }
        let put = if known.is_some() { Write::Update } else { Write::Insert };
        change.attempts.push(put(attempt));
        let by = Some(self.worker_instance_id.clone());
        transition(change, row, after, EventType::Claimed, world.now, |event| {
            let reclaimed = kind == HandleKind::Reclaimed;
            EventRow { details: reclaimed.then(|| RECLAIMED.into()), ..event.by(by) }
        });
        let handle = Handle::new(
            row.key,
            row.attempt_index,
            (epoch, self.lease_nonce()),
            self.lease_ttl_ms,
            WorkerInstanceId::new(&*self.worker_instance_id),
            kind,
        );
        Grant {
            key: row.key,
            namespace: row.namespace.clone(),
            lane: row.lane.clone(),
            kind: row.kind.clone(),
            flow_id: row.flow_id,
            merges_results: row.merges_results(),
            payload: row.payload.clone(),
            payload_encoding: row.payload_encoding.clone(),
            tags: row.tags.clone(),
            priority: row.priority,
            attempt_type,
            lease_expires_at: expires_at,
            created_at: row.created_at,
            deadline_at: row.deadline_at,
            generation: if kind == HandleKind::Resumed { row.replay_count() } else { 0 },
            has_steps: row.has_steps(),
            handle,
        }
    }

    /// The random half of the claim's id, as a number that every store can hold.
    fn lease_nonce(&self) -> u64 {
        self.claim_id.as_u64_pair().1 & u64::MAX >> 2
    }

    /// The attempt as its worker begins it, or goes on with it; its lease apart.
    fn attempt(
        &self,
        world: &World,
        row: &ExecutionRow,
        known: Option<&AttemptRow>,
        (attempt_type, kind): (AttemptType, HandleKind),
    ) -> AttemptRow {
        let resumed = known.filter(|_| kind == HandleKind::Resumed);
        AttemptRow {
            key: AttemptKey { execution: row.key, index: row.attempt_index },
            attempt_type,
            lease_epoch: 0,
            lease_nonce: self.lease_nonce(),
            worker_id: Some(self.worker_id.clone()),
            worker_instance_id: Some(self.worker_instance_id.clone()),
            lease_expires_at: None,
            started_at: resumed.and_then(|attempt| attempt.started_at).or(Some(world.now)),
            ended_at: None,
            outcome: None,
            failure_reason: None,
            failure_category: None,
            retry_at: None,
            progress_percent: resumed.and_then(|attempt| attempt.progress_percent),
            progress_message: resumed.and_then(|attempt| attempt.progress_message.clone()),
        }
    }

    /// One timer for everything that this call hands out.
    fn lease_timer(&self, world: &World, grants: &[Grant]) -> TimerRow {
        let due_at = world.now.after_ms(u64::from(self.lease_ttl_ms));
        let members = grants.iter().map(|grant| TimerMember {
            execution: grant.key,
            lease_epoch: grant.handle.lease_epoch().0,
        });
        let key = TimerKey { due_at, kind: TimerKind::Lease, subject: self.claim_id };
        TimerRow { key, members: members.collect() }
    }
}

/// An interrupted attempt goes on if its row is there; after an expired lease a new one begins.
fn kind_of_claim(row: &ExecutionRow, known: Option<&AttemptRow>) -> (AttemptType, HandleKind) {
    match (row.attempt_state, known) {
        (AttemptState::AttemptInterrupted, Some(attempt)) => {
            (attempt.attempt_type, HandleKind::Resumed)
        }
        (AttemptState::AttemptInterrupted, None) => (AttemptType::Reclaim, HandleKind::Reclaimed),
        (AttemptState::PendingRetryAttempt, _) => (AttemptType::Retry, HandleKind::Fresh),
        (AttemptState::PendingReplayAttempt, _) => (AttemptType::Replay, HandleKind::Fresh),
        _ => (AttemptType::Initial, HandleKind::Fresh),
    }
}

/// Counts from the claim: time that an attempt spends put down is not time that it runs.
fn attempt_timer(row: &ExecutionRow, now: TimestampMs) -> Option<TimerRow> {
    let timeout_ms = row.policy().timeout_policy.attempt_timeout_ms?;
    let due_at = now.after_ms(timeout_ms);
    Some(TimerRow::single(TimerKind::AttemptTimeout, due_at, row.key, row.lease_epoch))
}

/// Takes a member of an ended flow out of the claim index, so that it stands in nobody's way.
pub(crate) fn hold(world: &World, change: &mut Change, row: &ExecutionRow) {
    let mut after = row.clone();
    super::finish::disarm_ready(change, row);
    if row.phase == LifecyclePhase::Suspended {
        end_waits(world, change, row, WaitEnd::ExecutionEnded);
    }
    hold_back(&mut after);
    transition(change, row, after, EventType::Held, world.now, |event| event);
}

/// Not handed out again, because its flow was cancelled.
pub(crate) fn hold_back(row: &mut ExecutionRow) {
    row.phase = LifecyclePhase::Runnable;
    row.eligibility = EligibilityState::BlockedByOperator;
    row.blocking = BlockingReason::PausedByFlowCancel;
    row.public_state = PublicState::Waiting;
    row.not_before = None;
}
