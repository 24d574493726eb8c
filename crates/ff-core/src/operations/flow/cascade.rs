//! What the end of a member does to the members behind it, in the transaction that ends it.
//!
//! Children are told inline as far as one scan reaches. Whatever lies deeper or was not loaded is
//! left as a cascade: a record and a timer that is due at once, so that no crash can lose it. The
//! lock of the flow stands for its edges.

use std::collections::HashSet;

use serde_json::json;
use uuid::Uuid;

use super::drafts::{latest, latest_execution, latest_flow, put_flow};
use super::rule::{self, Tally};
use crate::contracts::{EdgeGroupState, EventType, OnSatisfied};
use crate::mutants::{self, Mutant};
use crate::operations::execution::finish::{AttemptEnding, Ending, finish};
use crate::operations::execution::requeue::wait_until;
use crate::operations::execution::transition;
use crate::rows::{
    Blob, CascadeKey, CascadeKind, CascadeRow, ChildrenKey, ChildrenRow, EdgeGroupKey,
    EdgeGroupRow, EdgeKind, EdgeRow, EventRow, ExecutionRow, FlowKey, FlowRow, FlowState, LaneRow,
    TimerKind, TimerRow, Word, values,
};
use crate::state::{
    AttemptOutcome, AttemptState, BlockingReason, EligibilityState, TerminalOutcome,
};
use crate::store::{Change, Needs, Scan, World, Write};
use crate::types::{CancelSource, TimestampMs};

/// How many edges of a member one transaction follows.
const CHUNK: usize = 1_000;
/// How many members the transaction that ends another skips: each leaves a cascade of its own.
const SKIPPED_AT_ONCE: usize = 256;
/// How deep one transaction follows the skips that a skip causes.
const LEVELS: usize = 32;
/// How many members it skips on that way at most.
pub(super) const SKIPPED: usize = 1_000;

/// Why a sibling is cancelled that is not needed any more.
pub(crate) const SPARED: &str = "sibling_quorum_satisfied";
/// Why a sibling is cancelled whose success would change nothing.
pub(crate) const POINTLESS: &str = "sibling_quorum_impossible";

/// The edges that lead away from a member. A member is of one flow, so that naming the flow would
/// only invite a store to look through all the edges of the flow.
pub(crate) fn edges_from(flow: FlowKey, upstream: Uuid, after: Option<Uuid>) -> Scan {
    let prefix = values![flow.partition, upstream];
    let scan = Scan::of::<EdgeRow>(prefix).by(&EdgeRow::BY_UPSTREAM).limit(CHUNK).unlocked();
    scan.after(after.map(|edge| values![flow.id, edge]).unwrap_or_default())
}

/// The edges that lead to a member.
pub(crate) fn edges_into(flow: FlowKey, downstream: Uuid, after: Option<Uuid>) -> Scan {
    let prefix = values![flow.partition, downstream];
    let scan = Scan::of::<EdgeRow>(prefix).by(&EdgeRow::BY_DOWNSTREAM).limit(CHUNK).unlocked();
    scan.after(after.map(|edge| values![flow.id, edge]).unwrap_or_default())
}

/// The flow of a member: its row's key where it was loaded, for a store may have another number
/// for its partition than the execution's id names.
pub(crate) fn flow_key(world: &World, row: &ExecutionRow) -> Option<FlowKey> {
    let own = FlowKey { partition: row.key.partition, id: row.flow_id? };
    Some(world.flow_of(row).map_or(own, |flow| flow.key))
}

/// What [`advance`] will look at if this execution ends.
pub(crate) fn more(world: &World, needs: &mut Needs, row: &ExecutionRow) {
    let Some(flow) = flow_key(world, row).filter(|_| !row.is_finished()) else { return };
    more_of_group(needs, flow, row);
    more_of_lane(needs, row);
    let scan = edges_from(flow, row.key.id, None);
    match world.has_scanned(&scan) {
        true => more_behind(world, needs, flow, &scan),
        false => needs.scan(&scan),
    }
}

/// A member that waits for its parents has a group to leave.
pub(super) fn more_of_group(needs: &mut Needs, flow: FlowKey, row: &ExecutionRow) {
    if row.eligibility == EligibilityState::BlockedByDependencies {
        needs.record::<EdgeGroupRow>(&EdgeGroupKey { flow, downstream: row.key.id });
    }
}

/// Claims that wait for work are decided behind whoever makes a member ready, and must know whether
/// its lane is open and whether limits apply. Most children are of their parents' lane.
fn more_of_lane(needs: &mut Needs, row: &ExecutionRow) {
    if !needs.lanes.contains(&row.lane) {
        needs.lanes.insert(row.lane.clone());
        needs.lanes.insert(LaneRow::every());
    }
}

fn fires_twice() -> bool {
    mutants::active(Mutant::GroupFiredTwice)
}

/// What stands behind edges that were read.
pub(super) fn more_behind(world: &World, needs: &mut Needs, flow: FlowKey, edges: &Scan) {
    for edge in world.scan::<EdgeRow>(edges) {
        let child = flow.member(edge.downstream);
        match edge.kind.0 {
            EdgeKind::Depends => {
                let key = EdgeGroupKey { flow, downstream: edge.downstream };
                let Some(mut group) = world.record::<EdgeGroupRow>(&key) else {
                    needs.record::<EdgeGroupRow>(&key);
                    continue;
                };
                // A member whose parents have decided is not touched, so it is not locked either.
                if group.is_pending() || fires_twice() {
                    let row = world.executions.get(&child);
                    match row {
                        Some(row) => more_of_lane(needs, row),
                        None => needs.execution(child),
                    }
                    if row.is_none_or(|row| row.payload == Blob::Apart) {
                        count_parent(&mut group, TerminalOutcome::Success, 1);
                        let state = rule::decide(group.policy(), tally(&group));
                        if state == EdgeGroupState::Satisfied {
                            needs.payloads.insert(child);
                        }
                    }
                }
            }
            EdgeKind::Awaits => {
                let key = ChildrenKey { execution: child };
                needs.record::<ChildrenRow>(&key);
                if world.record::<ChildrenRow>(&key).is_some_and(|children| children.waiting) {
                    needs.execution(child);
                }
            }
        }
    }
}

/// What the members will look at that are skipped because a member did not succeed: each of them
/// ends too, and those behind it are told in turn. What lies deeper or is one too many is left as a
/// cascade of its own.
pub(super) fn more_skipped(
    world: &World,
    needs: &mut Needs,
    flow: FlowKey,
    edges: &Scan,
    skipped: &mut HashSet<Uuid>,
) {
    more_of_level(world, needs, flow, edges, (skipped, LEVELS));
}

fn more_of_level(
    world: &World,
    needs: &mut Needs,
    flow: FlowKey,
    edges: &Scan,
    (skipped, levels): (&mut HashSet<Uuid>, usize),
) {
    if levels == 0 {
        return;
    }
    for edge in world.scan::<EdgeRow>(edges) {
        if skipped.len() < SKIPPED
            && edge.kind == Word(EdgeKind::Depends)
            && will_be_skipped(world, flow, edge.downstream)
            && skipped.insert(edge.downstream)
        {
            let behind = edges_from(flow, edge.downstream, None);
            needs.scan(&behind);
            more_behind(world, needs, flow, &behind);
            more_of_level(world, needs, flow, &behind, (skipped, levels - 1));
        }
    }
}

/// Whether one more parent that does not succeed is one too many for a member that is at hand.
fn will_be_skipped(world: &World, flow: FlowKey, member: Uuid) -> bool {
    let key = EdgeGroupKey { flow, downstream: member };
    let Some(mut group) = world.record::<EdgeGroupRow>(&key) else { return false };
    if !group.is_pending() || world.executions.get(&flow.member(member)).is_none() {
        return false;
    }
    count_parent(&mut group, TerminalOutcome::Skipped, 1);
    rule::decide(group.policy(), tally(&group)) == EdgeGroupState::Impossible
}

/// The end of a member, as those behind it are told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub flow: FlowKey,
    pub upstream: Uuid,
    pub outcome: TerminalOutcome,
    /// The version that the member ended with.
    pub version: u64,
    pub at: TimestampMs,
}

/// Tells the flow and the children of an execution that it ends. `row` is as it was before.
pub(crate) fn advance(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    outcome: TerminalOutcome,
    spared: bool,
) {
    let Some(flow) = flow_key(world, row) else { return };
    let version = row.version.max(1) + 1;
    let told = Told { flow, upstream: row.key.id, outcome, version, at: world.now };
    let counted = count(world, change, flow, outcome, spared);
    if mutants::active(Mutant::CascadeLost) && outcome != TerminalOutcome::Success {
        return;
    }
    let cancelled =
        latest_flow(world, change, flow).is_some_and(|flow| flow.state == FlowState::Cancelled);
    // The members of a cancelled flow are dealt with one by one, in no order.
    if cancelled && counted {
        return;
    }
    leave_group(world, change, flow, row);
    let scan = edges_from(flow, row.key.id, None);
    if !world.has_scanned(&scan) {
        defer(change, world.now, &told.cascade(CascadeKind::Ended, counted, None));
        return;
    }
    let mut edges: Vec<EdgeRow> = world.scan(&scan);
    let too_many = outcome != TerminalOutcome::Success && edges.len() > SKIPPED_AT_ONCE;
    if too_many {
        edges.truncate(SKIPPED_AT_ONCE);
    }
    let last = tell(world, change, &told, &edges);
    if too_many || world.scan_is_cut(&scan) {
        defer(change, world.now, &told.cascade(CascadeKind::Ended, true, last));
    }
}

impl Told {
    pub fn cascade(&self, kind: CascadeKind, counted: bool, after: Option<Uuid>) -> CascadeRow {
        CascadeRow {
            key: CascadeKey { subject: self.upstream, version: self.version, kind: Word(kind) },
            flow: self.flow,
            outcome: Word(self.outcome),
            at: self.at,
            counted,
            after,
            policy: None,
            reason: None,
        }
    }
}

/// Leaves work for the sweeper, which is woken by the commit.
pub(crate) fn defer(change: &mut Change, now: TimestampMs, cascade: &CascadeRow) {
    let timer = TimerRow::bare(TimerKind::Cascade, now, cascade.key.subject);
    change.insert(cascade);
    if !mutants::active(Mutant::CascadeForgotten) {
        change.timers.push(Write::Update(timer));
    }
}

/// Counts an ending in the flow's header; the last one ends the flow. Says whether that is done.
pub(super) fn count(
    world: &World,
    change: &mut Change,
    flow: FlowKey,
    outcome: TerminalOutcome,
    spared: bool,
) -> bool {
    let Some(mut after) = latest_flow(world, change, flow) else { return false };
    // Nobody counted the members of a flow that was inserted by hand.
    if after.nodes == 0 {
        return true;
    }
    match spared {
        true => after.ended.spared += 1,
        false => *after.ended.of(outcome) += 1,
    }
    if !after.state.is_finished()
        && let Some(state) = rule::ending(after.nodes, after.ended)
    {
        end_flow(change, &mut after, state, world.now);
    }
    put_flow(change, after);
    true
}

pub(super) fn end_flow(
    change: &mut Change,
    flow: &mut FlowRow,
    state: FlowState,
    now: TimestampMs,
) {
    flow.state = state;
    flow.terminal_at = Some(now);
    let event_type = match state {
        FlowState::Completed => EventType::FlowCompleted,
        _ => EventType::FlowFailed,
    };
    let ended = flow.ended;
    let details = json!({
        "flow_id": flow.key.flow_id(),
        "nodes": flow.nodes,
        "completed": ended.completed,
        "failed": ended.failed,
        "cancelled": ended.cancelled + ended.spared,
        "expired": ended.expired,
        "skipped": ended.skipped,
    });
    change.events.push(flow_event(flow, event_type, now).details(&details));
}

/// An event about a flow.
pub(super) fn flow_event(flow: &FlowRow, event_type: EventType, now: TimestampMs) -> EventRow {
    let event = EventRow::bare(event_type, flow.namespace.clone(), now);
    EventRow { flow_id: Some(flow.key.id), ..event }
}

/// A member that ends while it waits for its parents does not wait any more.
fn leave_group(world: &World, change: &mut Change, flow: FlowKey, row: &ExecutionRow) {
    if row.eligibility != EligibilityState::BlockedByDependencies {
        return;
    }
    let key = EdgeGroupKey { flow, downstream: row.key.id };
    if let Some(mut group) = latest::<EdgeGroupRow>(world, change, &key)
        && group.is_pending()
    {
        group.state = Word(EdgeGroupState::Cancelled);
        change.update(&group);
    }
}

/// Tells those behind these edges, and names the last of the edges.
pub(super) fn tell(
    world: &World,
    change: &mut Change,
    told: &Told,
    edges: &[EdgeRow],
) -> Option<Uuid> {
    for edge in edges {
        // An edge that was added after the end was counted when it was added.
        if edge.counted_version >= told.version {
            continue;
        }
        match edge.kind.0 {
            EdgeKind::Depends => tell_group(world, change, told, edge.downstream),
            EdgeKind::Awaits => tell_waiting(world, change, told, edge.downstream),
        }
    }
    edges.last().map(|edge| edge.key.edge_id)
}

fn tell_group(world: &World, change: &mut Change, told: &Told, downstream: Uuid) {
    let key = EdgeGroupKey { flow: told.flow, downstream };
    let Some(mut group) = latest::<EdgeGroupRow>(world, change, &key) else { return };
    // Told late, and meanwhile the member was replayed: that is forgotten.
    let forgotten = told.outcome != TerminalOutcome::Success
        && told.at < world.now
        && group.reset_at.is_some_and(|reset| told.at < reset);
    if forgotten {
        return;
    }
    count_parent(&mut group, told.outcome, 1);
    let undecided = group.is_pending() || fires_twice();
    if undecided {
        group.state = Word(rule::decide(group.policy(), tally(&group)));
    }
    change.update(&group);
    if undecided && !group.is_pending() {
        decided(world, change, told, &group);
    }
}

/// One more parent that ended so, or one less.
pub(crate) fn count_parent(group: &mut EdgeGroupRow, outcome: TerminalOutcome, by: i64) {
    group.parents = group.all_parents();
    let counter = match outcome {
        TerminalOutcome::Success => &mut group.succeeded,
        TerminalOutcome::Skipped => &mut group.skipped,
        TerminalOutcome::Failed | TerminalOutcome::Cancelled | TerminalOutcome::Expired => {
            &mut group.failed
        }
    };
    *counter = (*counter + by).max(0);
    group.running = (group.parents - group.succeeded - group.failed - group.skipped).max(0);
}

pub(crate) fn tally(group: &EdgeGroupRow) -> Tally {
    let whole = |number: i64| u64::try_from(number).unwrap_or(0);
    Tally {
        parents: whole(group.all_parents()),
        succeeded: whole(group.succeeded),
        failed: whole(group.failed),
        skipped: whole(group.skipped),
    }
}

/// The parents have decided: the member follows, and those that are not needed are cancelled.
pub(super) fn decided(world: &World, change: &mut Change, told: &Told, group: &EdgeGroupRow) {
    let rest = tally(group).open() > 0;
    if rest && group.policy().on_satisfied() == OnSatisfied::CancelRemaining {
        let reason = match group.state.0 {
            EdgeGroupState::Satisfied => SPARED,
            _ => POINTLESS,
        };
        let about = Told { upstream: group.key.downstream, ..*told };
        let mut cascade = about.cascade(CascadeKind::Siblings, true, None);
        cascade.reason = Some(reason.into());
        defer(change, world.now, &cascade);
    }
    if !follow(world, change, group) {
        let about = Told { upstream: group.key.downstream, ..*told };
        defer(change, world.now, &about.cascade(CascadeKind::Decided, true, None));
    }
}

/// Makes the member ready or skips it, as its group says. False if the member is not at hand.
pub(super) fn follow(world: &World, change: &mut Change, group: &EdgeGroupRow) -> bool {
    let key = group.key.flow.member(group.key.downstream);
    let Some(child) = latest_execution(world, change, key) else { return false };
    if !waits(&child) && !fires_twice() {
        return true;
    }
    match group.state.0 {
        EdgeGroupState::Satisfied => unblock(world, change, &child),
        EdgeGroupState::Impossible => skip(world, change, &child),
        EdgeGroupState::Pending | EdgeGroupState::Cancelled => {}
    }
    true
}

/// Whether a member waits for its parents, and not for nodes that it has added.
pub(super) fn waits(row: &ExecutionRow) -> bool {
    !row.is_finished()
        && row.eligibility == EligibilityState::BlockedByDependencies
        && row.attempt_state != AttemptState::AttemptInterrupted
}

/// Whatever the member waited for has happened.
pub(super) fn unblock(world: &World, change: &mut Change, row: &ExecutionRow) {
    let mut after = row.clone();
    let until = row.not_before.unwrap_or(world.now);
    wait_until(change, &mut after, until, world.now, BlockingReason::WaitingForDelay);
    transition(change, row, after, EventType::Unblocked, world.now, |event| event);
}

pub(super) fn skip(world: &World, change: &mut Change, row: &ExecutionRow) {
    let ending = Ending {
        reason: Some("dependency_impossible".into()),
        by: Some(CancelSource::FlowCascade.as_str().into()),
        ..Ending::new(
            TerminalOutcome::Skipped,
            world.now,
            AttemptEnding::FromOutside(AttemptOutcome::Skipped),
        )
    };
    finish(world, change, row, ending, |_| {});
}

/// One of the nodes that a member has added has ended.
fn tell_waiting(world: &World, change: &mut Change, told: &Told, downstream: Uuid) {
    let key = ChildrenKey { execution: told.flow.member(downstream) };
    let Some(mut children) = latest::<ChildrenRow>(world, change, &key) else { return };
    children.ended += 1;
    change.update(&children);
    if !children.waiting || children.ended < children.added {
        return;
    }
    if !follow_children(world, change, &key) {
        let about = Told { upstream: downstream, ..*told };
        defer(change, world.now, &about.cascade(CascadeKind::Decided, true, None));
    }
}

/// Hands a holder out again if all that it waits for has ended. False if it is not at hand.
pub(super) fn follow_children(world: &World, change: &mut Change, key: &ChildrenKey) -> bool {
    let Some(mut children) = latest::<ChildrenRow>(world, change, key) else { return true };
    if !children.waiting || children.ended < children.added {
        return true;
    }
    let Some(parent) = latest_execution(world, change, key.execution) else { return false };
    children.waiting = false;
    change.update(&children);
    if parent.eligibility == EligibilityState::BlockedByDependencies {
        unblock(world, change, &parent);
    }
    true
}
