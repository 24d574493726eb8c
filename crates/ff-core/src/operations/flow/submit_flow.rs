//! Accepts a whole graph, or nothing of it.

use std::sync::Arc;

use serde_json::json;

use super::cascade::flow_event;
use crate::contracts::{EventType, SubmitFlowResult, SubmitOutcome};
use crate::engine_error::{ConflictKind, EngineError};
use crate::operations::Operation;
use crate::operations::execution::PreparedSubmission;
use crate::operations::execution::submit::{Accepted, accept, needs_of};
use crate::rows::{EdgeGroupRow, EdgeRow, FlowRow, StepRow};
use crate::store::{Change, Needs, World, Write};

/// A graph that has been checked, as the rows that it would become.
#[derive(Debug)]
pub struct SubmitFlow {
    pub flow: FlowRow,
    /// The flow is known by an idempotency key, so that it may be there already.
    pub keyed: bool,
    /// What makes two graphs the same.
    pub fingerprint: Arc<str>,
    /// In the caller's order; those with parents are blocked.
    pub nodes: Vec<PreparedSubmission>,
    pub edges: Vec<EdgeRow>,
    pub groups: Vec<EdgeGroupRow>,
    /// Steps that nodes begin with.
    pub steps: Vec<StepRow>,
}

impl Operation for SubmitFlow {
    type Reply = SubmitFlowResult;

    const NAME: &'static str = "submit_flow";
    const MAY_END_LEASES: bool = false;

    fn weight(&self) -> usize {
        self.nodes.len()
    }

    fn needs(&self, needs: &mut Needs) {
        needs.flows.insert(self.flow.key);
        for node in &self.nodes {
            needs_of(needs, node);
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let flow_id = self.flow.key.flow_id();
        let execution_ids: Vec<_> =
            self.nodes.iter().map(|node| node.row.key.execution_id()).collect();
        if let Some(known) = world.flows.get(&self.flow.key) {
            let same = known.namespace == self.flow.namespace
                && known.raw_text("fingerprint").as_deref() == Some(&*self.fingerprint);
            let reused = match self.keyed {
                true => ConflictKind::IdempotencyKeyReused,
                false => ConflictKind::FlowIdReused,
            };
            return match same {
                true => {
                    let reply = SubmitFlowResult::Duplicate { flow_id, execution_ids };
                    Ok((reply, Change::default()))
                }
                false => Err(EngineError::Conflict(reused)),
            };
        }
        let mut change = Change::default();
        admit(world, &mut change, &self.nodes)?;
        for edge in &self.edges {
            change.insert(edge);
        }
        for group in &self.groups {
            change.insert(group);
        }
        for step in &self.steps {
            change.insert(step);
        }
        let flow = FlowRow { created_at: world.now, ..self.flow.clone() };
        let details = json!({
            "flow_id": flow_id,
            "kind": &*flow.kind,
            "nodes": self.nodes.len(),
            "edges": self.edges.len(),
        });
        let event = flow_event(&flow, EventType::FlowSubmitted, world.now).details(&details);
        change.events.push(event);
        change.flows.push(Write::Insert(flow));
        Ok((SubmitFlowResult::Created { flow_id, execution_ids }, change))
    }
}

/// Every node is new, or none is accepted.
pub(super) fn admit(
    world: &World,
    change: &mut Change,
    nodes: &[PreparedSubmission],
) -> Result<(), EngineError> {
    let mut accepted = Accepted::default();
    change.executions.reserve(nodes.len());
    change.events.reserve(nodes.len() + 2);
    for node in nodes {
        let until = node.delay.map(|delay| world.now.after(delay));
        let deadline = node.deadline.map(|deadline| world.now.after(deadline));
        match accept(world, change, &mut accepted, node, until, deadline) {
            SubmitOutcome::Created { .. } => {}
            SubmitOutcome::Duplicate { .. } => {
                return Err(EngineError::Conflict(ConflictKind::ExecutionIdReused));
            }
            SubmitOutcome::Refused(error) => return Err(error),
        }
    }
    Ok(())
}
