//! Flows in a sequence: small random graphs under a few identities, so that calls meet each other.

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait, Handle};
use ff_core::contracts::{
    CancelFlowArgs, EdgePolicy, ExtendFlowArgs, FlowEdge, FlowGraphArgs, FlowNode, FlowStatus,
    ForkFlowArgs, ListFlowsArgs, OnSatisfied, ParentResultsArgs, ReplayFlowArgs, Submission,
    SubmitFlowArgs,
};
use ff_core::engine_backend::{CounterOperations, EngineBackend, FlowOperations};
use ff_core::partition::{PartitionConfig, flow_partition};
use ff_core::policy::{Backoff, ExecutionPolicy};
use ff_core::types::{ExecutionId, FlowId};
use uuid::Uuid;

use super::generate::Sequence;
use super::step::{Step, text};

#[derive(Clone, Debug)]
pub enum FlowStep {
    Submit(Box<SubmitFlowArgs>),
    Extend(Handle, ExtendFlowArgs),
    WaitChildren(Handle),
    Cancel(FlowId, CancelFlowPolicy),
    CancelHeader(CancelFlowArgs),
    AckCancelMember(FlowId, ExecutionId),
    Replay(ReplayFlowArgs),
    Fork(ForkFlowArgs),
    Describe(FlowId),
    Graph(FlowGraphArgs),
    List(ListFlowsArgs),
    ParentResults(ExecutionId),
    Recount(FlowId, bool),
}

const FLOWS: u64 = 2;
/// So many more can be forked from them, and from each other.
const FORKS: u64 = 3;
/// So many are submitted with a flow, and so many can be added to it.
const NODES: usize = 4;
const ADDED: usize = 3;

impl FlowStep {
    pub fn handle_mut(&mut self) -> Option<&mut Handle> {
        match self {
            Self::Extend(handle, _) | Self::WaitChildren(handle) => Some(handle),
            _ => None,
        }
    }

    /// Makes the call; also returns the members of a flow that it has made.
    pub async fn run(&self, on: &dyn EngineBackend) -> (String, Vec<ExecutionId>) {
        if let Self::Fork(args) = self {
            let forked = on.fork_flow(args.clone()).await;
            let members = forked.iter().flat_map(|flow| flow.execution_ids()).cloned().collect();
            return (text(on, &forked), members);
        }
        (self.answer(on).await, Vec::new())
    }

    async fn answer(&self, on: &dyn EngineBackend) -> String {
        match self.clone() {
            Self::Fork(_) => unreachable!("it has an answer of its own"),
            Self::Submit(args) => text(on, &on.submit_flow(*args).await),
            Self::Extend(handle, args) => text(on, &on.extend_flow(&handle, args).await),
            Self::WaitChildren(handle) => text(on, &on.wait_children(&handle).await),
            Self::Cancel(flow, policy) => {
                text(on, &on.cancel_flow(&flow, policy, CancelFlowWait::NoWait).await)
            }
            Self::CancelHeader(args) => text(on, &on.cancel_flow_header(args).await),
            Self::AckCancelMember(flow, id) => text(on, &on.ack_cancel_member(&flow, &id).await),
            Self::Replay(args) => text(on, &on.replay_flow_from(args).await),
            Self::Describe(flow) => text(on, &on.describe_flow(&flow).await),
            Self::Graph(args) => text(on, &on.flow_graph(args).await),
            Self::List(args) => text(on, &on.list_flows(args).await),
            Self::ParentResults(id) => {
                let page = on.parent_results(ParentResultsArgs::new(id)).await;
                text(on, &page.map(|page| page.parents))
            }
            Self::Recount(flow, mend) => text(on, &on.recount_flow(&flow, mend).await),
        }
    }
}

impl Sequence {
    /// All flows of all sequences live on partition 0, where every store has it.
    fn flow_at(&self, at: u64) -> FlowId {
        let config = PartitionConfig::default();
        let id = |draw: u64| FlowId(Uuid::from_u64_pair(self.seed(), (at + 1) << 32 | draw));
        let mut ids = (0..).map(id);
        ids.find(|id| flow_partition(id, &config).index == 0).expect("one of 256 is on it")
    }

    pub(super) fn any_flow(&mut self) -> FlowId {
        let at = self.rng().u64(..FLOWS + FORKS);
        self.flow_at(at)
    }

    fn node_at(&self, flow: u64, node: usize) -> ExecutionId {
        let place = 1_000 + flow * 100 + node as u64;
        ExecutionId::from_parts(0, Uuid::from_u64_pair(self.seed(), place))
    }

    pub(super) fn any_node(&mut self) -> ExecutionId {
        let forked = self.forked().len();
        if forked > 0 && self.rng().u32(..3) == 0 {
            let at = self.rng().usize(..forked);
            return self.forked()[at].clone();
        }
        let (flow, node) = (self.rng().u64(..FLOWS), self.rng().usize(..NODES + ADDED));
        self.node_at(flow, node)
    }

    pub(super) fn flow_step(&mut self) -> FlowStep {
        let at = self.rng().u64(..FLOWS);
        let flow_id = self.any_flow();
        match self.rng().u32(..20) {
            0..6 => FlowStep::Submit(Box::new(self.submit_flow(at))),
            6..9 => match self.held_node() {
                Some(handle) if self.rng().u32(..3) == 0 => FlowStep::WaitChildren(handle),
                Some(handle) => FlowStep::Extend(handle, self.extension(at)),
                None => FlowStep::Submit(Box::new(self.submit_flow(at))),
            },
            9 => FlowStep::Cancel(flow_id, self.cancel_policy()),
            10 if self.rng().bool() => FlowStep::CancelHeader(CancelFlowArgs {
                flow_id,
                reason: "model".into(),
                cancellation_policy: "cancel_all".into(),
                now: self.now(),
            }),
            10 | 11 => FlowStep::AckCancelMember(flow_id, self.any_node()),
            12 => FlowStep::Replay(ReplayFlowArgs { execution_id: self.any_node() }),
            13 => FlowStep::ParentResults(self.any_node()),
            14 => FlowStep::List(self.list_flows()),
            15..18 => FlowStep::Fork(self.fork()),
            18 => FlowStep::Recount(flow_id, self.rng().bool()),
            _ => FlowStep::Graph(FlowGraphArgs { flow_id, cursor: None, limit: 0 }),
        }
    }

    /// Mostly from a node that has run, and now and then under an identity that is taken.
    fn fork(&mut self) -> ForkFlowArgs {
        let at = FLOWS + self.rng().u64(..FORKS);
        let held = self.held_node().filter(|_| self.rng().u32(..4) > 0);
        ForkFlowArgs {
            execution_id: held.map_or_else(|| self.any_node(), |handle| handle.execution_id()),
            flow_id: Some(self.flow_at(at)),
            input_payload: self.some(60, |own| vec![4; own.rng().usize(..3)]),
            steps_up_to: self.some(30, Sequence::step_name),
            creator_identity: self.some(50, |_| "model".into()).unwrap_or_default(),
        }
    }

    /// What was claimed last of a flow.
    fn held_node(&self) -> Option<Handle> {
        let nodes = (0..FLOWS).flat_map(|at| (0..NODES + ADDED).map(move |node| (at, node)));
        let nodes = nodes.map(|(at, node)| self.node_at(at, node));
        let nodes: Vec<_> = nodes.chain(self.forked().iter().cloned()).map(|id| id.key()).collect();
        self.handles().iter().rfind(|handle| nodes.contains(&handle.key())).cloned()
    }

    /// Some nodes, with edges that may be refused: into what has started, or in a circle.
    fn extension(&mut self, at: u64) -> ExtendFlowArgs {
        let mut args = ExtendFlowArgs::default();
        for node in NODES..NODES + self.rng().usize(..=ADDED) {
            let mut work = Submission::new(self.any_lane().0, "node").id(self.node_at(at, node));
            work.policy = Some(self.policy());
            args.nodes.push(FlowNode::new(format!("n{node}"), work));
        }
        let names: Vec<String> = args.nodes.iter().map(|node| node.name.clone()).collect();
        for _ in 0..self.rng().usize(..3) {
            let from = self.end_of_edge(at, &names);
            let to = self.end_of_edge(at, &names);
            args.edges.push(FlowEdge::new(from, to));
        }
        args
    }

    /// Mostly one of the call's own nodes.
    fn end_of_edge(&mut self, at: u64, names: &[String]) -> String {
        if !names.is_empty() && self.rng().u32(..3) > 0 {
            return names[self.rng().usize(..names.len())].clone();
        }
        let node = self.rng().usize(..NODES);
        self.node_at(at, node).as_str().to_owned()
    }

    fn list_flows(&mut self) -> ListFlowsArgs {
        let statuses = [FlowStatus::Open, FlowStatus::Completed, FlowStatus::Failed];
        ListFlowsArgs {
            namespace: Some(self.namespace()),
            statuses: self.some(40, |own| vec![statuses[own.rng().usize(..3)]]).unwrap_or_default(),
            cursor: None,
            limit: self.rng().usize(1..3),
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
    pub(super) fn every_flow(&self) -> Vec<Vec<Step>> {
        let mut groups = Vec::new();
        for flow_id in (0..FLOWS + FORKS).map(|at| self.flow_at(at)) {
            let graph = FlowGraphArgs { flow_id, cursor: None, limit: 0 };
            let steps = [FlowStep::Describe(flow_id), FlowStep::Graph(graph)];
            groups.push(steps.map(Step::Flow).into());
        }
        let nodes = (0..FLOWS).flat_map(|at| (0..NODES + ADDED).map(move |node| (at, node)));
        let nodes = nodes.map(|(at, node)| self.node_at(at, node));
        for node in nodes.chain(self.forked().iter().cloned()) {
            let mut steps = Self::all_of(&node);
            steps.push(Step::Flow(FlowStep::ParentResults(node)));
            groups.push(steps);
        }
        groups
    }
}
