//! Checks graphs before they reach the queue, and turns them into rows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{check_tags, check_text, prepare_submission, size};
use crate::backend::Handle;
use crate::contracts::{EdgePolicy, ExtendFlowArgs, FlowEdge, FlowNode, SubmitFlowArgs};
use crate::engine_error::{EngineError, ValidationKind};
use crate::limits::{self, Limits};
use crate::operations::execution::PreparedSubmission;
use crate::operations::execution::replay::block;
use crate::operations::flow::graph::{self, Fault};
use crate::operations::flow::{End, ExtendFlow, NewEdge, SubmitFlow};
use crate::rows::{
    EdgeGroupKey, EdgeGroupRow, EdgeKey, EdgeKind, EdgeRow, Endings, FlowKey, FlowRow, FlowState,
    Word, with_raw,
};
use crate::types::{ExecutionId, FlowId, Namespace, TimestampMs};

/// A graph as an operation, or every reason against it.
pub fn prepare_submit_flow(
    args: SubmitFlowArgs,
    limits: &Limits,
    scope: Option<&Namespace>,
    partition: impl Fn(&FlowId) -> u16,
) -> Result<SubmitFlow, EngineError> {
    super::check_scope(&args.namespace, scope)?;
    args.namespace.check()?;
    check_text("flow kind", &args.flow_kind, 0, limits::KIND_BYTES)?;
    check_tags(&args.tags)?;
    size::check_graph(&args.nodes, &args.edges, limits)?;
    let key = args.idempotency_key.as_deref();
    if let Some(key) = key {
        check_text("idempotency key", key, 1, limits::IDEMPOTENCY_KEY_BYTES)?;
    }
    let id = match (args.flow_id, key) {
        (Some(_), Some(_)) => {
            return Err(EngineError::invalid("a flow has either an id or an idempotency key"));
        }
        (Some(id), None) => id,
        (None, Some(key)) => FlowId(keyed_flow_id(&args.namespace, key)),
        (None, None) => FlowId(Uuid::now_v7()),
    };
    let flow = FlowKey { partition: partition(&id), id: id.0 };
    let fingerprint: Arc<str> = fingerprint(&args.nodes, &args.edges).into();
    let mut faults = Vec::new();
    if args.nodes.is_empty() {
        faults.push(Fault::NoNodes);
    }
    let nodes = Nodes::new(flow, args.nodes, &args.namespace, limits, &fingerprint, &mut faults);
    let edges = nodes.inner_edges(&args.edges, limits, &mut faults);
    graph::check_edges(nodes.names.len(), &edges, |at| nodes.names[at].clone(), &mut faults);
    let mut parents = vec![0; nodes.names.len()];
    for (_, to) in &edges {
        parents[*to] += 1;
    }
    let policies = nodes.policies.iter().copied().zip(parents.iter().copied());
    graph::check_policies(policies, |at| nodes.names[at].clone(), &mut faults);
    refuse(&faults)?;

    let raw = json!({ "fingerprint": &*fingerprint, "tags": args.tags });
    let row = FlowRow {
        key: flow,
        namespace: args.namespace.0.into(),
        kind: args.flow_kind.into(),
        graph_revision: 1,
        state: FlowState::Open,
        created_at: TimestampMs(0),
        terminal_at: None,
        nodes: nodes.items.len() as u64,
        edges: edges.len() as u64,
        ended: Endings::default(),
        raw_fields: raw.to_string().into(),
    };
    Ok(nodes.into_submit(row, key.is_some(), fingerprint, &edges, &parents))
}

fn refuse(faults: &[Fault]) -> Result<(), EngineError> {
    match faults.is_empty() {
        true => Ok(()),
        false => Err(EngineError::validation(ValidationKind::InvalidGraph, graph::tell(faults))),
    }
}

/// Nodes that have been checked, by their places in the call.
struct Nodes {
    flow: FlowKey,
    names: Vec<String>,
    policies: Vec<EdgePolicy>,
    items: Vec<PreparedSubmission>,
    /// By name and by the wire form of the id.
    places: HashMap<String, usize>,
}

impl Nodes {
    fn new(
        flow: FlowKey,
        nodes: Vec<FlowNode>,
        namespace: &Namespace,
        limits: &Limits,
        call: &Arc<str>,
        faults: &mut Vec<Fault>,
    ) -> Self {
        let max = limits.flow_nodes;
        if nodes.len() > max {
            faults.push(Fault::TooManyNodes { count: nodes.len(), max });
        }
        let mut own = Self {
            flow,
            names: Vec::with_capacity(nodes.len()),
            policies: Vec::with_capacity(nodes.len()),
            items: Vec::with_capacity(nodes.len()),
            places: HashMap::with_capacity(nodes.len() * 2),
        };
        let mut ids = HashSet::with_capacity(nodes.len());
        for (at, node) in nodes.into_iter().enumerate() {
            let shown = match node.name.is_empty() {
                true => format!("#{at}"),
                false => node.name.clone(),
            };
            let (name, policy) = (node.name.clone(), node.policy);
            match own.prepare(node, namespace, limits, call) {
                Ok(item) => {
                    let id = item.row.key.execution_id();
                    if !ids.insert(item.row.key) && !own.places.contains_key(&name) {
                        faults.push(Fault::DuplicateId(id.as_str().to_owned()));
                    }
                    own.places.insert(id.as_str().to_owned(), at);
                    own.items.push(item);
                }
                Err(why) => {
                    faults.push(Fault::Node { node: shown.clone(), why: why.to_string() });
                }
            }
            if !name.is_empty() && own.places.insert(name.clone(), at).is_some() {
                faults.push(Fault::DuplicateName(name));
            }
            own.names.push(shown);
            own.policies.push(policy);
        }
        own
    }

    fn prepare(
        &self,
        mut node: FlowNode,
        namespace: &Namespace,
        limits: &Limits,
        call: &Arc<str>,
    ) -> Result<PreparedSubmission, EngineError> {
        check_text("node name", &node.name, 0, limits::NODE_NAME_BYTES)?;
        if node.name.starts_with("{fp:") {
            return Err(EngineError::invalid("a name must not look like an execution id"));
        }
        if node.work.idempotency.is_some() {
            return Err(EngineError::invalid("a node has no idempotency key of its own"));
        }
        if let Some(id) = &node.work.execution_id
            && id.partition() != self.flow.partition
        {
            let detail = format!("its id must be of the flow's partition, {}", self.flow.partition);
            return Err(EngineError::invalid(detail));
        }
        node.work.namespace = namespace.clone();
        let chosen = node.work.execution_id.is_some();
        let mut item = prepare_submission(node.work, limits, None, self.flow.partition)?;
        if !chosen && !node.name.is_empty() {
            item.row.key = self.flow.member(node_id(self.flow.id, &node.name));
        }
        let mut raw = vec![("call", json!(&**call))];
        if !node.name.is_empty() {
            raw.push(("node", json!(node.name)));
        }
        if node.merge_results {
            raw.push(("merge_results", json!(true)));
        }
        item.row.raw_fields = with_raw("{}", raw);
        item.row.flow_id = Some(self.flow.id);
        Ok(item)
    }

    /// Edges between the nodes of the call by their places.
    fn inner_edges(
        &self,
        edges: &[FlowEdge],
        limits: &Limits,
        faults: &mut Vec<Fault>,
    ) -> Vec<(usize, usize)> {
        check_edge_count(edges, limits, faults);
        let mut place = |end: &String| match self.places.get(end) {
            Some(at) => Some(*at),
            None => {
                faults.push(Fault::UnknownEnd(end.clone()));
                None
            }
        };
        let ends = edges.iter().map(|edge| (place(&edge.from), place(&edge.to)));
        ends.filter_map(|(from, to)| Some((from?, to?))).collect()
    }

    fn into_submit(
        self,
        flow: FlowRow,
        keyed: bool,
        fingerprint: Arc<str>,
        edges: &[(usize, usize)],
        parents: &[usize],
    ) -> SubmitFlow {
        let key = flow.key;
        let id = |at: usize| self.items[at].row.key.id;
        let edges = edges.iter().map(|(from, to)| edge_row(key, id(*from), id(*to))).collect();
        let waiting = || (0..self.items.len()).filter(|at| parents[*at] > 0);
        let groups = waiting().map(|at| {
            let key = EdgeGroupKey { flow: key, downstream: id(at) };
            EdgeGroupRow::new(key, self.policies[at], parents[at])
        });
        let groups = groups.collect();
        let mut nodes = self.items.clone();
        for at in waiting() {
            block(&mut nodes[at].row);
        }
        SubmitFlow { flow, keyed, fingerprint, nodes, edges, groups, steps: Vec::new() }
    }
}

pub(crate) fn edge_row(flow: FlowKey, upstream: Uuid, downstream: Uuid) -> EdgeRow {
    EdgeRow {
        key: EdgeKey { flow, edge_id: Uuid::now_v7() },
        upstream,
        downstream,
        policy: "{}".into(),
        policy_version: 0,
        kind: Word(EdgeKind::Depends),
        counted_version: 0,
    }
}

fn check_edge_count(edges: &[FlowEdge], limits: &Limits, faults: &mut Vec<Fault>) {
    let max = limits.flow_edges;
    if edges.len() > max {
        faults.push(Fault::TooManyEdges { count: edges.len(), max });
    }
}

/// What a member adds to its flow, as an operation.
pub fn prepare_extend_flow(
    handle: &Handle,
    args: ExtendFlowArgs,
    flow: FlowKey,
    namespace: &Namespace,
    limits: &Limits,
) -> Result<ExtendFlow, EngineError> {
    size::check_graph(&args.nodes, &args.edges, limits)?;
    let mut faults = Vec::new();
    if args.nodes.is_empty() && args.edges.is_empty() {
        faults.push(Fault::NoNodes);
    }
    let call: Arc<str> = fingerprint(&args.nodes, &args.edges).into();
    let nodes = Nodes::new(flow, args.nodes, namespace, limits, &call, &mut faults);
    check_edge_count(&args.edges, limits, &mut faults);
    let end = |name: &String| match (nodes.places.get(name), ExecutionId::parse(name)) {
        (Some(at), _) => End::New(*at),
        (None, Ok(id)) => End::Member(id.key()),
        (None, Err(_)) => End::Member(flow.member(node_id(flow.id, name))),
    };
    let edges = args.edges.iter().map(|edge| NewEdge {
        edge_id: Uuid::now_v7(),
        from: end(&edge.from),
        to: end(&edge.to),
        names: (edge.from.clone(), edge.to.clone()),
    });
    let edges = edges.collect();
    refuse(&faults)?;
    let mut items = nodes.items;
    for item in &mut items {
        // A repeated call finds what the first one made.
        item.fresh_id = false;
    }
    Ok(ExtendFlow {
        handle: handle.clone(),
        flow,
        await_ids: items.iter().map(|_| Uuid::now_v7()).collect(),
        nodes: items,
        names: nodes.names,
        policies: nodes.policies,
        edges,
        call,
        max_nodes: limits.flow_nodes,
        max_edges: limits.flow_edges,
    })
}

/// A flow that is known by its key.
fn keyed_flow_id(namespace: &Namespace, key: &str) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"flow");
    hash_part(&mut hash, namespace.as_str().as_bytes());
    hash.update(key.as_bytes());
    let bytes: [u8; 32] = hash.finalize().into();
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[..16]);
    uuid::Builder::from_custom_bytes(id).into_uuid()
}

/// The identity of a named node. The members of a flow stand together, because their ids begin
/// like the flow's.
pub(crate) fn node_id(flow: Uuid, name: &str) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(flow.as_bytes());
    hash.update(name.as_bytes());
    let bytes: [u8; 32] = hash.finalize().into();
    let mut id = *flow.as_bytes();
    id[6..].copy_from_slice(&bytes[..10]);
    uuid::Builder::from_custom_bytes(id).into_uuid()
}

fn hash_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}

/// What makes two graphs the same.
fn fingerprint(nodes: &[FlowNode], edges: &[FlowEdge]) -> String {
    let mut hash = Sha256::new();
    for node in nodes {
        let work = &node.work;
        let id = work.execution_id.as_ref().map(ExecutionId::as_str).unwrap_or_default();
        let policy = json!([node.policy, work.policy, node.merge_results]).to_string();
        let encoding = work.payload_encoding.as_deref().unwrap_or_default();
        for part in [
            node.name.as_bytes(),
            id.as_bytes(),
            work.lane_id.as_str().as_bytes(),
            work.execution_kind.as_bytes(),
            encoding.as_bytes(),
            &work.input_payload,
            policy.as_bytes(),
        ] {
            hash_part(&mut hash, part);
        }
    }
    for edge in edges {
        hash_part(&mut hash, edge.from.as_bytes());
        hash_part(&mut hash, edge.to.as_bytes());
    }
    let bytes: [u8; 32] = hash.finalize().into();
    bytes.iter().take(16).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
