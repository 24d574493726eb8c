//! Graphs of young flows, for a store that holds them: what stands behind each member, as it was
//! submitted and told since.
//!
//! A flow is mostly run soon after it was submitted, through the same process. Its edges, groups and
//! members that wait are kept as they were written, so that whoever ends need not read what stands
//! behind. What is left out here, or let go, is read.

use std::collections::VecDeque;

use foldhash::{HashMap, HashSet};
use uuid::Uuid;

use super::{Change, Scan, World, Write, behind};
use crate::rows::{
    AnyRow, Blob, EdgeGroupRow, EdgeRow, ExecutionRow, FlowRow, Record, Rewritten, Value,
};
use crate::state::EligibilityState;
use crate::types::ExecutionKey;

/// So many members, edges and groups are kept in all; the oldest graphs make room.
const MOST_ROWS: usize = 32 * 1024;
/// A larger graph takes longer than it would stay here.
const MOST_OF_ONE: usize = MOST_ROWS / 4;
/// A member with more bytes is read when its time comes.
const MOST_BYTES: usize = 1024;

/// Flows that have gone may stay in the order, so many and twice as many as there are.
const GONE: usize = 1024;

/// Each waiting member has with it where the store finds it, a `P`; each flow the name of what it
/// is true for, a `V`.
pub struct Graphs<P, V> {
    members: HashMap<Uuid, Member<P>>,
    flows: HashMap<Uuid, Graph<V>>,
    /// In the order in which they came; some may have gone.
    order: VecDeque<Uuid>,
    rows: usize,
}

struct Graph<V> {
    members: Vec<Uuid>,
    rows: usize,
    version: Option<V>,
}

struct Member<P> {
    flow: Uuid,
    /// All edges that lead away from it, each with the member that depends on it.
    edges: Vec<(AnyRow, Option<Uuid>)>,
    /// What its parents have decided so far.
    group: Option<AnyRow>,
    /// Itself, as long as it waits for them.
    waiting: Option<(ExecutionRow, P)>,
}

impl<P, V> Default for Graphs<P, V> {
    fn default() -> Self {
        Self {
            members: HashMap::default(),
            flows: HashMap::default(),
            order: VecDeque::new(),
            rows: 0,
        }
    }
}

impl<P, V> Graphs<P, V> {
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// What the graph of a flow is true for, once that was said.
    pub fn version(&self, flow: &Uuid) -> Option<&V> {
        self.flows.get(flow)?.version.as_ref()
    }

    pub fn set_version(&mut self, flow: &Uuid, version: V) {
        if let Some(graph) = self.flows.get_mut(flow) {
            graph.version = Some(version);
        }
    }

    /// The flow of the member whose edges a scan would find, if they are held.
    pub fn flow_of(&self, scan: &Scan) -> Option<Uuid> {
        self.upstream(scan).map(|member| member.flow)
    }

    /// Only if the scan would find all of them.
    fn upstream(&self, scan: &Scan) -> Option<&Member<P>> {
        let Some(Value::Uuid(upstream)) = scan.prefix.last() else { return None };
        let member = self.members.get(upstream).filter(|_| scan.after.is_empty())?;
        (member.edges.len() < scan.limit).then_some(member)
    }

    /// Takes what stands behind an execution into the world, if it is held. Members that wait are
    /// handed to whoever takes note of their places; those that are not here are named.
    pub fn bring(
        &self,
        world: &mut World,
        scan: &Scan,
        mut found: impl FnMut(ExecutionKey, &P),
        missing: &mut Vec<ExecutionKey>,
    ) -> bool {
        let Some(upstream) = self.upstream(scan) else { return false };
        let behind = |downstream: &Option<Uuid>| match downstream {
            Some(id) => self.members.get(id).and_then(|member| member.group.as_ref()).is_some(),
            None => true,
        };
        if !upstream.edges.iter().all(|(_, downstream)| behind(downstream)) {
            return false;
        }
        world.scans.insert(scan.clone(), scan.found(upstream.edges.iter().map(|(edge, _)| edge)));
        for (edge, downstream) in &upstream.edges {
            world.records.load(edge.clone());
            let downstream = downstream.and_then(|id| self.members.get(&id));
            let Some(Member { group: Some(group), waiting, .. }) = downstream else { continue };
            world.records.load(group.clone());
            let Some(key) = behind::member(group) else { continue };
            match waiting {
                _ if world.executions.is_loaded(&key) => {}
                Some((row, place)) => {
                    found(key, place);
                    world.executions.load(row.clone());
                }
                None => missing.push(key),
            }
        }
        true
    }

    /// Takes over what a transaction has written, and where it says that its members are.
    pub fn learn(&mut self, change: &Change, place: impl Fn(&ExecutionRow) -> Option<P>) {
        let new = self.learn_flows(&change.flows);
        if self.flows.is_empty() {
            return;
        }
        for write in &change.executions {
            self.learn_execution(write, &place, &new);
        }
        for write in change.records.iter() {
            self.learn_record(write, &new);
        }
        for flow in &new {
            self.measure(flow);
        }
        while self.rows > MOST_ROWS
            && let Some(oldest) = self.order.pop_front()
        {
            self.drop_flow(oldest);
        }
        if self.order.len() > 2 * self.flows.len() + GONE {
            self.order.retain(|flow| self.flows.contains_key(flow));
        }
    }

    /// The flows that have come; those that have ended go.
    fn learn_flows(&mut self, writes: &[Write<FlowRow>]) -> HashSet<Uuid> {
        let mut new = HashSet::default();
        for write in writes {
            match write {
                Write::Update(row) if !row.state.is_finished() => {}
                Write::Insert(row) if !row.state.is_finished() => {
                    let (members, version) = (Vec::new(), None);
                    self.flows.insert(row.key.id, Graph { members, rows: 0, version });
                    self.order.push_back(row.key.id);
                    new.insert(row.key.id);
                }
                Write::Insert(FlowRow { key, .. })
                | Write::Update(FlowRow { key, .. })
                | Write::Delete(key) => self.drop_flow(key.id),
            }
        }
        new
    }

    fn learn_execution(
        &mut self,
        write: &Write<ExecutionRow>,
        place: impl Fn(&ExecutionRow) -> Option<P>,
        new: &HashSet<Uuid>,
    ) {
        let waiting = |row: &ExecutionRow| {
            let place = waits(row).then(|| place(row)).flatten()?;
            Some((ExecutionRow { rewritten: Rewritten::Nothing, ..row.clone() }, place))
        };
        match write {
            Write::Insert(row) => {
                let Some(flow) = row.flow_id else { return };
                match self.flows.get_mut(&flow).filter(|_| new.contains(&flow)) {
                    Some(graph) => {
                        graph.members.push(row.key.id);
                        let (edges, group) = (Vec::new(), None);
                        let member = Member { flow, edges, group, waiting: waiting(row) };
                        self.members.insert(row.key.id, member);
                    }
                    // One that grows is read from now on.
                    None => self.drop_flow(flow),
                }
            }
            Write::Update(row) => {
                if let Some(member) = self.members.get_mut(&row.key.id) {
                    member.waiting = waiting(row);
                }
            }
            Write::Delete(key) => {
                if let Some(member) = self.members.get(&key.id) {
                    self.drop_flow(member.flow);
                }
            }
        }
    }

    fn learn_record(&mut self, write: &Write<AnyRow>, new: &HashSet<Uuid>) {
        let (spec, key) = match write {
            Write::Insert(row) | Write::Update(row) => (row.spec, &row.values[..]),
            Write::Delete(key) => (key.spec, &key.values[..]),
        };
        let (is_edge, is_group) = (spec == EdgeRow::SPEC, spec == EdgeGroupRow::SPEC);
        let Some(Value::Uuid(flow)) = key.get(1).filter(|_| is_edge || is_group) else { return };
        if !self.flows.contains_key(flow) {
            return;
        }
        let learned = match write {
            Write::Insert(row) if is_edge && new.contains(flow) => self.add_edge(row),
            Write::Insert(row) if new.contains(flow) => self.set_group(row),
            Write::Update(row) if is_group => self.set_group(row),
            _ => None,
        };
        if learned.is_none() {
            self.drop_flow(*flow);
        }
    }

    fn add_edge(&mut self, row: &AnyRow) -> Option<()> {
        let edge: EdgeRow = row.decode().ok().flatten()?;
        let member = self.members.get_mut(&edge.upstream)?;
        member.edges.push((row.clone(), edge.dependent()));
        Some(())
    }

    fn set_group(&mut self, row: &AnyRow) -> Option<()> {
        let Value::Uuid(downstream) = row.values[2] else { return None };
        self.members.get_mut(&downstream)?.group = Some(row.clone());
        Some(())
    }

    /// Counts a graph that has just come.
    fn measure(&mut self, flow: &Uuid) {
        let Some(graph) = self.flows.get_mut(flow) else { return };
        let members = graph.members.iter().filter_map(|member| self.members.get(member));
        graph.rows = members.map(|member| 2 + member.edges.len()).sum();
        self.rows += graph.rows;
        if graph.rows > MOST_OF_ONE {
            self.drop_flow(*flow);
        }
    }

    pub fn drop_flow(&mut self, flow: Uuid) {
        let Some(graph) = self.flows.remove(&flow) else { return };
        self.rows -= graph.rows;
        for member in graph.members {
            self.members.remove(&member);
        }
    }
}

/// Whether an execution waits for its parents and will be handed out as it is here.
fn waits(row: &ExecutionRow) -> bool {
    let small = match &row.payload {
        Blob::Here(bytes) => bytes.len() <= MOST_BYTES,
        Blob::Absent => true,
        Blob::Apart => false,
    };
    small && row.lease_epoch == 0 && row.eligibility == EligibilityState::BlockedByDependencies
}
