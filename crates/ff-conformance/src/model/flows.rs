//! Flows in a sequence: small random graphs under a few identities, so that calls meet each other.

use ff_core::backend::CancelFlowPolicy;
use ff_core::contracts::{
    EdgePolicy, FlowEdge, FlowGraphArgs, FlowNode, OnSatisfied, ReplayFlowArgs, Submission,
    SubmitFlowArgs,
};
use ff_core::partition::{PartitionConfig, flow_partition};
use ff_core::policy::{Backoff, ExecutionPolicy};
use ff_core::types::{ExecutionId, FlowId};
use uuid::Uuid;

use super::generate::Sequence;
use super::step::Step;

const FLOWS: u64 = 2;
const NODES: usize = 4;

impl Sequence {
    /// All flows of all sequences live on partition 0, where every store has it.
    pub(super) fn flow_at(&self, at: u64) -> FlowId {
        let config = PartitionConfig::default();
        let id = |draw: u64| FlowId(Uuid::from_u64_pair(self.seed(), (at + 1) << 32 | draw));
        let mut ids = (0..).map(id);
        ids.find(|id| flow_partition(id, &config).index == 0).expect("one of 256 is on it")
    }

    fn node_at(&self, flow: u64, node: usize) -> ExecutionId {
        let place = 1_000 + flow * 100 + node as u64;
        ExecutionId::from_parts(0, Uuid::from_u64_pair(self.seed(), place))
    }

    pub(super) fn any_node(&mut self) -> ExecutionId {
        let (flow, node) = (self.rng().u64(..FLOWS), self.rng().usize(..NODES));
        self.node_at(flow, node)
    }

    pub(super) fn flow_step(&mut self) -> Step {
        let at = self.rng().u64(..FLOWS);
        let flow = self.flow_at(at);
        match self.rng().u32(..10) {
            0..5 => Step::SubmitFlow(Box::new(self.submit_flow(at))),
            5 => Step::CancelFlow(flow, self.cancel_policy()),
            6 => Step::FlowGraph(FlowGraphArgs { flow_id: flow, cursor: None, limit: 0 }),
            7 => Step::ReplayFlow(ReplayFlowArgs { execution_id: self.any_node() }),
            _ => Step::DescribeFlow(flow),
        }
    }

    fn cancel_policy(&mut self) -> CancelFlowPolicy {
        match self.rng().u32(..3) {
            0 => CancelFlowPolicy::CancelAll,
            1 => CancelFlowPolicy::CancelPending,
            _ => CancelFlowPolicy::FlowOnly,
        }
    }

    /// The same graph each time it is asked for, so that a repeat is a repeat.
    fn submit_flow(&mut self, at: u64) -> SubmitFlowArgs {
        let mut rng = fastrand::Rng::with_seed(self.seed() ^ at);
        let mut args = SubmitFlowArgs {
            flow_id: Some(self.flow_at(at)),
            namespace: self.namespace(),
            ..SubmitFlowArgs::default()
        };
        for node in 0..rng.usize(1..=NODES) {
            let mut parents = 0;
            for from in 0..node {
                if rng.bool() {
                    parents += 1;
                    args.edges.push(FlowEdge::new(format!("n{from}"), format!("n{node}")));
                }
            }
            let on_satisfied = match rng.bool() {
                true => OnSatisfied::LetRun,
                false => OnSatisfied::CancelRemaining,
            };
            let policy = match rng.u32(..4) {
                0 => EdgePolicy::AnyOf { on_satisfied },
                1 if parents > 0 => EdgePolicy::Quorum { k: rng.u32(1..=parents), on_satisfied },
                _ => EdgePolicy::AllOf,
            };
            let lane = self.lanes().nth(rng.usize(..2)).expect("there are two");
            // Without jitter, so that both backends schedule the same moment.
            let mut policy_of_node = ExecutionPolicy::default();
            policy_of_node.retry_policy.max_retries = rng.u32(..2);
            policy_of_node.retry_policy.backoff = Backoff::Fixed { delay_ms: 400 };
            let work = Submission::new(lane.0, "node").id(self.node_at(at, node));
            let work = work.policy(policy_of_node);
            args.nodes.push(FlowNode::new(format!("n{node}"), work).policy(policy));
        }
        args
    }

    /// Reads that show all that flows can have touched.
    pub(super) fn every_flow(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for at in 0..FLOWS {
            let flow_id = self.flow_at(at);
            steps.push(Step::DescribeFlow(flow_id));
            steps.push(Step::FlowGraph(FlowGraphArgs { flow_id, cursor: None, limit: 0 }));
            for node in 0..NODES {
                steps.push(Step::Describe(self.node_at(at, node)));
                steps.push(Step::History(self.node_at(at, node), 0, 1_000));
            }
        }
        steps
    }
}
