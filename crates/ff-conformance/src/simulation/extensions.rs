//! Members that add nodes to their own flow, and wait for them.

use ff_core::backend::{CancelFlowPolicy, Handle};
use ff_core::contracts::{
    EdgePolicy, ExtendFlowArgs, FlowEdge, FlowNode, SubmitFlowResult, WaitChildrenResult,
};
use ff_core::engine::prepare_extend_flow;
use ff_core::limits::Limits;
use ff_core::operations::flow::ExtendFlow;
use ff_core::rows::FlowKey;
use ff_core::types::{ExecutionKey, Namespace};
use uuid::Uuid;

use super::Simulation;
use super::history::{Actor, History, Plan};
use super::message::{Answer, NAMESPACE, Verb};

/// So many extensions a run has at most, so that it comes to an end.
const EXTENSIONS: usize = 6;

/// Nodes that a member wants to add to its flow.
#[derive(Debug)]
pub(super) struct Extension {
    flow: usize,
    key: FlowKey,
    members: Vec<ExecutionKey>,
    edges: Vec<(ExecutionKey, ExecutionKey)>,
    args: ExtendFlowArgs,
    edge_ids: Vec<Uuid>,
    await_ids: Vec<Uuid>,
    /// It was committed, and the flow's plan has it.
    done: bool,
}

impl Extension {
    /// Identities that the shell would draw are the plan's, so that a run can be run again.
    pub fn operation(&self, handle: &Handle) -> ExtendFlow {
        let namespace = Namespace::new(NAMESPACE);
        let (args, limits) = (self.args.clone(), Limits::default());
        let prepared = prepare_extend_flow(handle, args, self.key, &namespace, &limits);
        let mut operation = prepared.expect("the plans hold to the limits");
        for (edge, id) in operation.edges.iter_mut().zip(&self.edge_ids) {
            edge.edge_id = *id;
        }
        operation.await_ids.clone_from(&self.await_ids);
        operation
    }
}

pub(super) fn extended(result: &SubmitFlowResult) -> Answer {
    match result {
        SubmitFlowResult::Created { .. } => Answer::Done,
        SubmitFlowResult::Duplicate { .. } => Answer::Unneeded,
    }
}

pub(super) fn waits(result: WaitChildrenResult) -> Answer {
    match result {
        WaitChildrenResult::Waiting { .. } => Answer::Done,
        WaitChildrenResult::Ended => Answer::Unneeded,
    }
}

impl History {
    /// An extension was committed: its nodes are the flow's from then on.
    pub(super) fn grow(&mut self, number: usize) {
        let extension = &mut self.extensions[number];
        if std::mem::replace(&mut extension.done, true) {
            return;
        }
        let plan = &mut self.flows[extension.flow];
        for member in &extension.members {
            plan.members.push(*member);
            plan.policies.push(EdgePolicy::AllOf);
        }
        for (from, to) in &extension.edges {
            let place = |key| plan.members.iter().position(|member| member == key);
            if let (Some(from), Some(to)) = (place(from), place(to)) {
                plan.edges.push((from, to));
            }
        }
    }
}

impl Simulation {
    /// Somebody may cancel a flow just when one of its members is about to wait for others.
    pub(super) fn cancel_extended(&mut self, number: usize) {
        if self.rng.u32(0..8) == 0 {
            let flow = self.history.extensions[number].key;
            let verb = Verb::CancelFlow(flow, CancelFlowPolicy::CancelPending);
            let op = self.history.invoke(Actor::Operator, verb);
            self.send(op);
        }
    }

    /// What a member that has something to add does, if this is one.
    pub(super) fn draw_extension(&mut self, handle: &Handle) -> Option<Verb> {
        let key = handle.key();
        let flow = self.history.flows.iter().position(|flow| flow.members.contains(&key))?;
        if self.history.extensions.len() >= EXTENSIONS {
            return None;
        }
        let mut args = ExtendFlowArgs::default();
        let mut members = Vec::new();
        for at in 0..self.rng.usize(1..4) {
            let key = ExecutionKey { partition: 0, id: self.draw_id() };
            let work = self.draw_member(key, flow, at);
            let plan = Plan { submission: work.clone(), create: false };
            self.history.plans.insert(key, plan);
            args.nodes.push(FlowNode::new(key.id.simple().to_string(), work));
            members.push(key);
        }
        let edges = self.draw_edges(flow, &members);
        let name = |key: &ExecutionKey| match members.contains(key) {
            true => key.id.simple().to_string(),
            false => key.execution_id().as_str().to_owned(),
        };
        args.edges = edges.iter().map(|(from, to)| FlowEdge::new(name(from), name(to))).collect();
        let extension = Extension {
            flow,
            key: self.history.flows[flow].key,
            edge_ids: edges.iter().map(|_| self.draw_id()).collect(),
            await_ids: members.iter().map(|_| self.draw_id()).collect(),
            members,
            edges,
            args,
            done: false,
        };
        self.history.extensions.push(extension);
        Some(Verb::Extend(handle.clone(), self.history.extensions.len() - 1))
    }

    /// Between the new nodes, from members that may have ended, and now and then into one that may
    /// have started, which is refused.
    fn draw_edges(
        &mut self,
        flow: usize,
        members: &[ExecutionKey],
    ) -> Vec<(ExecutionKey, ExecutionKey)> {
        let mut edges = Vec::new();
        let known = self.history.flows[flow].members.clone();
        for (at, to) in members.iter().enumerate() {
            edges.extend(members[..at].iter().filter(|_| self.rng.bool()).map(|from| (*from, *to)));
            if self.rng.u32(0..3) == 0 {
                edges.push((known[self.rng.usize(0..known.len())], *to));
            }
        }
        let pending =
            |at: &usize| matches!(self.history.flows[flow].policies[*at], EdgePolicy::AllOf);
        let open: Vec<usize> = (0..known.len()).filter(pending).collect();
        if !open.is_empty() && self.rng.u32(0..4) == 0 {
            edges.push((members[0], known[open[self.rng.usize(0..open.len())]]));
        }
        edges
    }
}
