//! A running member adds nodes and edges to its own flow.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::cascade::{self, count_parent, flow_event, tally};
use super::drafts::{latest_execution, latest_flow, put_flow};
use super::graph::{self, Fault};
use super::replay::outcome_of;
use super::submit_flow::admit;
use super::{children_of, rule};
use crate::backend::Handle;
use crate::contracts::{EdgeGroupState, EdgePolicy, EventType, SubmitFlowResult};
use crate::engine_error::{ConflictKind, EngineError, StateKind, ValidationKind};
use crate::operations::Operation;
use crate::operations::execution::replay::block;
use crate::operations::execution::submit::needs_of;
use crate::operations::execution::{PreparedSubmission, fence, transition};
use crate::rows::{
    ChildrenRow, EdgeGroupKey, EdgeGroupRow, EdgeKey, EdgeKind, EdgeRow, ExecutionRow, FlowKey,
    FlowRow, Word, raw_object, values,
};
use crate::state::{AttemptState, EligibilityState, LifecyclePhase, PublicState};
use crate::store::{Change, Needs, Scan, World};
use crate::types::ExecutionKey;

/// An end of an edge: a node of the call by its place, or a member that may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    New(usize),
    Member(ExecutionKey),
}

#[derive(Clone, Debug)]
pub struct NewEdge {
    pub edge_id: Uuid,
    pub from: End,
    pub to: End,
    /// As the caller named them.
    pub names: (String, String),
}

#[derive(Debug)]
pub struct ExtendFlow {
    pub handle: Handle,
    pub flow: FlowKey,
    pub nodes: Vec<PreparedSubmission>,
    pub names: Vec<String>,
    pub policies: Vec<EdgePolicy>,
    /// For each node the identity of the edge by which the holder can wait for it.
    pub await_ids: Vec<Uuid>,
    pub edges: Vec<NewEdge>,
    /// What makes two calls the same; kept with each node.
    pub call: Arc<str>,
    /// So many nodes and edges may the whole flow have.
    pub max_nodes: usize,
    pub max_edges: usize,
}

impl Operation for ExtendFlow {
    type Reply = SubmitFlowResult;

    const NAME: &'static str = "extend_flow";

    fn weight(&self) -> usize {
        self.nodes.len().max(1)
    }

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
        needs.flows.insert(self.flow);
        needs.record::<ChildrenRow>(&children_of(self.handle.key()));
        for node in &self.nodes {
            needs_of(needs, node);
        }
        for edge in &self.edges {
            for end in [edge.from, edge.to] {
                if let End::Member(key) = end {
                    needs.execution(key);
                }
            }
            if let End::Member(key) = edge.to {
                let key = EdgeGroupKey { flow: self.flow, downstream: key.id };
                needs.record::<EdgeGroupRow>(&key);
            }
        }
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        if self.looks_at_graph(world) {
            needs.scan(&all_edges(self.flow));
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let flow_id = self.flow.flow_id();
        let execution_ids: Vec<_> =
            self.nodes.iter().map(|node| node.row.key.execution_id()).collect();
        let held = fence::held(world, &self.handle)?;
        let Some(flow) = world.flow(self.flow).filter(|_| held.row.flow_id == Some(self.flow.id))
        else {
            return Err(EngineError::State(StateKind::NotInFlow));
        };
        if self.is_repeated(world)? {
            let reply = SubmitFlowResult::Duplicate { flow_id, execution_ids };
            return Ok((reply, Change::default()));
        }
        if flow.state.is_finished() {
            return Err(EngineError::State(StateKind::FlowEnded));
        }
        let faults = self.faults(world, flow);
        if !faults.is_empty() {
            let detail = graph::tell(&faults);
            return Err(EngineError::validation(ValidationKind::InvalidGraph, detail));
        }
        let mut change = Change::default();
        self.write(world, &mut change, flow)?;
        Ok((SubmitFlowResult::Created { flow_id, execution_ids }, change))
    }
}

fn all_edges(flow: FlowKey) -> Scan {
    Scan::of::<EdgeRow>(values![flow]).limit(usize::MAX).unlocked()
}

/// Nothing has begun: it may still be made to wait.
fn not_started(row: &ExecutionRow) -> bool {
    matches!(row.phase, LifecyclePhase::Submitted | LifecyclePhase::Runnable)
        && row.attempt_state == AttemptState::PendingFirstAttempt
        && row.started_at.is_none()
}

impl ExtendFlow {
    /// Whether an edge could close a cycle through nodes that are there, or lead to a node that
    /// depends on the holder: both take the whole graph to see.
    fn looks_at_graph(&self, world: &World) -> bool {
        self.edges.iter().any(|edge| match (edge.from, edge.to) {
            (_, End::Member(_)) => true,
            (End::Member(key), _) => {
                key != self.handle.key()
                    && world.execution(key).is_none_or(|row| !row.is_finished())
            }
            (End::New(_), End::New(_)) => false,
        })
    }

    /// All nodes are there from a call like this one. Some of them, or from another call: refused.
    /// A call without nodes is repeated if all its edges are there.
    fn is_repeated(&self, world: &World) -> Result<bool, EngineError> {
        if self.nodes.is_empty() {
            return Ok(self.has_edges(world));
        }
        let known = |node: &PreparedSubmission| world.executions.get(&node.row.key);
        let there: Vec<_> = self.nodes.iter().filter_map(known).collect();
        if there.is_empty() {
            return Ok(false);
        }
        let same = |row: &&ExecutionRow| {
            row.flow_id == Some(self.flow.id)
                && raw_object(&row.raw_fields).get("call").and_then(|call| call.as_str())
                    == Some(&*self.call)
        };
        if there.len() == self.nodes.len() && there.iter().all(same) {
            return Ok(true);
        }
        Err(EngineError::Conflict(ConflictKind::ExecutionIdReused))
    }

    /// Each edge of the call is there already, and the call names none twice.
    fn has_edges(&self, world: &World) -> bool {
        let depends = |edge: &EdgeRow| edge.kind == Word(EdgeKind::Depends);
        let known = world.scan::<EdgeRow>(&all_edges(self.flow)).into_iter().filter(depends);
        let mut known: HashSet<_> = known.map(|edge| (edge.upstream, edge.downstream)).collect();
        let ends = |edge: &NewEdge| (self.id_of(edge.from).id, self.id_of(edge.to).id);
        self.edges.iter().all(|edge| known.remove(&ends(edge)))
    }

    fn faults(&self, world: &World, flow: &FlowRow) -> Vec<Fault> {
        let mut faults = Vec::new();
        let count = flow.nodes as usize + self.nodes.len();
        if count > self.max_nodes {
            faults.push(Fault::TooManyNodes { count, max: self.max_nodes });
        }
        let count = flow.edges as usize + self.edges.len();
        if count > self.max_edges {
            faults.push(Fault::TooManyEdges { count, max: self.max_edges });
        }
        for edge in &self.edges {
            self.check_ends(world, edge, &mut faults);
        }
        if !faults.is_empty() {
            return faults;
        }
        let graph = self.graph(world);
        let mut seen = HashSet::new();
        for (from, to) in &graph.edges {
            if from != to && !seen.insert((*from, *to)) {
                let fault = Fault::DuplicateEdge { from: graph.name(*from), to: graph.name(*to) };
                faults.push(fault);
            }
        }
        let closed: Vec<_> = graph.edges.iter().chain(&graph.awaits).copied().collect();
        for at in graph.edges.iter().filter(|(from, to)| from == to).map(|(at, _)| *at) {
            faults.push(Fault::SelfEdge(graph.name(at)));
        }
        let cycles = graph::cycles(graph.names.len(), &closed);
        let named = |path: Vec<usize>| path.into_iter().map(|at| graph.name(at)).collect();
        faults.extend(cycles.into_iter().map(named).map(Fault::Cycle));
        let mut parents = vec![0; self.nodes.len()];
        for edge in &self.edges {
            if let End::New(at) = edge.to {
                parents[at] += 1;
            }
        }
        let policies = self.policies.iter().copied().zip(parents);
        graph::check_policies(policies, |at| graph.name(at), &mut faults);
        faults
    }

    fn check_ends(&self, world: &World, edge: &NewEdge, faults: &mut Vec<Fault>) {
        let member = |key| {
            world.execution(key).filter(|row: &&ExecutionRow| row.flow_id == Some(self.flow.id))
        };
        let (from, to) = edge.names.clone();
        if let End::Member(key) = edge.from
            && member(key).is_none()
        {
            faults.push(Fault::UnknownEnd(from.clone()));
        }
        let End::Member(key) = edge.to else { return };
        let Some(row) = member(key) else {
            faults.push(Fault::UnknownEnd(to));
            return;
        };
        let group = EdgeGroupKey { flow: self.flow, downstream: key.id };
        let decided = world.record::<EdgeGroupRow>(&group).is_some_and(|group| !group.is_pending());
        if !not_started(row) {
            faults.push(Fault::Edge { from, to, why: "that node has started" });
        } else if decided {
            faults.push(Fault::Edge { from, to, why: "that node's parents have decided" });
        }
    }

    /// The graph as it would be: the nodes of this call first, then whatever edges name.
    fn graph(&self, world: &World) -> Graph {
        let mut graph = Graph { names: self.names.clone(), ..Graph::default() };
        for (at, node) in self.nodes.iter().enumerate() {
            graph.places.insert(node.row.key.id, at);
        }
        for edge in world.scan::<EdgeRow>(&all_edges(self.flow)) {
            let ends = (graph.place(edge.upstream, None), graph.place(edge.downstream, None));
            match edge.kind.0 {
                EdgeKind::Depends => graph.edges.push(ends),
                EdgeKind::Awaits => graph.awaits.push(ends),
            }
        }
        for edge in &self.edges {
            let mut place = |end: End, name: &String| match end {
                End::New(at) => at,
                End::Member(key) => graph.place(key.id, Some(name)),
            };
            let ends = (place(edge.from, &edge.names.0), place(edge.to, &edge.names.1));
            graph.edges.push(ends);
        }
        graph
    }

    /// Which of the new nodes the holder can wait for: those that do not wait for it, be it by way
    /// of somebody who waits for the holder's end.
    fn awaited(&self, world: &World) -> Vec<bool> {
        let mut graph = self.graph(world);
        let own = graph.place(self.handle.key().id, None);
        let ways: Vec<_> = graph.edges.iter().chain(&graph.awaits).copied().collect();
        let reached = graph::reach(graph.names.len(), &ways, own);
        (0..self.nodes.len()).map(|at| !reached[at]).collect()
    }

    fn write(&self, world: &World, change: &mut Change, flow: &FlowRow) -> Result<(), EngineError> {
        let groups = self.groups(world);
        let mut nodes = self.nodes.clone();
        for node in &mut nodes {
            let group = groups.get(&node.row.key.id);
            if group.is_some_and(|group| group.state.0 != EdgeGroupState::Satisfied) {
                block(&mut node.row);
            }
        }
        admit(world, change, &nodes)?;
        for edge in &self.edges {
            change.insert(&self.edge_row(world, edge));
        }
        let awaited = self.write_awaits(world, change);
        // Before its nodes are told anything: one that is skipped at once must not be the last.
        let mut after = latest_flow(world, change, flow.key).unwrap_or_else(|| flow.clone());
        after.nodes += self.nodes.len() as u64;
        after.edges += self.edges.len() as u64;
        after.graph_revision += 1;
        let details = json!({
            "flow_id": flow.key.flow_id(),
            "execution_id": self.handle.execution_id(),
            "nodes": self.nodes.len(),
            "edges": self.edges.len(),
            "awaited": awaited,
        });
        let event = flow_event(flow, EventType::FlowExtended, world.now).details(&details);
        change.events.push(event);
        put_flow(change, after);
        for group in groups.values() {
            self.write_group(world, change, group);
        }
        Ok(())
    }

    fn id_of(&self, end: End) -> ExecutionKey {
        match end {
            End::New(at) => self.nodes[at].row.key,
            End::Member(key) => key,
        }
    }

    /// A parent that has ended is counted here and now. Its edge says so, and that nothing which
    /// the parent was before is to be told or taken back.
    fn edge_row(&self, world: &World, edge: &NewEdge) -> EdgeRow {
        let upstream = self.id_of(edge.from);
        let known = world.executions.get(&upstream);
        EdgeRow {
            key: EdgeKey { flow: self.flow, edge_id: edge.edge_id },
            upstream: upstream.id,
            downstream: self.id_of(edge.to).id,
            policy: "{}".into(),
            policy_version: 0,
            kind: Word(EdgeKind::Depends),
            counted_version: known.map_or(0, |row| row.version),
        }
    }

    /// Every group that gets a parent, as it will be.
    fn groups(&self, world: &World) -> BTreeMap<Uuid, EdgeGroupRow> {
        let mut groups: BTreeMap<Uuid, EdgeGroupRow> = BTreeMap::new();
        for edge in &self.edges {
            let downstream = self.id_of(edge.to).id;
            let key = EdgeGroupKey { flow: self.flow, downstream };
            let group = groups.entry(downstream).or_insert_with(|| {
                let policy = match edge.to {
                    End::New(at) => self.policies[at],
                    End::Member(_) => EdgePolicy::AllOf,
                };
                let known = world.record::<EdgeGroupRow>(&key);
                known.unwrap_or_else(|| EdgeGroupRow::new(key, policy, 0))
            });
            group.parents = group.all_parents() + 1;
            if group.policy() == EdgePolicy::AllOf {
                group.k_target = group.parents;
            }
            group.running += 1;
            let upstream = world.executions.get(&self.id_of(edge.from));
            if let Some(outcome) = upstream.and_then(outcome_of) {
                count_parent(group, outcome, 1);
            }
        }
        for group in groups.values_mut() {
            group.state = Word(rule::decide(group.policy(), tally(group)));
        }
        groups
    }

    fn write_group(&self, world: &World, change: &mut Change, group: &EdgeGroupRow) {
        match world.record::<EdgeGroupRow>(&group.key) {
            Some(_) => change.update(group),
            None => change.insert(group),
        }
        let key = self.flow.member(group.key.downstream);
        let Some(row) = latest_execution(world, change, key) else { return };
        let free = row.eligibility != EligibilityState::BlockedByDependencies;
        if free && group.is_pending() {
            let mut after = row.clone();
            block(&mut after);
            crate::operations::execution::finish::disarm_ready(change, &row);
            transition(change, &row, after, EventType::Blocked, world.now, |event| event);
        } else if !free {
            cascade::follow(world, change, group);
        }
        debug_assert!(row.public_state != PublicState::Active, "its edges were checked");
    }

    /// The edges by which the holder can wait for what it has added, and how many there are.
    fn write_awaits(&self, world: &World, change: &mut Change) -> u64 {
        let awaited = self.awaited(world);
        let mut count = 0;
        for (at, _) in awaited.iter().enumerate().filter(|(_, awaited)| **awaited) {
            count += 1;
            change.insert(&EdgeRow {
                key: EdgeKey { flow: self.flow, edge_id: self.await_ids[at] },
                upstream: self.nodes[at].row.key.id,
                downstream: self.handle.key().id,
                policy: "{}".into(),
                policy_version: 0,
                kind: Word(EdgeKind::Awaits),
                counted_version: 0,
            });
        }
        if count == 0 {
            return 0;
        }
        let key = children_of(self.handle.key());
        match world.record::<ChildrenRow>(&key) {
            Some(known) => change.update(&ChildrenRow { added: known.added + count, ..known }),
            None => {
                change.insert(&ChildrenRow { key, added: count, ended: 0, waiting: false });
            }
        }
        count
    }
}

#[derive(Default)]
struct Graph {
    names: Vec<String>,
    places: HashMap<Uuid, usize>,
    edges: Vec<(usize, usize)>,
    awaits: Vec<(usize, usize)>,
}

impl Graph {
    fn place(&mut self, id: Uuid, name: Option<&String>) -> usize {
        let names = &mut self.names;
        let at = *self.places.entry(id).or_insert_with(|| {
            names.push(String::new());
            names.len() - 1
        });
        if let Some(name) = name.filter(|_| names[at].is_empty()) {
            names[at].clone_from(name);
        } else if names[at].is_empty() {
            names[at] = id.to_string();
        }
        at
    }

    fn name(&self, at: usize) -> String {
        self.names[at].clone()
    }
}
