//! The flows of a run: small random graphs that clients submit until they are told.

use fastrand::Rng;
use ff_core::backend::CancelFlowPolicy;
use ff_core::contracts::{
    CancelFlowArgs, CancelFlowHeader, EdgePolicy, FlowEdge, FlowNode, OnSatisfied, Submission,
    SubmitFlowArgs, SubmitFlowResult,
};
use ff_core::engine::prepare_submit_flow;
use ff_core::limits::Limits;
use ff_core::operations::flow::{
    AckCancelMember, CancelFlow, CancelFlowHeaderOp, CancelledHeader, SubmitFlow,
};
use ff_core::rows::{BacklogMemberRow, BacklogRow, FlowKey};
use ff_core::store::Job;
use ff_core::types::{ExecutionId, ExecutionKey, FlowId, Namespace, TimestampMs};
use uuid::Uuid;

use super::bus::Event;
use super::history::{Actor, Plan};
use super::limits::records;
use super::message::{Answer, NAMESPACE, Verb, Waiting, job};
use super::{Checked, Simulation, broken};

/// A graph that a client wants to exist.
#[derive(Debug)]
pub(super) struct FlowPlan {
    pub key: FlowKey,
    pub members: Vec<ExecutionKey>,
    /// By places.
    pub edges: Vec<(usize, usize)>,
    pub policies: Vec<EdgePolicy>,
    args: SubmitFlowArgs,
    edge_ids: Vec<Uuid>,
}

impl FlowPlan {
    pub fn parents(&self, child: usize) -> impl Iterator<Item = usize> {
        self.edges.iter().filter(move |(_, to)| *to == child).map(|(from, _)| *from)
    }

    pub fn submit(&self) -> (Job, Waiting) {
        job(self.operation(), |submitted| match submitted {
            SubmitFlowResult::Created { .. } | SubmitFlowResult::Duplicate { .. } => Answer::Done,
        })
    }

    /// Identities that the shell would draw are the plan's, so that a run can be run again.
    fn operation(&self) -> SubmitFlow {
        let scope = Namespace::new(NAMESPACE);
        let limits = Limits::default();
        let prepared = prepare_submit_flow(self.args.clone(), &limits, Some(&scope), |_| 0);
        let mut operation = prepared.expect("the plans hold to the limits");
        for (edge, id) in operation.edges.iter_mut().zip(&self.edge_ids) {
            edge.key.edge_id = *id;
        }
        operation
    }
}

pub(super) fn cancel(flow: FlowKey, policy: CancelFlowPolicy) -> (Job, Waiting) {
    job(CancelFlow { flow, policy }, |_| Answer::Done)
}

pub(super) fn cancel_header(flow: FlowKey) -> CancelFlowHeaderOp {
    let args = CancelFlowArgs {
        flow_id: flow.flow_id(),
        reason: "no longer wanted".into(),
        cancellation_policy: "cancel_all".into(),
        now: TimestampMs(0),
    };
    CancelFlowHeaderOp { flow, args }
}

pub(super) fn cancelled(cancelled: &CancelledHeader) -> Answer {
    match &cancelled.header {
        CancelFlowHeader::Cancelled { member_execution_ids, .. } => {
            let ids = member_execution_ids.iter().filter_map(|id| ExecutionId::parse(id).ok());
            Answer::Cancelled(ids.map(|id| id.key()).collect())
        }
        CancelFlowHeader::AlreadyTerminal { .. } => Answer::Unneeded,
    }
}

pub(super) fn acknowledge(flow: FlowKey, member: ExecutionKey) -> AckCancelMember {
    AckCancelMember { flow, execution_id: member.execution_id().as_str().into() }
}

fn draw_policy(rng: &mut Rng, parents: usize) -> EdgePolicy {
    let on_satisfied = match rng.bool() {
        true => OnSatisfied::LetRun,
        false => OnSatisfied::CancelRemaining,
    };
    match rng.u32(0..4) {
        0 | 1 => EdgePolicy::AllOf,
        2 => EdgePolicy::AnyOf { on_satisfied },
        _ if parents == 0 => EdgePolicy::AllOf,
        _ => EdgePolicy::Quorum { k: rng.u32(1..=parents as u32), on_satisfied },
    }
}

impl Simulation {
    /// Whoever has cancelled a header deals with its members, though not always with all of them.
    pub(super) fn acknowledge_members(&mut self, op: usize, answer: &Answer) {
        let (Verb::CancelHeader(flow), Answer::Cancelled(members)) =
            (self.history.ops[op].verb.clone(), answer)
        else {
            return;
        };
        for member in members {
            if self.rng.u32(0..5) > 0 {
                let verb = Verb::Acknowledge(flow, *member);
                let op = self.history.invoke(Actor::Operator, verb);
                self.send(op);
            }
        }
    }

    /// After a commit: whoever was acknowledged is off the backlog, and the last one took its
    /// header along.
    pub(super) fn check_backlogs(&self, answers: &[(usize, Answer)]) -> Checked {
        for (op, answer) in answers {
            let Verb::Acknowledge(flow, member) = &self.history.ops[*op].verb else { continue };
            let left = self.store.read(|tables| {
                let of = |row: &BacklogMemberRow| row.key.flow == *flow;
                let rows: Vec<_> = records(tables).into_iter().filter(of).collect();
                let headers: Vec<BacklogRow> = records(tables);
                (rows, headers.iter().any(|header| header.key.flow == *flow))
            });
            let id = member.execution_id();
            let named = left.0.iter().any(|row| &*row.key.execution_id == id.as_str());
            if answer.is_ok() && (named || left.0.is_empty() && left.1) {
                let what = format!("{id} was acknowledged, and this is left: {left:?}");
                return Err(broken("I24 a backlog gets shorter", *member, what));
            }
        }
        Ok(())
    }

    /// What somebody does about a whole flow.
    pub(super) fn draw_flow_verb(&mut self, flow: FlowKey) -> Verb {
        match self.rng.u32(0..4) {
            0 => Verb::CancelFlow(flow, CancelFlowPolicy::CancelAll),
            1 => Verb::CancelFlow(flow, CancelFlowPolicy::CancelPending),
            _ => Verb::CancelHeader(flow),
        }
    }

    /// Draws the run's graphs, and lets them arrive over the first seconds.
    pub(super) fn plan_flows(&mut self) {
        for number in 0..self.config.flows {
            let plan = self.draw_flow(number);
            self.history.flows.push(plan);
            let op = self.history.invoke(Actor::Client, Verb::SubmitFlow(number));
            let at = self.rng.u64(0..1_500);
            self.bus.after(at, Event::Timeout(op));
        }
    }

    fn draw_flow(&mut self, number: usize) -> FlowPlan {
        let id = Uuid::from_u128(self.rng.u128(..));
        let count = self.rng.usize(2..7);
        let mut args = SubmitFlowArgs {
            flow_id: Some(FlowId(id)),
            namespace: Namespace::new(NAMESPACE),
            ..SubmitFlowArgs::default()
        };
        let mut edges = Vec::new();
        for to in 0..count {
            for from in 0..to {
                if self.rng.u32(0..5) < 2 {
                    edges.push((from, to));
                }
            }
        }
        let mut members = Vec::new();
        for at in 0..count {
            let key = ExecutionKey { partition: 0, id: Uuid::from_u128(self.rng.u128(..)) };
            let work = self.draw_member(key, number, at);
            let parents = edges.iter().filter(|(_, to)| *to == at).count();
            let policy = draw_policy(&mut self.rng, parents);
            self.history.plans.insert(key, Plan { submission: work.clone(), create: false });
            args.nodes.push(FlowNode::new(format!("n{at}"), work).policy(policy));
            members.push(key);
        }
        let name = |at: usize| format!("n{at}");
        args.edges = edges.iter().map(|(from, to)| FlowEdge::new(name(*from), name(*to))).collect();
        FlowPlan {
            key: FlowKey { partition: 0, id },
            members,
            policies: args.nodes.iter().map(|node| node.policy).collect(),
            edge_ids: edges.iter().map(|_| Uuid::from_u128(self.rng.u128(..))).collect(),
            edges,
            args,
        }
    }

    pub(super) fn draw_member(&mut self, key: ExecutionKey, flow: usize, at: usize) -> Submission {
        let lane = if self.rng.bool() { "red" } else { "blue" };
        let mut policy = ff_core::policy::ExecutionPolicy::default();
        policy.retry_policy.max_retries = self.rng.u32(0..2);
        policy.retry_policy.backoff = ff_core::policy::Backoff::Fixed { delay_ms: 100 };
        policy.timeout_policy.max_reclaim_count = self.rng.u32(0..4);
        Submission::new(lane, "member")
            .id(key.execution_id())
            .namespace(NAMESPACE)
            .payload(format!("member {at} of {flow}"))
            .policy(policy)
    }
}
