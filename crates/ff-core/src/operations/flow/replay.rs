//! Running members again: what their children and their flow were told is taken back.

use std::collections::HashMap;

use serde_json::json;
use uuid::Uuid;

use super::cascade::{self, Told, count_parent, flow_event, tally};
use super::drafts::{latest, latest_flow, put_flow};
use super::{graph, rule};
use crate::contracts::{EdgeGroupState, EventType, ReplayFlowResult};
use crate::engine_error::{ContentionKind, EngineError, StateKind};
use crate::operations::Operation;
use crate::operations::execution::replay::{block, rewind};
use crate::operations::execution::transition;
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
        let awaits = |edge: &EdgeRow| edge.kind == Word(EdgeKind::Awaits);
        for edge in world.scan::<EdgeRow>(&Self::edges(flow)).into_iter().filter(awaits) {
            let key = ChildrenKey { execution: flow.member(edge.downstream) };
            needs.record::<ChildrenRow>(&key);
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
        let place =
            |edge: &EdgeRow| Some((*places.get(&edge.upstream)?, *places.get(&edge.downstream)?));
        let edges: Vec<_> = decide.iter().filter_map(place).collect();
        let mut parents = vec![Vec::new(); members.len()];
        for (from, to) in &edges {
            parents[*to].push(*from);
        }
        let mut added: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
        for edge in awaits {
            added.entry(edge.upstream).or_default().push(edge.downstream);
        }
        let from = places.get(&row.key.id).copied().unwrap_or(0);
        Self { world, flow, members, edges, parents, awaits: added, from }
    }

    fn run(&self, change: &mut Change) -> Result<Vec<crate::types::ExecutionId>, EngineError> {
        let reached = graph::reach(self.members.len(), &self.edges, self.from);
        let mut rewound = vec![false; self.members.len()];
        let mut replayed = Vec::new();
        for at in self.sorted(&reached) {
            let row = self.members[at];
            if !row.is_finished() {
                if row.eligibility != crate::state::EligibilityState::BlockedByDependencies {
                    let detail = format!("{} depends on it and runs", row.key.execution_id());
                    return Err(EngineError::invalid(detail));
                }
                self.regroup(change, at, &rewound);
                continue;
            }
            let state = match at == self.from {
                true => EdgeGroupState::Satisfied,
                false => self.regroup(change, at, &rewound),
            };
            if state == EdgeGroupState::Impossible {
                continue;
            }
            rewound[at] = true;
            uncount(self.world, change, self.flow.key, row);
            let mut after = rewind(self.world, change, row);
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

    /// Counts a node's parents anew, those that run again as open.
    fn regroup(&self, change: &mut Change, at: usize, rewound: &[bool]) -> EdgeGroupState {
        let row = self.members[at];
        let key = EdgeGroupKey { flow: self.flow.key, downstream: row.key.id };
        let Some(mut group) = latest::<EdgeGroupRow>(self.world, change, &key) else {
            return EdgeGroupState::Satisfied;
        };
        (group.succeeded, group.failed, group.skipped) = (0, 0, 0);
        group.parents = 0;
        for &from in &self.parents[at] {
            group.parents += 1;
            if let Some(outcome) = outcome_of(self.members[from]).filter(|_| !rewound[from]) {
                match outcome {
                    TerminalOutcome::Success => group.succeeded += 1,
                    TerminalOutcome::Skipped => group.skipped += 1,
                    _ => group.failed += 1,
                }
            }
        }
        group.running = group.parents - group.succeeded - group.failed - group.skipped;
        let state = rule::decide(group.policy(), tally(&group));
        group.state = Word(state);
        group.reset_at = None;
        change.update(&group);
        state
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
