//! Cascades go on: what did not fit into the transaction that caused it, chunk by chunk.

use std::collections::HashSet;

use uuid::Uuid;

use super::cascade::{self, SPARED, Told, edges_from, edges_into};
use super::drafts::{latest, latest_execution, latest_flow};
use super::reach::{self, CHUNK};
use super::{backlog, forget, replay};
use crate::operations::execution::ending;
use crate::operations::execution::finish::{AttemptEnding, Ending, finish};
use crate::rows::{
    CascadeKind, CascadeRow, ChildrenKey, ChildrenRow, EdgeGroupKey, EdgeGroupRow, EdgeKind,
    EdgeRow, FlowKey, FlowState, Record, TimerKey, TimerKind, TimerRow, Word, values,
};
use crate::state::{AttemptOutcome, TerminalOutcome};
use crate::store::{Change, MemberScan, Needs, Scan, World, Write};
use crate::types::{CancelSource, TimestampMs};

/// How many cascades one sweep goes on with; each may bring a chunk of members.
pub(crate) const AT_ONCE: usize = 64;

/// How many causes of work on one subject a sweep looks at.
const CAUSES: usize = 256;

/// What is left to do about an execution or a flow, earlier causes first.
fn cascades_of(subject: Uuid) -> Scan {
    Scan::of::<CascadeRow>(values![subject]).limit(CAUSES)
}

/// The members that a chunk of a flow's cancellation deals with.
pub(super) fn chunk_of_members(row: &CascadeRow) -> MemberScan {
    MemberScan { flow: row.flow, after: row.after, limit: CHUNK }
}

/// Asks for what the cascades of a timer's subject need. `skipped` are the members that this sweep
/// is going to skip.
pub(crate) fn more(
    world: &World,
    needs: &mut Needs,
    timer: &TimerRow,
    skipped: &mut HashSet<Uuid>,
) {
    let scan = cascades_of(timer.key.subject);
    needs.scan(&scan);
    for row in world.scan::<CascadeRow>(&scan) {
        more_of(world, needs, &row);
        if row.key.kind.0 == CascadeKind::Ended && row.outcome.0 != TerminalOutcome::Success {
            let edges = edges_from(row.flow, row.key.subject, row.after);
            cascade::more_skipped(world, needs, row.flow, &edges, skipped);
        }
    }
}

fn more_of(world: &World, needs: &mut Needs, row: &CascadeRow) {
    let subject = row.key.subject;
    match row.key.kind.0 {
        CascadeKind::Ended | CascadeKind::Reopened => {
            needs.flows.insert(row.flow);
            let edges = edges_from(row.flow, subject, row.after);
            needs.edges(&edges, row.flow);
            cascade::more_behind(world, needs, row.flow, &edges);
        }
        CascadeKind::Decided => {
            let execution = row.flow.member(subject);
            needs.flows.insert(row.flow);
            needs.execution(execution);
            let key = EdgeGroupKey { flow: row.flow, downstream: subject };
            needs.record::<EdgeGroupRow>(&key);
            needs.record::<ChildrenRow>(&ChildrenKey { execution });
        }
        CascadeKind::Returned => {
            needs.flows.insert(row.flow);
            needs.execution(row.flow.member(subject));
            if let Some(row) = world.executions.get(&row.flow.member(subject)) {
                ending::more_alone(needs, row);
            }
        }
        CascadeKind::Siblings => {
            needs.flows.insert(row.flow);
            let edges = edges_into(row.flow, subject, row.after);
            needs.scan(&edges);
            for edge in world.scan::<EdgeRow>(&edges) {
                let sibling = row.flow.member(edge.upstream);
                needs.execution(sibling);
                if let Some(sibling) = world.executions.get(&sibling) {
                    ending::more_alone(needs, sibling);
                    cascade::more_of_group(needs, row.flow, sibling);
                }
            }
        }
        CascadeKind::Members => {
            needs.flows.insert(row.flow);
            let scan = chunk_of_members(row);
            needs.members.insert(scan);
            for member in world.members(&scan) {
                ending::more_alone(needs, member);
            }
            backlog::more(needs, row.flow);
        }
        CascadeKind::Backlog => backlog::more_to_drain(needs, row.flow),
        CascadeKind::Forget => forget::more(world, needs, row),
    }
}

/// Goes on with everything that is left to do about the timer's subject.
pub(crate) fn due(world: &World, change: &mut Change, timer: &TimerRow) {
    let rows: Vec<CascadeRow> = world.scan(&cascades_of(timer.key.subject));
    let mut again: Option<TimestampMs> = None;
    let mut told = false;
    for row in rows {
        let telling = matches!(row.key.kind.0, CascadeKind::Ended | CascadeKind::Reopened);
        // What the children are told must come in the order in which it happened.
        if telling && std::mem::replace(&mut told, true) {
            again = Some(world.now);
            continue;
        }
        let at = match step(world, change, &row) {
            Step::Done => {
                change.delete::<CascadeRow>(&row.key);
                continue;
            }
            Step::GoesOn(after) => {
                change.update(&CascadeRow { after, counted: true, ..row });
                world.now
            }
            Step::Waits(until) => until,
        };
        again = Some(again.map_or(at, |known| known.min(at)));
    }
    let next = again.map(|due_at| TimerKey { due_at, ..timer.key });
    if next != Some(timer.key) {
        looked_at(change, timer);
    }
    if let Some(key) = next {
        change.timers.push(Write::Update(TimerRow { key, members: Vec::new() }));
    }
    debug_assert_eq!(timer.key.kind, TimerKind::Cascade);
}

/// The timer has done its work, unless this sweep has left more to do about the same subject.
pub(crate) fn looked_at(change: &mut Change, timer: &TimerRow) {
    let armed = |write: &Write<TimerRow>| match write {
        Write::Insert(row) | Write::Update(row) => row.key == timer.key,
        Write::Delete(_) => false,
    };
    if !change.timers.iter().any(armed) {
        change.timers.push(Write::Delete(timer.key));
    }
}

/// What became of a cascade.
pub(super) enum Step {
    Done,
    /// This far it is done, and there is more.
    GoesOn(Option<Uuid>),
    /// Its time has not come.
    Waits(TimestampMs),
}

fn step(world: &World, change: &mut Change, row: &CascadeRow) -> Step {
    let subject = row.key.subject;
    if !is_loaded(world, row) {
        return Step::Waits(world.now);
    }
    match row.key.kind.0 {
        CascadeKind::Ended if is_cancelled(world, change, row.flow) => {
            count(world, change, row);
            Step::Done
        }
        CascadeKind::Ended | CascadeKind::Reopened => {
            let edges = edges_from(row.flow, subject, row.after);
            let last = tell(world, change, row, &edges);
            if world.scan_is_cut(&edges) { Step::GoesOn(last) } else { Step::Done }
        }
        CascadeKind::Decided => {
            let key = EdgeGroupKey { flow: row.flow, downstream: subject };
            if let Some(group) = latest::<EdgeGroupRow>(world, change, &key) {
                cascade::follow(world, change, &group);
            }
            let key = ChildrenKey { execution: row.flow.member(subject) };
            cascade::follow_children(world, change, &key);
            Step::Done
        }
        CascadeKind::Returned => {
            let member = latest_execution(world, change, row.flow.member(subject));
            if let Some(member) = member.filter(|row| !row.is_finished()) {
                reach::Reach::recalled(row).member(world, change, &member);
            }
            Step::Done
        }
        CascadeKind::Siblings => {
            let edges = edges_into(row.flow, subject, row.after);
            let last = cancel_siblings(world, change, row, &edges);
            if world.scan_is_cut(&edges) { Step::GoesOn(last) } else { Step::Done }
        }
        CascadeKind::Members => match reach::chunk(world, change, row) {
            Some(last) => Step::GoesOn(Some(last)),
            None => Step::Done,
        },
        CascadeKind::Backlog if row.at > world.now => Step::Waits(row.at),
        CascadeKind::Backlog => backlog::drain(world, change, row),
        CascadeKind::Forget => forget::step(world, change, row),
    }
}

/// A cascade that an operation of this very batch has left is for the next sweep.
fn is_loaded(world: &World, row: &CascadeRow) -> bool {
    let subject = row.key.subject;
    let scanned = world.scans.get(&cascades_of(subject));
    let key = CascadeRow::erase_key(&row.key);
    if !scanned.is_some_and(|scanned| scanned.keys.contains(&key)) {
        return false;
    }
    match row.key.kind.0 {
        CascadeKind::Ended | CascadeKind::Reopened => {
            world.has_scanned(&edges_from(row.flow, subject, row.after))
        }
        CascadeKind::Siblings => world.has_scanned(&edges_into(row.flow, subject, row.after)),
        CascadeKind::Decided | CascadeKind::Returned => true,
        CascadeKind::Members => world.members.contains_key(&chunk_of_members(row)),
        CascadeKind::Backlog => backlog::is_loaded(world, row.flow),
        CascadeKind::Forget => forget::is_loaded(world, row),
    }
}

/// Nobody is told of anything in a cancelled flow.
fn is_cancelled(world: &World, change: &Change, flow: FlowKey) -> bool {
    latest_flow(world, change, flow).is_some_and(|flow| flow.state == FlowState::Cancelled)
}

fn count(world: &World, change: &mut Change, row: &CascadeRow) {
    if !row.counted {
        cascade::count(world, change, row.flow, row.outcome.0, false);
    }
}

fn tell(world: &World, change: &mut Change, row: &CascadeRow, edges: &Scan) -> Option<Uuid> {
    let told = Told {
        flow: row.flow,
        upstream: row.key.subject,
        outcome: row.outcome.0,
        version: row.key.version,
        at: row.at,
    };
    if row.key.kind == Word(CascadeKind::Reopened) {
        return replay::take_back(world, change, &told, &world.scan(edges));
    }
    count(world, change, row);
    cascade::tell(world, change, &told, &world.scan(edges))
}

/// Enough parents have completed, or too many have not: the others need not go on.
fn cancel_siblings(
    world: &World,
    change: &mut Change,
    row: &CascadeRow,
    edges: &Scan,
) -> Option<Uuid> {
    let edges: Vec<EdgeRow> = world.scan(edges);
    let reason = row.reason.clone().unwrap_or_else(|| SPARED.into());
    for edge in edges.iter().filter(|edge| edge.kind == Word(EdgeKind::Depends)) {
        let sibling = latest_execution(world, change, row.flow.member(edge.upstream));
        let Some(sibling) = sibling.filter(|row| !row.is_finished()) else { continue };
        let ending = Ending {
            reason: Some(reason.clone()),
            by: Some(CancelSource::FlowCascade.as_str().into()),
            ..Ending::new(
                TerminalOutcome::Cancelled,
                world.now,
                AttemptEnding::FromOutside(AttemptOutcome::Cancelled),
            )
        };
        finish(world, change, &sibling, ending, |_| {});
    }
    edges.last().map(|edge| edge.key.edge_id)
}
