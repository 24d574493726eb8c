//! Graphs of young flows, for a store that holds them: what stands behind each member, as it was
//! submitted and told since.
//!
//! A flow is mostly run soon after it was submitted, through the same process. Its edges, groups
//! and members that wait are kept as they were written, so that whoever ends need not read what
//! stands behind. What is left out here, or let go, is read.

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
        (member.edges.len() <= scan.limit).then_some(member)
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
        let mut scanned = scan.found(upstream.edges.iter().map(|(edge, _)| edge));
        // Here it is known that there are no more, also if the scan could not have told.
        scanned.cut = None;
        world.scans.insert(scan.clone(), scanned);
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
                    // What a transaction that came to nothing had left of it goes.
                    self.drop_flow(row.key.id);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::{EdgeGroupState, FlowEdge, FlowNode, Submission, SubmitFlowArgs};
    use crate::engine::prepare_submit_flow;
    use crate::limits::Limits;
    use crate::operations::Operation;
    use crate::operations::flow::cascade::edges_from;
    use crate::rows::{EdgeGroupKey, FlowKey, FlowState, Word};
    use crate::types::{FlowId, Namespace, TimestampMs};

    type Held = Graphs<Uuid, u32>;

    /// One node and so many that depend on it, as they are written.
    fn fan(id: u128, width: usize) -> Change {
        let node = |name: String| FlowNode::new(name, Submission::new("lane", "kind"));
        let mut args = SubmitFlowArgs {
            namespace: Namespace::new("default"),
            flow_id: Some(FlowId(Uuid::from_u128(id))),
            nodes: vec![node("first".into())],
            ..SubmitFlowArgs::default()
        };
        for at in 0..width {
            args.nodes.push(node(format!("n{at}")));
            args.edges.push(FlowEdge::new("first", format!("n{at}")));
        }
        let operation = prepare_submit_flow(args, &Limits::default(), None, |_| 0).unwrap();
        operation.decide(&World::new(TimestampMs(1), "test")).unwrap().1
    }

    fn learned(held: &mut Held, change: &Change) {
        held.learn(change, |row| Some(row.key.id));
        let flows = held.flows.values();
        let (rows, members) =
            flows.fold((0, 0), |sum, flow| (sum.0 + flow.rows, sum.1 + flow.members.len()));
        assert_eq!((held.rows, held.members.len()), (rows, members));
        assert!(rows <= MOST_ROWS);
    }

    fn key(id: u128) -> FlowKey {
        FlowKey { partition: 0, id: Uuid::from_u128(id) }
    }

    fn rows(change: &Change) -> Vec<ExecutionRow> {
        let rows = change.executions.iter().map(|write| match write {
            Write::Insert(row) | Write::Update(row) => row.clone(),
            Write::Delete(_) => panic!("nothing is deleted here"),
        });
        rows.collect()
    }

    /// What stands behind the first node of such a flow.
    fn behind(change: &Change, id: u128) -> Scan {
        edges_from(key(id), rows(change)[0].key.id, None)
    }

    fn with_flow(change: &Change, state: FlowState) -> Change {
        let Write::Insert(flow) = &change.flows[0] else { panic!("it was submitted") };
        let flow = FlowRow { state, ..flow.clone() };
        Change { flows: vec![Write::Update(flow)], ..Change::default() }
    }

    fn brought(held: &Held, scan: &Scan) -> Option<(World, Vec<ExecutionKey>, usize)> {
        let mut world = World::new(TimestampMs(2), "test");
        let (mut missing, mut found) = (Vec::new(), 0);
        let found_one = |key: ExecutionKey, place: &Uuid| {
            assert_eq!(key.id, *place);
            found += 1;
        };
        let brought = held.bring(&mut world, scan, found_one, &mut missing);
        brought.then_some((world, missing, found))
    }

    #[test]
    fn a_graph_is_brought_as_it_was_submitted_and_told() {
        let (mut held, change) = (Held::default(), fan(1, 3));
        learned(&mut held, &change);
        let (scan, members) = (behind(&change, 1), rows(&change));
        assert_eq!(held.flow_of(&scan), Some(key(1).id));
        let (world, missing, found) = brought(&held, &scan).unwrap();
        assert_eq!((world.scan::<EdgeRow>(&scan).len(), missing.len(), found), (3, 0, 3));
        for row in &members[1..] {
            assert_eq!(world.executions.get(&row.key).map(|row| row.key), Some(row.key));
        }

        // One child was told to run, and another was written to while it waits.
        let group_key = EdgeGroupKey { flow: key(1), downstream: members[1].key.id };
        let mut group = world.record::<EdgeGroupRow>(&group_key).unwrap();
        group.state = Word(EdgeGroupState::Satisfied);
        let mut told = with_flow(&change, FlowState::Open);
        told.update(&group);
        let ready = EligibilityState::EligibleNow;
        told.executions
            .push(Write::Update(ExecutionRow { eligibility: ready, ..members[1].clone() }));
        let priority = 7;
        told.executions.push(Write::Update(ExecutionRow { priority, ..members[2].clone() }));
        // And one has grown too large to be kept.
        let payload = Blob::Here(vec![0; MOST_BYTES + 1].into());
        told.executions.push(Write::Update(ExecutionRow { payload, ..members[3].clone() }));
        learned(&mut held, &told);
        let (world, missing, found) = brought(&held, &scan).unwrap();
        assert_eq!((missing, found), (vec![members[3].key], 1));
        assert_eq!(world.record::<EdgeGroupRow>(&group_key), Some(group));
        assert!(!world.executions.is_loaded(&members[1].key), "nobody needs it");
        assert_eq!(world.executions.get(&members[2].key).map(|row| row.priority), Some(7));
        let all = scan.clone().limit(3);
        assert!(!brought(&held, &all).unwrap().0.scan_is_cut(&all), "it is known to be all");
        assert!(brought(&held, &scan.limit(2)).is_none(), "there are more");
    }

    #[test]
    fn versions_go_with_their_graphs() {
        let (mut held, change) = (Held::default(), fan(1, 1));
        held.set_version(&key(1).id, 1);
        assert_eq!(held.version(&key(1).id), None, "it is not here");
        learned(&mut held, &change);
        assert_eq!(held.version(&key(1).id), None);
        held.set_version(&key(1).id, 2);
        assert_eq!(held.version(&key(1).id), Some(&2));
        held.drop_flow(key(1).id);
        assert_eq!(held.version(&key(1).id), None);
    }

    #[test]
    fn a_graph_that_comes_again_takes_the_place_of_the_first() {
        let (mut held, change) = (Held::default(), fan(1, 5));
        learned(&mut held, &change);
        held.set_version(&key(1).id, 1);
        // The commit has failed, and this is what it was tried again with.
        let again = fan(1, 2);
        learned(&mut held, &again);
        assert_eq!(held.version(&key(1).id), None);
        let (world, ..) = brought(&held, &behind(&again, 1)).unwrap();
        assert_eq!(world.scan::<EdgeRow>(&behind(&again, 1)).len(), 2);
        learned(&mut held, &with_flow(&again, FlowState::Completed));
        assert!(held.is_empty() && held.rows == 0 && held.members.is_empty());
    }

    #[test]
    fn the_oldest_make_room() {
        let mut held = Held::default();
        let changes: Vec<_> = (1..=11).map(|id| fan(id, 999)).collect();
        for change in &changes {
            learned(&mut held, change);
        }
        let is_here = |id: u128| brought(&held, &behind(&changes[id as usize - 1], id)).is_some();
        assert_eq!((1..=11).filter(|id| is_here(*id)).count(), held.flows.len());
        assert!(!is_here(1) && (2..=11).all(is_here), "only the oldest has gone");
        learned(&mut held, &fan(12, 3_000));
        assert!(held.flow_of(&behind(&changes[10], 11)).is_some());
        assert!(!held.flows.contains_key(&key(12).id), "one that is too large does not stay");
    }

    #[test]
    fn graphs_that_grow_lose_members_or_end_go() {
        let change = fan(1, 3);
        let one_more = rows(&fan(1, 4)).pop().unwrap();
        let mut larger = with_flow(&change, FlowState::Open);
        larger.executions.push(Write::Insert(one_more));
        let mut smaller = with_flow(&change, FlowState::Open);
        smaller.executions.push(Write::Delete(rows(&change)[2].key));
        let mut closer = with_flow(&change, FlowState::Open);
        let (from, to) = (rows(&change)[1].key.id, rows(&change)[2].key.id);
        closer.insert(&crate::engine::edge_row(key(1), from, to));
        let mut forgotten = Change::default();
        forgotten.flows.push(Write::Delete(key(1)));
        for gone in [
            larger,
            smaller,
            closer,
            with_flow(&change, FlowState::Completed),
            with_flow(&change, FlowState::Failed),
            with_flow(&change, FlowState::Cancelled),
            forgotten,
        ] {
            let mut held = Held::default();
            learned(&mut held, &change);
            learned(&mut held, &gone);
            assert!(held.is_empty() && brought(&held, &behind(&change, 1)).is_none(), "{gone:?}");
        }
        let mut held = Held::default();
        learned(&mut held, &change);
        learned(&mut held, &with_flow(&change, FlowState::Open));
        assert!(brought(&held, &behind(&change, 1)).is_some(), "a flow is written to as it runs");
        held.forget();
        assert!(held.is_empty());
    }
}
