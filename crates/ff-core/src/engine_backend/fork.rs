//! Forks: a part of an old flow as a flow of its own. Everything that is read here belongs to
//! members that have ended, so it does not change while it is read.

use std::collections::{HashMap, HashSet};

use serde_json::json;
use uuid::Uuid;

use super::{check_readable, flow_key, visible};
use crate::contracts::{EdgeGroupState, EdgePolicy, ForkFlowArgs};
use crate::engine::{Engine, check_size, edge_row, node_id};
use crate::engine_error::{EngineError, StateKind};
use crate::limits;
use crate::operations::execution::PreparedSubmission;
use crate::operations::execution::replay::block;
use crate::operations::execution::resubmit::anew;
use crate::operations::flow::cascade::{count_parent, tally};
use crate::operations::flow::replay::outcome_of;
use crate::operations::flow::{SubmitFlow, graph, rule};
use crate::operations::step::{adopt, steps_up_to};
use crate::rows::{
    Blob, EdgeGroupKey, EdgeGroupRow, EdgeKind, EdgeRow, Endings, ExecutionRow, FlowKey, FlowRow,
    FlowState, StepRow, Word, raw_object, values, with_raw,
};
use crate::store::{Query, Scan};
use crate::types::{ExecutionKey, FlowId, Namespace, TimestampMs};

/// An identity is drawn until it falls on the old flow's partition, so that the new flow can name
/// parents that stay in the old one.
const DRAWS: usize = 1_000_000;

/// So many payloads are read at once, before their bytes are known.
const PAYLOADS: usize = 32;

pub(super) async fn prepare(
    engine: &Engine,
    scope: Option<&Namespace>,
    args: ForkFlowArgs,
) -> Result<SubmitFlow, EngineError> {
    let rows = engine.query(Query::Execution(args.execution_id.key())).await?;
    let row = visible(scope, &rows);
    let row = row.ok_or(EngineError::NotFound { entity: "execution" })?;
    check_readable(&rows.damage)?;
    let id = row.flow_id.ok_or(EngineError::State(StateKind::NotInFlow))?;
    let old = flow_key(engine, &FlowId(id));
    let rows = engine.query(Query::Flow(old)).await?;
    let flow = rows.flows.first().ok_or(EngineError::State(StateKind::NotInFlow))?;
    if flow.nodes > limits::FLOW_REPLAY_NODES as u64 {
        let (nodes, max) = (flow.nodes, limits::FLOW_REPLAY_NODES);
        let detail = format!("the flow has {nodes} nodes, the limit of a fork is {max}");
        return Err(EngineError::invalid(detail));
    }
    let part = Part::read(engine, old, row.key.id).await?;
    let new = match args.flow_id {
        Some(id) => chosen(engine, old, &id)?,
        None => draw(engine, old.partition)?,
    };
    let mut forked = part.fork(flow, new, &args)?;
    if let Some(name) = &args.steps_up_to {
        let steps = recorded_steps(engine, row.key, name).await?;
        // The chosen node is the first of them.
        forked.steps = adopt(&mut forked.nodes[0].row, &steps);
    }
    Ok(forked)
}

async fn recorded_steps(
    engine: &Engine,
    execution: ExecutionKey,
    name: &str,
) -> Result<Vec<StepRow>, EngineError> {
    let scans = vec![super::step::steps_of(execution)];
    let rows = engine.query(Query::Records { keys: Vec::new(), scans }).await?;
    let steps = rows.records::<StepRow>().map_err(|error| engine.store_error(error))?;
    let detail = || format!("the execution has recorded no step {name:?}");
    steps_up_to(&steps, name).ok_or_else(|| EngineError::invalid(detail()))
}

fn chosen(engine: &Engine, old: FlowKey, id: &FlowId) -> Result<FlowKey, EngineError> {
    let key = flow_key(engine, id);
    if key.partition != old.partition {
        return Err(EngineError::invalid("the new flow is not on the partition of the old one"));
    }
    Ok(key)
}

fn draw(engine: &Engine, partition: u16) -> Result<FlowKey, EngineError> {
    for _ in 0..DRAWS {
        let id = FlowId(Uuid::now_v7());
        if engine.store().flow_partition(&id) == partition {
            return Ok(FlowKey { partition, id: id.0 });
        }
    }
    Err(EngineError::Unavailable { op: "fork_flow" })
}

/// A node with everything that depends on it, and the parents that stay outside.
struct Part {
    from: Uuid,
    members: HashMap<Uuid, ExecutionRow>,
    inside: Vec<Uuid>,
    edges: Vec<(Uuid, Uuid)>,
    policies: HashMap<Uuid, EdgePolicy>,
}

impl Part {
    async fn read(engine: &Engine, flow: FlowKey, from: Uuid) -> Result<Self, EngineError> {
        let (members, damage) = super::flow::members(engine, flow, |_| true).await?;
        check_readable(&damage)?;
        let mut members: HashMap<_, _> = members.into_iter().map(|row| (row.key.id, row)).collect();
        let (all, policies) = edges(engine, flow).await?;
        let ids: Vec<Uuid> = members.keys().copied().collect();
        let places: HashMap<Uuid, usize> =
            ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let place =
            |edge: &EdgeRow| Some((*places.get(&edge.upstream)?, *places.get(&edge.downstream)?));
        let by_place: Vec<_> = all.iter().filter_map(place).collect();
        let start = places.get(&from).copied().unwrap_or(0);
        let reached = graph::reach(ids.len(), &by_place, start);
        let mut inside: Vec<Uuid> =
            (0..ids.len()).filter(|at| reached[*at]).map(|at| ids[at]).collect();
        inside.sort_by_key(|id| (*id != from, members[id].created_at, *id));
        payloads(engine, &inside, &mut members).await?;
        let own: HashSet<Uuid> = inside.iter().copied().collect();
        let edges = all.iter().filter(|edge| own.contains(&edge.downstream));
        // The chosen node runs whatever its own parents have said.
        let edges = edges.filter(|edge| edge.downstream != from);
        let edges: Vec<_> = edges.map(|edge| (edge.upstream, edge.downstream)).collect();
        // Parents that an earlier fork has left in an older flow.
        for (upstream, _) in &edges {
            if !members.contains_key(upstream) {
                let rows = engine.query(Query::Execution(flow.member(*upstream))).await?;
                members.extend(rows.executions.into_iter().map(|row| (row.key.id, row)));
            }
        }
        Ok(Self { from, members, inside, edges, policies })
    }

    fn fork(
        self,
        old: &FlowRow,
        new: FlowKey,
        args: &ForkFlowArgs,
    ) -> Result<SubmitFlow, EngineError> {
        let ids: HashMap<Uuid, Uuid> =
            self.inside.iter().map(|id| (*id, new_id(new, &self.members[id]))).collect();
        let mut groups: HashMap<Uuid, EdgeGroupRow> = HashMap::new();
        let mut edges = Vec::with_capacity(self.edges.len());
        for (upstream, downstream) in &self.edges {
            let child = ids[downstream];
            let parent = ids.get(upstream);
            let mut edge = edge_row(new, parent.copied().unwrap_or(*upstream), child);
            let key = EdgeGroupKey { flow: new, downstream: child };
            let policy = self.policies.get(downstream).copied().unwrap_or_default();
            let group = groups.entry(child).or_insert_with(|| EdgeGroupRow::new(key, policy, 0));
            group.parents += 1;
            group.running += 1;
            if parent.is_none() {
                edge.counted_version = u64::MAX >> 1;
                self.count_outside(group, *upstream)?;
            }
            edges.push(edge);
        }
        for group in groups.values_mut() {
            if group.policy() == EdgePolicy::AllOf {
                group.k_target = group.parents;
            }
            group.state = Word(rule::decide(group.policy(), tally(group)));
            if group.state == Word(EdgeGroupState::Impossible) {
                let detail = "a node behind it needs parents that have not completed";
                return Err(EngineError::invalid(detail));
            }
        }
        let nodes = self.inside.iter().map(|id| {
            let row = &self.members[id];
            let input = args.input_payload.as_ref().filter(|_| *id == self.from);
            let mut item = copy(row, new, ids[id], input, &args.creator_identity);
            item.fresh_id = args.flow_id.is_none();
            if groups.get(&ids[id]).is_some_and(EdgeGroupRow::is_pending) {
                block(&mut item.row);
            }
            item
        });
        let nodes: Vec<_> = nodes.collect();
        let flow = header(old, new, &args.execution_id, nodes.len(), edges.len());
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|group| group.key.downstream);
        let fingerprint = new.id.simple().to_string().into();
        let steps = Vec::new();
        Ok(SubmitFlow { flow, keyed: false, fingerprint, nodes, edges, groups, steps })
    }

    /// A parent that is not run again counts as it ended.
    fn count_outside(&self, group: &mut EdgeGroupRow, parent: Uuid) -> Result<(), EngineError> {
        let Some(row) = self.members.get(&parent) else {
            let detail = "a parent of a node behind it was forgotten with its flow";
            return Err(EngineError::invalid(detail));
        };
        let Some(outcome) = outcome_of(row) else {
            let detail = "a parent of a node behind it has not ended, and stays in the old flow";
            return Err(EngineError::invalid(detail));
        };
        count_parent(group, outcome, 1);
        Ok(())
    }
}

fn new_id(flow: FlowKey, row: &ExecutionRow) -> Uuid {
    let name = row.node_name();
    match name.is_empty() {
        true => Uuid::now_v7(),
        false => node_id(flow.id, &name),
    }
}

fn header(
    old: &FlowRow,
    new: FlowKey,
    from: &crate::types::ExecutionId,
    nodes: usize,
    edges: usize,
) -> FlowRow {
    let tags = raw_object(&old.raw_fields).get("tags").cloned().unwrap_or(json!({}));
    let raw = json!({
        "tags": tags,
        "forked_from": old.key.flow_id(),
        "forked_from_execution": from,
    });
    FlowRow {
        key: new,
        namespace: old.namespace.clone(),
        kind: old.kind.clone(),
        graph_revision: 1,
        state: FlowState::Open,
        created_at: TimestampMs(0),
        terminal_at: None,
        nodes: nodes as u64,
        edges: edges as u64,
        ended: Endings::default(),
        raw_fields: raw.to_string().into(),
    }
}

/// The old node as it was submitted.
fn copy(
    row: &ExecutionRow,
    flow: FlowKey,
    id: Uuid,
    input: Option<&Vec<u8>>,
    creator: &str,
) -> PreparedSubmission {
    let mut fresh = anew(row, flow.member(id));
    fresh.flow_id = Some(flow.id);
    if let Some(input) = input {
        fresh.payload = Blob::Here(input.as_slice().into());
    }
    if !creator.is_empty() {
        fresh.creator = creator.into();
    }
    let raw = raw_object(&row.raw_fields);
    let kept = ["node", "merge_results"];
    let kept = kept.into_iter().filter_map(|name| Some((name, raw.get(name)?.clone())));
    fresh.raw_fields = with_raw("{}", kept);
    let deadline = fresh.policy().timeout_policy.execution_deadline_ms;
    PreparedSubmission {
        row: fresh,
        fresh_id: true,
        fingerprint: [0; 32],
        key_ttl: None,
        delay: None,
        deadline: deadline.map(std::time::Duration::from_millis),
    }
}

type Graph = (Vec<EdgeRow>, HashMap<Uuid, EdgePolicy>);

async fn edges(engine: &Engine, flow: FlowKey) -> Result<Graph, EngineError> {
    let scans = vec![
        Scan::of::<EdgeRow>(values![flow]).limit(usize::MAX),
        Scan::of::<EdgeGroupRow>(values![flow]).limit(usize::MAX),
    ];
    let rows = engine.query(Query::Records { keys: Vec::new(), scans }).await?;
    let mut edges = rows.records::<EdgeRow>().map_err(|error| engine.store_error(error))?;
    edges.retain(|edge| edge.kind == Word(EdgeKind::Depends));
    let groups = rows.records::<EdgeGroupRow>().map_err(|error| engine.store_error(error))?;
    let policies = groups.iter().map(|group| (group.key.downstream, group.policy())).collect();
    Ok((edges, policies))
}

/// Brings the inputs of these members.
async fn payloads(
    engine: &Engine,
    ids: &[Uuid],
    members: &mut HashMap<Uuid, ExecutionRow>,
) -> Result<(), EngineError> {
    let mut total = 0;
    for chunk in ids.chunks(PAYLOADS) {
        let keys = chunk.iter().map(|id| members[id].key).collect();
        for (key, bytes) in engine.query(Query::Payloads(keys)).await?.blobs {
            total += bytes.len();
            check_size("the nodes of the fork", total, &engine.config().limits)?;
            if let Some(row) = members.get_mut(&key.id) {
                row.payload = Blob::Here(bytes);
            }
        }
    }
    Ok(())
}
