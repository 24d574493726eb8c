//! Running members again: what their children and their flow were told is taken back.

use std::collections::{HashMap, HashSet};

use serde_json::json;
use uuid::Uuid;

use super::cascade::{self, Told, count_parent, flow_event, tally};
use super::drafts::{latest, latest_flow, put_flow};
use super::{graph, rule};
use crate::contracts::{EdgeGroupState, EventType, ReplayFlowResult};
use crate::engine_error::{ContentionKind, EngineError, StateKind};
use crate::operations::Operation;
use crate::operations::execution::replay::{block, check_replays, rewind};
use crate::operations::execution::transition;
use crate::operations::execution::unique_key::needs_key;
use crate::rows::{
    CascadeKind, CascadeRow, ChildrenKey, ChildrenRow, EdgeGroupKey, EdgeGroupRow, EdgeKind,
    EdgeRow, ExecutionRow, FlowKey, FlowRow, FlowState, Word, values,
};
use crate::state::{PublicState, TerminalOutcome};
use crate::store::{Change, MemberScan, Needs, Scan, World};
use crate::types::{ExecutionKey, TimestampMs};

/// The outcome that a finished row tells of.
pub(crate) fn outcome_of(row: &ExecutionRow) -> Option<TerminalOutcome> {
    Some(match row.public_state {
        PublicState::Completed => TerminalOutcome::Success,
        PublicState::Failed => TerminalOutcome::Failed,
        PublicState::Cancelled => TerminalOutcome::Cancelled,
        PublicState::Expired => TerminalOutcome::Expired,
        PublicState::Skipped => TerminalOutcome::Skipped,
        _ => return None,
    })
    .filter(|_| row.is_finished())
}

/// Whether it was cancelled only because its siblings were enough.
pub(super) fn was_spared(row: &ExecutionRow) -> bool {
    row.public_state == PublicState::Cancelled
        && row.cancellation_reason.as_deref() == Some(cascade::SPARED)
}

/// What is told to children about a subject and not yet heard by all of them.
pub(crate) fn cascades_of(subject: Uuid) -> Scan {
    Scan::of::<CascadeRow>(values![subject])
}

/// Refuses while the children of an execution are still being told of its end.
pub(crate) fn check_told(world: &World, row: &ExecutionRow) -> Result<(), EngineError> {
    let telling = |row: &CascadeRow| {
        matches!(row.key.kind.0, CascadeKind::Ended | CascadeKind::Reopened | CascadeKind::Decided)
    };
    match world.scan::<CascadeRow>(&cascades_of(row.key.id)).iter().any(telling) {
        true => Err(EngineError::Contention(ContentionKind::CascadeRunning)),
        false => Ok(()),
    }
}

/// What [`reopen`] will look at.
pub(crate) fn more(world: &World, needs: &mut Needs, row: &ExecutionRow) {
    let Some(id) = row.flow_id.filter(|_| row.is_finished()) else { return };
    needs.flows.insert(FlowKey { partition: row.key.partition, id });
    needs.scan(&cascades_of(row.key.id));
    let Some(flow) = cascade::flow_key(world, row) else { return };
    let edges = cascade::edges_from(flow, row.key.id, None);
    needs.scan(&edges);
    for edge in world.scan::<EdgeRow>(&edges) {
        match edge.kind.0 {
            EdgeKind::Depends => {
                let key = EdgeGroupKey { flow, downstream: edge.downstream };
                needs.record::<EdgeGroupRow>(&key);
            }
            EdgeKind::Awaits => {
                let key = ChildrenKey { execution: flow.member(edge.downstream) };
                needs.record::<ChildrenRow>(&key);
            }
        }
    }
}

/// A finished member is about to run again: its flow lives again, and its children are open again
/// as far as this member goes.
pub(crate) fn reopen(world: &World, change: &mut Change, row: &ExecutionRow) {
    let (Some(flow), Some(outcome)) = (cascade::flow_key(world, row), outcome_of(row)) else {
        return;
    };
    uncount(world, change, flow, row);
    let told = Told {
        flow,
        upstream: row.key.id,
        outcome,
        version: row.version.max(1) + 1,
        at: row.terminal_at.unwrap_or(world.now),
    };
    let edges = cascade::edges_from(flow, row.key.id, None);
    let last = take_back(world, change, &told, &world.scan(&edges));
    if world.has_scanned(&edges) && world.scan_is_cut(&edges) {
        cascade::defer(change, world.now, &told.cascade(CascadeKind::Reopened, true, last));
    }
}

/// The flow has one ended member less; an end that it came to by itself is taken back.
fn uncount(world: &World, change: &mut Change, flow: FlowKey, row: &ExecutionRow) {
    let Some(mut after) = latest_flow(world, change, flow) else { return };
    let Some(outcome) = outcome_of(row) else { return };
    let counter = match was_spared(row) && after.ended.spared > 0 {
        true => &mut after.ended.spared,
        false => after.ended.of(outcome),
    };
    *counter = counter.saturating_sub(1);
    if matches!(after.state, FlowState::Completed | FlowState::Failed) {
        after.state = FlowState::Open;
        after.terminal_at = None;
        let details = json!({ "flow_id": flow.flow_id(), "execution_id": row.key.execution_id() });
        let event = flow_event(&after, EventType::FlowReopened, world.now).details(&details);
        change.events.push(event);
    }
    put_flow(change, after);
}

/// Takes back what those behind these edges were told, and names the last of the edges. What they
/// have decided stays decided.
pub(super) fn take_back(
    world: &World,
    change: &mut Change,
    told: &Told,
    edges: &[EdgeRow],
) -> Option<Uuid> {
    for edge in edges {
        // An edge that was added since then has never heard what is taken back.
        if edge.counted_version >= told.version {
            continue;
        }
        match edge.kind.0 {
            EdgeKind::Depends => {
                let key = EdgeGroupKey { flow: told.flow, downstream: edge.downstream };
                let Some(mut group) = latest::<EdgeGroupRow>(world, change, &key) else { continue };
                let forgotten = told.outcome != TerminalOutcome::Success
                    && group.reset_at.is_some_and(|reset| told.at <= reset);
                if !forgotten {
                    count_parent(&mut group, told.outcome, -1);
                    change.update(&group);
                }
            }
            EdgeKind::Awaits => {
                let key = ChildrenKey { execution: told.flow.member(edge.downstream) };
                if let Some(mut children) = latest::<ChildrenRow>(world, change, &key) {
                    children.ended = children.ended.saturating_sub(1);
                    change.update(&children);
                }
            }
        }
    }
    edges.last().map(|edge| edge.key.edge_id)
}

/// A node and everything that depends on it run again.
#[derive(Debug)]
pub struct ReplayFlow {
    pub execution: ExecutionKey,
    /// A flow with more nodes than this is not loaded as a whole.
    pub max_nodes: usize,
}

impl ReplayFlow {
    pub(super) fn members(flow: FlowKey) -> MemberScan {
        MemberScan { flow, after: None, limit: usize::MAX }
    }

    pub(super) fn edges(flow: FlowKey) -> Scan {
        Scan::of::<EdgeRow>(values![flow]).limit(usize::MAX).unlocked()
    }

    pub(super) fn groups(flow: FlowKey) -> Scan {
        Scan::of::<EdgeGroupRow>(values![flow]).limit(usize::MAX)
    }

    pub(super) fn cascades(flow: FlowKey) -> Scan {
        Scan::of::<CascadeRow>(values![flow]).by(&CascadeRow::BY_FLOW).limit(1)
    }
}

impl Operation for ReplayFlow {
    type Reply = ReplayFlowResult;

    const NAME: &'static str = "replay_flow_from";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(self.execution);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        let Some(row) = world.execution(self.execution) else { return };
        let Some(id) = row.flow_id else { return };
        needs.flows.insert(FlowKey { partition: row.key.partition, id });
        let Some(flow) = world.flow_of(row).filter(|flow| flow.nodes <= self.max_nodes as u64)
        else {
            return;
        };
        let flow = flow.key;
        needs.members.insert(Self::members(flow));
        needs.scan(&Self::edges(flow));
        needs.scan(&Self::groups(flow));
        needs.scan(&Self::cascades(flow));
        let members = world.members(&Self::members(flow));
        for member in &members {
            needs_key(needs, member);
        }
        let members: HashSet<Uuid> = members.iter().map(|row| row.key.id).collect();
        for edge in world.scan::<EdgeRow>(&Self::edges(flow)) {
            match edge.kind.0 {
                EdgeKind::Depends if members.contains(&edge.upstream) => {}
                // A parent that has stayed in the flow that this one was forked from.
                EdgeKind::Depends => needs.unwritten_execution(flow.member(edge.upstream)),
                EdgeKind::Awaits => {
                    let execution = flow.member(edge.downstream);
                    needs.record::<ChildrenRow>(&ChildrenKey { execution });
                }
            }
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let row = world.existing(self.execution)?;
        let Some(flow) = world.flow_of(row) else {
            return Err(EngineError::State(StateKind::NotInFlow));
        };
        if flow.nodes > self.max_nodes as u64 {
            let (nodes, max) = (flow.nodes, self.max_nodes);
            let detail = format!("the flow has {nodes} nodes, the limit of a replay is {max}");
            return Err(EngineError::invalid(detail));
        }
        if flow.state == FlowState::Cancelled {
            return Err(EngineError::State(StateKind::FlowEnded));
        }
        if !row.is_finished() {
            return Err(EngineError::State(StateKind::ExecutionNotTerminal));
        }
        if !world.scan::<CascadeRow>(&Self::cascades(flow.key)).is_empty() {
            return Err(EngineError::Contention(ContentionKind::CascadeRunning));
        }
        let mut change = Change::default();
        let replayed = Rewinding::new(world, flow, row).run(&mut change)?;
        let details = json!({
            "flow_id": flow.key.flow_id(),
            "execution_id": row.key.execution_id(),
            "nodes": replayed.len(),
        });
        let event = flow_event(flow, EventType::FlowReplayed, world.now).details(&details);
        change.events.push(event);
        Ok((ReplayFlowResult { flow_id: flow.key.flow_id(), replayed }, change))
    }
}

/// The graph of a flow, by places.
struct Rewinding<'w> {
    world: &'w World,
    flow: &'w FlowRow,
    members: Vec<&'w ExecutionRow>,
    /// Of the kind that decides.
    edges: Vec<(usize, usize)>,
    /// By the downstream.
    parents: Vec<Vec<usize>>,
    /// By the downstream, parents that have stayed in the flow that this one was forked from.
    outside: HashMap<usize, Vec<Uuid>>,
    /// Who added a node.
    awaits: HashMap<Uuid, Vec<Uuid>>,
    from: usize,
}

impl<'w> Rewinding<'w> {
    fn new(world: &'w World, flow: &'w FlowRow, row: &ExecutionRow) -> Self {
        let members = world.members(&ReplayFlow::members(flow.key));
        let places: HashMap<Uuid, usize> =
            members.iter().enumerate().map(|(at, row)| (row.key.id, at)).collect();
        let all: Vec<EdgeRow> = world.scan(&ReplayFlow::edges(flow.key));
        let (awaits, decide): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|edge| edge.kind == Word(EdgeKind::Awaits));
        let (mut edges, mut parents) = (Vec::new(), vec![Vec::new(); members.len()]);
        let mut outside: HashMap<usize, Vec<Uuid>> = HashMap::new();
        for edge in decide {
            let Some(to) = places.get(&edge.downstream).copied() else { continue };
            match places.get(&edge.upstream).copied() {
                Some(from) => {
                    edges.push((from, to));
                    parents[to].push(from);
                }
                None => outside.entry(to).or_default().push(edge.upstream),
            }
        }
        let mut added: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
        for edge in awaits {
            added.entry(edge.upstream).or_default().push(edge.downstream);
        }
        let from = places.get(&row.key.id).copied().unwrap_or(0);
        Self { world, flow, members, edges, parents, outside, awaits: added, from }
    }

    fn run(&self, change: &mut Change) -> Result<Vec<crate::types::ExecutionId>, EngineError> {
        let reached = graph::reach(self.members.len(), &self.edges, self.from);
        let mut rewound = vec![false; self.members.len()];
        let mut replayed = Vec::new();
        for at in self.sorted(&reached) {
            let row = self.members[at];
            if !row.is_finished() {
                if !cascade::waits(row) {
                    let detail = format!("{} depends on it and runs", row.key.execution_id());
                    return Err(EngineError::invalid(detail));
                }
                if let Some(group) = self.regroup(change, at, &rewound) {
                    cascade::follow(self.world, change, &group);
                }
                continue;
            }
            let group = match at == self.from {
                true => None,
                false => self.regroup(change, at, &rewound),
            };
            let state = group.map_or(EdgeGroupState::Satisfied, |group| group.state.0);
            if state == EdgeGroupState::Impossible {
                continue;
            }
            check_replays(row)?;
            rewound[at] = true;
            uncount(self.world, change, self.flow.key, row);
            let mut after = rewind(self.world, change, row)?;
            if state == EdgeGroupState::Pending {
                block(&mut after);
            }
            let details = json!({ "branch": "flow", "from": self.members[self.from].key.id });
            transition(change, row, after, EventType::Replayed, self.world.now, |event| {
                event.details(&details)
            });
            self.unawait(change, row);
            replayed.push(row.key.execution_id());
        }
        Ok(replayed)
    }

    /// The reached nodes, parents before children.
    fn sorted(&self, reached: &[bool]) -> Vec<usize> {
        let mut open = vec![0_usize; reached.len()];
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); reached.len()];
        for &(from, to) in self.edges.iter().filter(|(from, to)| reached[*from] && reached[*to]) {
            open[to] += 1;
            next[from].push(to);
        }
        let mut sorted = vec![self.from];
        let mut at = 0;
        while let Some(&node) = sorted.get(at) {
            for to in &next[node] {
                open[*to] -= 1;
                if open[*to] == 0 {
                    sorted.push(*to);
                }
            }
            at += 1;
        }
        sorted
    }

    /// Counts a node's parents anew, those that run again as open. A node that waits does not hear
    /// again what was forgotten when it was replayed.
    fn regroup(&self, change: &mut Change, at: usize, rewound: &[bool]) -> Option<EdgeGroupRow> {
        let row = self.members[at];
        let key = EdgeGroupKey { flow: self.flow.key, downstream: row.key.id };
        let known = latest::<EdgeGroupRow>(self.world, change, &key)?;
        let reset_at = known.reset_at.filter(|_| !row.is_finished());
        let mut group = EdgeGroupRow { reset_at, ..known.clone() };
        (group.succeeded, group.failed, group.skipped) = (0, 0, 0);
        let inside = self.parents[at].iter().map(|from| (self.members[*from], rewound[*from]));
        let ids = self.outside.get(&at).map_or(&[][..], Vec::as_slice);
        let outside = ids.iter().filter_map(|id| self.world.executions.get(&key.flow.member(*id)));
        let outside = outside.filter(|row| row.is_finished());
        let outside: Vec<_> = outside.map(|row| (row, false)).collect();
        let gone = ids.len() - outside.len();
        group.parents = whole(self.parents[at].len() + ids.len());
        let mut counted = 0;
        for (parent, runs_again) in inside.chain(outside) {
            let Some(outcome) = outcome_of(parent) else { continue };
            let forgotten = reset_at.is_some_and(|reset| parent.terminal_at <= Some(reset));
            counted += i64::from(outcome == TerminalOutcome::Success);
            match outcome {
                _ if runs_again => {}
                TerminalOutcome::Success => group.succeeded += 1,
                _ if forgotten => {}
                TerminalOutcome::Skipped => group.skipped += 1,
                _ => group.failed += 1,
            }
        }
        // Whoever went with a flow that was forgotten counts as it was counted, and so does one
        // that runs again in its own flow: this one would not hear of it.
        let succeeded = (known.succeeded - counted).clamp(0, whole(gone));
        group.succeeded += succeeded;
        group.failed += if reset_at.is_none() { whole(gone) - succeeded } else { 0 };
        group.running = group.parents - group.succeeded - group.failed - group.skipped;
        group.state = Word(rule::decide(group.policy(), tally(&group)));
        change.update(&group);
        Some(group)
    }

    /// Whoever added the node may wait for it again.
    fn unawait(&self, change: &mut Change, row: &ExecutionRow) {
        for spawner in self.awaits.get(&row.key.id).into_iter().flatten() {
            let key = ChildrenKey { execution: self.flow.key.member(*spawner) };
            if let Some(mut children) = latest::<ChildrenRow>(self.world, change, &key) {
                children.ended = children.ended.saturating_sub(1);
                change.update(&children);
            }
        }
    }
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// When the parents of a replayed member are counted from.
pub(crate) fn reset_group(group: &EdgeGroupRow, now: TimestampMs) -> EdgeGroupRow {
    EdgeGroupRow {
        parents: group.all_parents(),
        failed: 0,
        skipped: 0,
        running: 0,
        state: Word(EdgeGroupState::Pending),
        reset_at: Some(now),
        ..group.clone()
    }
}
