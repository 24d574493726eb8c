//! Looks at everything that is due. Timers propose; the executions' own rows decide.

use std::collections::HashSet;

use uuid::Uuid;

use super::expected::ANY_EPOCH;
use super::isolation::{Isolation, TimerFault};
use crate::contracts::{EventType, FailureClass};
use crate::engine_error::EngineError;
use crate::mutants::{self, Mutant};
use crate::operations::execution::ending;
use crate::operations::execution::finish::{AttemptEnding, Ending, finish};
use crate::operations::execution::requeue::{Failure, expire_lease, fail_attempt, make_ready};
use crate::operations::execution::{Accepted, transition};
use crate::operations::{Note, Operation, bulk, flow, limit, schedule, suspension, worker};
use crate::rows::{ExecutionRow, IdempotencyKey, TimerKey, TimerKind, TimerMember, TimerRow};
use crate::state::{AttemptOutcome, EligibilityState, LifecyclePhase, TerminalOutcome};
use crate::store::{Change, Needs, World, Write};
use crate::types::{ExecutionKey, TimestampMs};

#[derive(Debug)]
pub struct Sweep {
    /// At most this many timers in one transaction.
    pub limit: usize,
    /// At most this many executions are changed by one bulk operation.
    pub bulk_chunk: usize,
    pub entropy: u64,
    /// Each timer is looked at by itself, because a sweep before this one has panicked.
    pub isolation: Option<Isolation>,
}

/// What came of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    /// How many timers were looked at.
    pub timers: usize,
    /// Those that panicked and were put off.
    pub faults: Vec<TimerFault>,
    /// What an operator should hear of.
    pub notes: Vec<Note>,
}

impl Operation for Sweep {
    type Reply = Swept;

    const NAME: &'static str = "sweep";

    /// One due timer may stand for a thousand members of a flow: nobody should share its commit.
    fn weight(&self) -> usize {
        usize::MAX
    }

    fn needs(&self, needs: &mut Needs) {
        needs.due_timers = needs.due_timers.max(self.limit);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        let mut skipped = HashSet::new();
        let others = due(world).filter(|timer| timer.key.kind != TimerKind::Cascade);
        for timer in others.chain(cascades(world)) {
            match &self.isolation {
                None => self.ask(world, needs, timer, &mut skipped),
                Some(isolation) => {
                    isolation.ask(timer, || self.ask(world, needs, timer, &mut skipped));
                }
            }
        }
    }

    fn decide(&self, world: &World) -> Result<(Swept, Change), EngineError> {
        let mut progress = Progress::default();
        let others = due(world).filter(|timer| timer.key.kind != TimerKind::Cascade);
        // Cascades come first, and those that are too many stay for the next sweep.
        for timer in cascades(world).chain(others) {
            match &self.isolation {
                None => self.fire(world, &mut progress, timer),
                Some(isolation) => isolation.fire(world, &mut progress, timer, |progress| {
                    self.fire(world, progress, timer);
                }),
            }
        }
        let Progress { change, sweeping, faults, .. } = progress;
        Ok((Swept { timers: due(world).count(), faults, notes: sweeping.notes }, change))
    }
}

impl Sweep {
    /// Names what a timer must see.
    fn ask(&self, world: &World, needs: &mut Needs, timer: &TimerRow, skipped: &mut HashSet<Uuid>) {
        for member in &timer.members {
            if is_due(world, timer.key.kind, *member) {
                ending::more(world, needs, member.execution);
            }
        }
        match timer.key.kind {
            TimerKind::Suspension | TimerKind::Waitpoint => {
                suspension::due::more(world, needs, timer);
            }
            TimerKind::Worker => worker::due::more(needs, timer),
            TimerKind::Limit => limit::due::more(world, needs, timer),
            TimerKind::Schedule => schedule::due::more(world, needs, timer),
            TimerKind::Bulk => bulk::due::more(world, needs, timer, self.bulk_chunk),
            TimerKind::Cascade => flow::due::more(world, needs, timer, skipped),
            TimerKind::Lease
            | TimerKind::Ready
            | TimerKind::Deadline
            | TimerKind::AttemptTimeout
            | TimerKind::Idempotency => {}
        }
    }

    /// Does what a timer is for.
    fn fire(&self, world: &World, progress: &mut Progress, timer: &TimerRow) {
        let Progress { change, sweeping, limits, cascaded, .. } = progress;
        let entropy = self.entropy ^ timer.key.subject.as_u64_pair().1;
        match timer.key.kind {
            TimerKind::Lease
            | TimerKind::Ready
            | TimerKind::Deadline
            | TimerKind::AttemptTimeout
            | TimerKind::Idempotency
            | TimerKind::Suspension
            | TimerKind::Waitpoint => {
                look_at_members(world, change, timer, entropy, &mut sweeping.moved);
            }
            TimerKind::Worker => {
                let again = worker::due::due(world, change, timer);
                look_again(change, timer, again);
            }
            TimerKind::Limit if limits.insert(timer.key.subject) => {
                limit::due::due(world, change, timer, &mut sweeping.moved);
            }
            // This sweep has looked at it already.
            TimerKind::Limit => change.timers.push(Write::Delete(timer.key)),
            TimerKind::Cascade => {
                let before = change.executions.len();
                // The first look at a subject goes on with all that is left to do about it.
                if cascaded.insert(timer.key.subject) {
                    flow::due::due(world, change, timer);
                } else {
                    flow::due::looked_at(change, timer);
                }
                sweeping.note_moved(change, before);
            }
            TimerKind::Schedule | TimerKind::Bulk if !sweeping.first_look(timer) => {}
            TimerKind::Schedule => {
                let again = schedule::due::due(world, change, timer, sweeping);
                look_again(change, timer, again);
            }
            TimerKind::Bulk => {
                let again = bulk::due::due(world, change, timer, sweeping);
                look_again(change, timer, again);
            }
        }
    }
}

/// How far a sweep has come.
#[derive(Clone, Default)]
pub(super) struct Progress {
    pub change: Change,
    sweeping: Sweeping,
    limits: HashSet<Uuid>,
    cascaded: HashSet<Uuid>,
    pub faults: Vec<TimerFault>,
}

/// The timers that are due by the world's clock. It may have stepped back since they were found:
/// those that are not due any more stay as they are.
fn due(world: &World) -> impl Iterator<Item = &TimerRow> {
    world.due_timers.iter().filter(|timer| timer.key.due_at <= world.now)
}

/// The work on graphs that this sweep goes on with.
fn cascades(world: &World) -> impl Iterator<Item = &TimerRow> {
    let of_graphs = |timer: &&TimerRow| timer.key.kind == TimerKind::Cascade;
    due(world).filter(of_graphs).take(flow::due::AT_ONCE)
}

fn moved_key(write: &Write<ExecutionRow>) -> Option<ExecutionKey> {
    match write {
        Write::Insert(row) | Write::Update(row) => Some(row.key),
        Write::Delete(_) => None,
    }
}

/// Whether the timer takes its execution out of somebody's hands or ends it, so that what hangs on
/// it must be seen. Most timers find that their lease was renewed.
fn is_due(world: &World, kind: TimerKind, member: TimerMember) -> bool {
    let Some(row) = world.executions.get(&member.execution) else { return false };
    match kind {
        TimerKind::Lease => {
            let attempt = world.current_attempt(row);
            let until = attempt.and_then(|attempt| attempt.lease_expires_at);
            until.is_some_and(|until| until <= world.now)
        }
        TimerKind::Deadline => row.deadline_at.is_some_and(|at| at <= world.now),
        TimerKind::AttemptTimeout => row.lease_epoch == member.lease_epoch,
        TimerKind::Suspension | TimerKind::Waitpoint => true,
        TimerKind::Ready
        | TimerKind::Idempotency
        | TimerKind::Worker
        | TimerKind::Limit
        | TimerKind::Cascade
        | TimerKind::Schedule
        | TimerKind::Bulk => false,
    }
}

/// What one sweep has done so far, which the world does not show.
#[derive(Clone, Default)]
pub(crate) struct Sweeping {
    /// One execution is moved once per sweep, however many timers point at it; a timer that came
    /// too late for it stays and is looked at in the next one.
    pub moved: HashSet<ExecutionKey>,
    /// What was submitted.
    pub accepted: Accepted,
    /// What an operator should hear of.
    pub notes: Vec<Note>,
    /// Records that were looked at. A second timer for one stays for the next sweep.
    subjects: HashSet<Uuid>,
}

impl Sweeping {
    /// Notes what a change has moved since it had so many executions in it.
    pub fn note_moved(&mut self, change: &Change, before: usize) {
        self.moved.extend(change.executions[before..].iter().filter_map(|write| match write {
            Write::Insert(row) | Write::Update(row) => Some(row.key),
            Write::Delete(_) => None,
        }));
    }

    fn first_look(&mut self, timer: &TimerRow) -> bool {
        self.subjects.insert(timer.key.subject)
    }
}

/// Looks at each execution that the timer names.
fn look_at_members(
    world: &World,
    change: &mut Change,
    timer: &TimerRow,
    entropy: u64,
    moved: &mut HashSet<ExecutionKey>,
) {
    let mut rest: Vec<(TimerMember, TimestampMs)> = Vec::new();
    for (at, member) in timer.members.iter().enumerate() {
        if moved.contains(&member.execution) {
            rest.push((*member, timer.key.due_at));
            continue;
        }
        let before = change.executions.len();
        let entropy = entropy.rotate_left(at as u32);
        let again = look(world, change, timer.key, *member, entropy);
        // Not due yet means armed again.
        if let Some(due) = again.filter(|_| !mutants::active(Mutant::TimerForgotten)) {
            rest.push((*member, due));
        }
        // The end of one member may move others of its flow.
        moved.extend(change.executions[before..].iter().filter_map(moved_key));
    }
    rearm(change, timer, &rest);
}

/// Moves a timer that has no members to its next time, or takes it away. If what was done meanwhile
/// asks for a look at this very moment, that stays.
fn look_again(change: &mut Change, timer: &TimerRow, again: Option<TimestampMs>) {
    let same =
        |write: &Write<TimerRow>| matches!(write, Write::Update(row) if row.key == timer.key);
    if !change.timers.iter().any(same) {
        change.timers.push(Write::Delete(timer.key));
    }
    if let Some(due_at) = again {
        let key = TimerKey { due_at, ..timer.key };
        change.timers.push(Write::Update(TimerRow { key, members: Vec::new() }));
    }
}

/// Keeps watching what still stands, from the earliest moment at which it may not.
fn rearm(change: &mut Change, timer: &TimerRow, rest: &[(TimerMember, TimestampMs)]) {
    let Some(due_at) = rest.iter().map(|(_, due)| *due).min() else {
        change.timers.push(Write::Delete(timer.key));
        return;
    };
    let members = rest.iter().map(|(member, _)| *member).collect();
    let key = TimerKey { due_at, ..timer.key };
    if key != timer.key {
        change.timers.push(Write::Delete(timer.key));
    }
    change.timers.push(Write::Update(TimerRow { key, members }));
}

/// Does what is due for one execution; `Some` asks to look again then.
fn look(
    world: &World,
    change: &mut Change,
    key: TimerKey,
    member: TimerMember,
    entropy: u64,
) -> Option<TimestampMs> {
    let row = world.executions.get(&member.execution)?;
    match key.kind {
        TimerKind::Lease => lease_due(world, change, row, member),
        TimerKind::Ready => ready_due(world, change, row),
        TimerKind::Deadline => deadline_due(world, change, row),
        TimerKind::AttemptTimeout => attempt_due(world, change, row, member, entropy),
        TimerKind::Idempotency => idempotency_due(world, change, row),
        TimerKind::Suspension => suspension::due::suspension_due(world, change, row),
        TimerKind::Waitpoint => suspension::due::waitpoint_due(world, change, row, key.subject),
        TimerKind::Worker => None,
        TimerKind::Limit => None,
        TimerKind::Cascade => None,
        TimerKind::Schedule | TimerKind::Bulk => None,
    }
}

fn lease_due(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    member: TimerMember,
) -> Option<TimestampMs> {
    let attempt = world.current_attempt(row)?;
    let stale_rescue = mutants::active(Mutant::StaleRescue);
    if row.phase != LifecyclePhase::Active || !attempt.is_leased() {
        return None;
    }
    let watched = [attempt.lease_epoch, ANY_EPOCH].contains(&member.lease_epoch);
    if !watched && !stale_rescue {
        return None;
    }
    let now = TimestampMs(world.now.0 + mutants::node_clock_skew_ms());
    match attempt.lease_expires_at {
        Some(expires_at) if expires_at > now && !stale_rescue => Some(expires_at),
        _ => {
            expire_lease(world, change, row, attempt);
            None
        }
    }
}

fn ready_due(world: &World, change: &mut Change, row: &ExecutionRow) -> Option<TimestampMs> {
    let waiting = matches!(row.phase, LifecyclePhase::Submitted | LifecyclePhase::Runnable)
        && row.eligibility == EligibilityState::NotEligibleUntilTime;
    if !waiting {
        return None;
    }
    let later = row.not_before.filter(|at| *at > world.now);
    if later.is_none() {
        let mut after = row.clone();
        make_ready(&mut after);
        transition(change, row, after, EventType::Ready, world.now, |event| event);
    }
    later
}

fn deadline_due(world: &World, change: &mut Change, row: &ExecutionRow) -> Option<TimestampMs> {
    let deadline = row.deadline_at.filter(|_| !row.is_finished())?;
    if deadline > world.now {
        return Some(deadline);
    }
    let mut ending = Ending::new(
        TerminalOutcome::Expired,
        world.now,
        AttemptEnding::FromOutside(AttemptOutcome::DeadlineExceeded),
    );
    ending.reason = Some("execution_deadline".into());
    finish(world, change, row, ending, |_| {});
    None
}

fn attempt_due(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    member: TimerMember,
    entropy: u64,
) -> Option<TimestampMs> {
    let attempt = world.current_attempt(row)?;
    let running = row.phase == LifecyclePhase::Active
        && attempt.is_leased()
        && attempt.lease_epoch == member.lease_epoch;
    if running {
        let failure = Failure {
            reason: "attempt_timeout".into(),
            category: "attempt_timeout".into(),
            class: FailureClass::Retryable,
            retried: AttemptOutcome::TimedOut,
            exhausted: (TerminalOutcome::Expired, AttemptOutcome::TimedOut),
            by: attempt.worker_instance_id.clone(),
            entropy,
            by_holder: false,
        };
        fail_attempt(world, change, row, attempt, failure);
    }
    None
}

fn idempotency_due(world: &World, change: &mut Change, row: &ExecutionRow) -> Option<TimestampMs> {
    let key =
        IdempotencyKey { namespace: row.namespace.clone(), key: row.idempotency_key.clone()? };
    let known = world.idempotency.get(&key)?;
    if known.execution != row.key {
        return None;
    }
    if known.holds(world.now) {
        return known.expires_at;
    }
    change.idempotency.push(Write::Delete(key));
    None
}
