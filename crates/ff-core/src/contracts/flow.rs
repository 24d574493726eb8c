//! Graphs of executions: what is submitted, and what is told about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Submission;
use crate::state::PublicState;
use crate::types::{ExecutionId, FlowId, LaneId, Namespace, TimestampMs};

/// How many of its parents a node needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EdgePolicy {
    /// Every parent completes.
    #[default]
    AllOf,
    /// One parent completes.
    AnyOf {
        #[serde(default)]
        on_satisfied: OnSatisfied,
    },
    /// `k` parents complete.
    Quorum {
        k: u32,
        #[serde(default)]
        on_satisfied: OnSatisfied,
    },
}

impl EdgePolicy {
    /// What becomes of the parents that are not needed any more.
    pub fn on_satisfied(self) -> OnSatisfied {
        match self {
            Self::AllOf => OnSatisfied::LetRun,
            Self::AnyOf { on_satisfied } | Self::Quorum { on_satisfied, .. } => on_satisfied,
        }
    }
}

/// What becomes of the other parents once enough have completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnSatisfied {
    /// They are cancelled, whatever else depends on them.
    CancelRemaining,
    #[default]
    LetRun,
}

/// One node of a graph.
#[derive(Clone, Debug, Default)]
pub struct FlowNode {
    /// Its name in the flow, by which edges find it; empty for a node that only has an id.
    pub name: String,
    pub work: Submission,
    /// How many of its parents it needs.
    pub policy: EdgePolicy,
    /// Hands the node its parents' results together with its input, as one JSON object.
    pub merge_results: bool,
}

impl FlowNode {
    pub fn new(name: impl Into<String>, work: Submission) -> Self {
        Self { name: name.into(), work, ..Self::default() }
    }

    #[must_use]
    pub fn policy(mut self, policy: EdgePolicy) -> Self {
        self.policy = policy;
        self
    }

    #[must_use]
    pub fn merge_results(mut self) -> Self {
        self.merge_results = true;
        self
    }
}

/// "`to` depends on `from`": each end is a node's name or an execution id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FlowEdge {
    pub from: String,
    pub to: String,
}

impl FlowEdge {
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self { from: from.into(), to: to.into() }
    }
}

/// A whole graph, accepted or refused as one.
#[derive(Clone, Debug, Default)]
pub struct SubmitFlowArgs {
    /// Chosen by the caller, or made by the engine.
    pub flow_id: Option<FlowId>,
    pub namespace: Namespace,
    pub flow_kind: String,
    /// The same graph under the same key is accepted once per namespace, while the flow is kept.
    /// It names the flow, so no flow id may be given beside it.
    pub idempotency_key: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub nodes: Vec<FlowNode>,
    pub edges: Vec<FlowEdge>,
}

/// What became of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum SubmitFlowResult {
    Created {
        flow_id: FlowId,
        /// In the order of the nodes.
        execution_ids: Vec<ExecutionId>,
    },
    /// The same graph was accepted before.
    Duplicate { flow_id: FlowId, execution_ids: Vec<ExecutionId> },
}

impl SubmitFlowResult {
    pub fn flow_id(&self) -> FlowId {
        match self {
            Self::Created { flow_id, .. } | Self::Duplicate { flow_id, .. } => *flow_id,
        }
    }

    pub fn execution_ids(&self) -> &[ExecutionId] {
        match self {
            Self::Created { execution_ids, .. } | Self::Duplicate { execution_ids, .. } => {
                execution_ids
            }
        }
    }
}

/// What a running member adds to its own flow.
#[derive(Clone, Debug, Default)]
pub struct ExtendFlowArgs {
    pub nodes: Vec<FlowNode>,
    /// Between these nodes, from members to them, and into members that have not started.
    pub edges: Vec<FlowEdge>,
}

/// What became of a holder that asked to wait for the nodes it has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum WaitChildrenResult {
    /// It was put down, and is handed out again when all of them have ended.
    Waiting { open: u64 },
    /// All of them have ended already: it goes on.
    Ended,
}

/// Runs a node and everything that depends on it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayFlowArgs {
    pub execution_id: ExecutionId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayFlowResult {
    pub flow_id: FlowId,
    /// The node itself first.
    pub replayed: Vec<ExecutionId>,
}

/// Runs a node and everything that depends on it in a flow of their own; the old one stays.
#[derive(Clone, Debug)]
pub struct ForkFlowArgs {
    /// The node from which to go on.
    pub execution_id: ExecutionId,
    /// The identity of the new flow, on the partition of the old one; drawn if absent. One that is
    /// taken is refused, so whoever got no answer can ask again without forking twice.
    pub flow_id: Option<FlowId>,
    /// What that node is given instead of its own input.
    pub input_payload: Option<Vec<u8>>,
    /// It begins with the steps that the old one had recorded, up to this one; with none if absent.
    pub steps_up_to: Option<String>,
    pub creator_identity: String,
}

/// Where a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FlowStatus {
    /// It lives, and no member is running or held up.
    Open,
    /// A member is running.
    Running,
    /// No member is running or can be handed out at present.
    Blocked,
    Completed,
    Failed,
    Cancelled,
}

impl FlowStatus {
    pub const ALL: [Self; 6] =
        [Self::Open, Self::Running, Self::Blocked, Self::Completed, Self::Failed, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A line in a list of flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowSummary {
    pub flow_id: FlowId,
    pub namespace: Namespace,
    pub flow_kind: String,
    /// Of a living flow always `open`: what its members do is told by `describe_flow`.
    pub status: FlowStatus,
    pub created_at: TimestampMs,
    pub finished_at: Option<TimestampMs>,
    pub node_count: u64,
    pub edge_count: u64,
    /// How many members have ended in each way.
    pub ended: BTreeMap<PublicState, u64>,
    /// What cannot be read of the stored row. The other fields are as far as they can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// Everything about a flow except its graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowSnapshot {
    pub flow_id: FlowId,
    pub namespace: Namespace,
    pub flow_kind: String,
    /// Projected from the members while the flow lives.
    pub status: FlowStatus,
    pub created_at: TimestampMs,
    pub finished_at: Option<TimestampMs>,
    pub node_count: u64,
    pub edge_count: u64,
    pub graph_revision: u64,
    /// How many members are in each state.
    pub counts: BTreeMap<PublicState, u64>,
    pub tags: BTreeMap<String, String>,
    pub cancellation_policy: Option<String>,
    pub cancel_reason: Option<String>,
    /// The flow that this one was forked from, and the node.
    pub forked_from: Option<FlowId>,
    pub forked_from_execution: Option<ExecutionId>,
    /// What cannot be read of the stored row. The other fields are as far as they can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// Which flows to list; an absent part means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFlowsArgs {
    pub namespace: Option<Namespace>,
    /// `running` and `blocked` mean the same as `open` here: the flow lives.
    pub statuses: Vec<FlowStatus>,
    pub cursor: Option<String>,
    /// 1 to 1,000; 0 means 100.
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowPage {
    /// The newest first.
    pub flows: Vec<FlowSummary>,
    /// Present when there is more.
    pub next_cursor: Option<String>,
}

/// A page of a flow's graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowGraphArgs {
    pub flow_id: FlowId,
    pub cursor: Option<String>,
    /// How many nodes, 1 to 1,000; 0 means 1,000. Each brings the edges into it, and a page has at
    /// most ten times as many edges.
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowGraph {
    pub nodes: Vec<FlowGraphNode>,
    /// The edges into these nodes. If the last node has more of them than the page has room for,
    /// the next page begins with the rest.
    pub edges: Vec<FlowGraphEdge>,
    /// Present when there is more; all pages together are the whole graph.
    pub next_cursor: Option<String>,
    /// Edges, and what nodes wait for, that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<super::UnreadableRecord>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowGraphNode {
    pub execution_id: ExecutionId,
    pub name: String,
    pub lane_id: LaneId,
    pub execution_kind: String,
    pub public_state: PublicState,
    pub attempt_index: u32,
    pub started_at: Option<TimestampMs>,
    pub finished_at: Option<TimestampMs>,
    /// Absent for a node without parents.
    pub group: Option<EdgeGroupSnapshot>,
    /// What cannot be read of the stored row. The other fields are as far as they can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// What a node waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EdgeGroupSnapshot {
    pub policy: EdgePolicy,
    pub state: EdgeGroupState,
    pub parents: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub skipped: u64,
}

/// Whether a node's parents have decided about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EdgeGroupState {
    Pending,
    /// The node may run.
    Satisfied,
    /// The node was skipped.
    Impossible,
    /// The node ended before its parents had decided.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowGraphEdge {
    pub from: ExecutionId,
    pub to: ExecutionId,
}

/// Which parents of a node to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentResultsArgs {
    pub execution_id: ExecutionId,
    /// `next_after` of the page before.
    pub after: Option<Uuid>,
    /// Zero stands for 100.
    pub limit: usize,
}

impl ParentResultsArgs {
    /// The first page.
    pub fn new(execution_id: ExecutionId) -> Self {
        Self { execution_id, after: None, limit: 0 }
    }
}

/// Parents of a node in the order of its edges.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentPage {
    pub parents: Vec<ParentResult>,
    /// Where the next page begins; nothing behind the last one.
    pub next_after: Option<Uuid>,
}

/// A parent of a node, and what it ended with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParentResult {
    pub execution_id: ExecutionId,
    pub name: String,
    pub public_state: PublicState,
    /// Absent unless the parent completed with one.
    pub result: Option<Vec<u8>>,
}
