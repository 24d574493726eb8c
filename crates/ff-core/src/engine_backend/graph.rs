//! Pages of a flow's graph. All pages together hold every node and every edge once.

use std::collections::HashMap;

use uuid::Uuid;

use super::scan::Found;
use crate::contracts::{FlowGraph, ListOrder, UnreadableRecord};
use crate::engine::Engine;
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::flow::cascade::edges_into;
use crate::rows::{EdgeGroupKey, EdgeGroupRow, EdgeRow, ExecutionRow, FlowKey, Record, Value};
use crate::store::{Damage, ListQuery, Query};
use crate::views::{self, GraphCursor};

/// How many nodes are asked for their edges at once, and how many edges of each come at first:
/// most nodes have fewer, and the rest is read node by node.
const NODES_AT_ONCE: usize = 100;
const FIRST_EDGES: usize = 100;

type Groups = HashMap<Uuid, EdgeGroupRow>;
type Edges = HashMap<Uuid, FirstEdges>;

/// The first edges into a node.
#[derive(Default)]
struct FirstEdges {
    readable: Vec<EdgeRow>,
    /// How many rows were read, with those that are damaged.
    read: usize,
}

/// A page that is being filled.
struct Page<'a> {
    engine: &'a Engine,
    flow: FlowKey,
    groups: Vec<EdgeGroupRow>,
    edges: Vec<EdgeRow>,
    most_edges: usize,
    /// What cannot be read of the nodes.
    damage: Damage,
    /// What cannot be read of the edges and the groups.
    unreadable: Vec<UnreadableRecord>,
}

/// So many nodes at most, in the order of their creation, with the edges into them. A page that
/// has no room for all edges into a node ends within that node, and the next one goes on there.
pub(super) async fn page(
    engine: &Engine,
    flow: FlowKey,
    cursor: Option<&str>,
    limit: usize,
) -> Result<FlowGraph, EngineError> {
    let most_edges = limit * limits::GRAPH_EDGES_PER_NODE;
    let (groups, edges, damage) = (Vec::new(), Vec::new(), Damage::default());
    let unreadable = Vec::new();
    let mut page = Page { engine, flow, groups, edges, most_edges, damage, unreadable };
    let from = cursor.map(GraphCursor::parse).transpose()?;
    if let Some(GraphCursor { place, edge: Some(edge) }) = from
        && let Some(edge) = page.take(place.1, FirstEdges::default(), Some(edge)).await?
    {
        return Ok(page.end(&[], Some(GraphCursor { place, edge: Some(edge) })));
    }
    let list = ListQuery {
        flow_id: Some(flow.id),
        order: ListOrder::OldestFirst,
        after: from.map(|from| from.place),
        limit: limit + 1,
        ..ListQuery::default()
    };
    let rows = engine.query(Query::Executions(list)).await?;
    page.damage = rows.damage;
    let mut nodes = rows.executions;
    let more = nodes.len() > limit;
    nodes.truncate(limit);
    let (shown, edge) = page.fill(&nodes).await?;
    let more = more || shown < nodes.len() || edge.is_some();
    let last = nodes[..shown].last().map(|row| (row.created_at, row.key.id));
    let last = last.or(from.map(|from| from.place)).filter(|_| more);
    Ok(page.end(&nodes[..shown], last.map(|place| GraphCursor { place, edge })))
}

impl Page<'_> {
    fn is_full(&self) -> bool {
        self.edges.len() >= self.most_edges
    }

    /// Takes what nodes wait for and the edges into them. Tells how many of the nodes found room,
    /// and the last edge of the last of them if more lead into it.
    async fn fill(&mut self, nodes: &[ExecutionRow]) -> Result<(usize, Option<Uuid>), EngineError> {
        let mut shown = 0;
        for chunk in nodes.chunks(NODES_AT_ONCE) {
            let (mut groups, mut edges) = self.read(chunk).await?;
            for row in chunk {
                if self.is_full() {
                    return Ok((shown, None));
                }
                shown += 1;
                self.groups.extend(groups.remove(&row.key.id));
                let own = edges.remove(&row.key.id).unwrap_or_default();
                let cut = self.take(row.key.id, own, None).await?;
                if cut.is_some() {
                    return Ok((shown, cut));
                }
            }
        }
        Ok((shown, None))
    }

    /// The groups of nodes, and the first edges into them.
    async fn read(&mut self, nodes: &[ExecutionRow]) -> Result<(Groups, Edges), EngineError> {
        let group = |row: &ExecutionRow| {
            EdgeGroupRow::erase_key(&EdgeGroupKey { flow: self.flow, downstream: row.key.id })
        };
        let scan = |row: &ExecutionRow| edges_into(self.flow, row.key.id, None).limit(FIRST_EDGES);
        let query = Query::Records {
            keys: nodes.iter().map(group).collect(),
            scans: nodes.iter().map(scan).collect(),
        };
        let rows = self.engine.query(query).await?;
        let mut edges = Edges::new();
        let downstream = EdgeRow::SPEC.place("downstream_eid");
        for row in rows.records.iter().filter(|row| row.spec == EdgeRow::SPEC) {
            if let Some(Value::Uuid(member)) = row.values.get(downstream) {
                edges.entry(*member).or_default().read += 1;
            }
        }
        let found = Found::<EdgeRow>::of(self.engine, &rows)?;
        for edge in found.records {
            edges.entry(edge.downstream).or_default().readable.push(edge);
        }
        self.name_unreadable(found.unreadable);
        let found = Found::<EdgeGroupRow>::of(self.engine, &rows)?;
        let groups = found.records.into_iter().map(|group| (group.key.downstream, group));
        self.name_unreadable(found.unreadable);
        Ok((groups.collect(), edges))
    }

    /// Takes the edges into a member as far as there is room: first those that were found, or those
    /// after an edge, then the others. Answers the last one taken if there may be more.
    async fn take(
        &mut self,
        member: Uuid,
        first: FirstEdges,
        after: Option<Uuid>,
    ) -> Result<Option<Uuid>, EngineError> {
        let (mut last, mut whole) = (after, after.is_none() && first.read < FIRST_EDGES);
        let mut found = first.readable;
        loop {
            let room = self.most_edges - self.edges.len();
            let fits = found.len() <= room;
            found.truncate(room);
            last = found.last().map(|edge| edge.key.edge_id).or(last);
            self.edges.append(&mut found);
            if whole && fits {
                return Ok(None);
            }
            if self.is_full() {
                return Ok(last);
            }
            let scan = edges_into(self.flow, member, last).limit(limits::PAGE);
            let next = super::scan::find::<EdgeRow>(self.engine, scan).await?;
            self.name_unreadable(next.unreadable);
            found = next.records;
            whole = found.len() < limits::PAGE;
        }
    }

    /// Notes records that cannot be read, each once: the rest of a node's edges is read from the
    /// last readable one on.
    fn name_unreadable(&mut self, records: Vec<UnreadableRecord>) {
        for record in records {
            if !self.unreadable.contains(&record) {
                self.unreadable.push(record);
            }
        }
    }

    fn end(self, nodes: &[ExecutionRow], next: Option<GraphCursor>) -> FlowGraph {
        let Self { flow, groups, edges, damage, unreadable, .. } = self;
        let graph = views::flow_graph(flow, nodes, &groups, &edges, next, &damage);
        FlowGraph { unreadable, ..graph }
    }
}
