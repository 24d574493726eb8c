//! Flows: the header, the edges with what they decide, and work on graphs that is not done yet.

use std::sync::Arc;

use uuid::Uuid;

use super::{Row, Word, record};
use crate::contracts::{EdgeGroupState, EdgePolicy};
use crate::state::TerminalOutcome;
use crate::types::{ExecutionKey, FlowId, TimestampMs};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    pub partition: u16,
    pub id: Uuid,
}

impl FlowKey {
    pub fn flow_id(self) -> FlowId {
        FlowId(self.id)
    }

    /// A member of the flow: all of them live on its partition.
    pub fn member(self, id: Uuid) -> ExecutionKey {
        ExecutionKey { partition: self.partition, id }
    }
}

/// Every word in storage except the three endings means that the flow lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowState {
    Open,
    Completed,
    Failed,
    Cancelled,
}

impl FlowState {
    pub fn is_finished(self) -> bool {
        self != Self::Open
    }
}

/// How the members of a flow have ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub expired: u64,
    pub skipped: u64,
    /// Cancelled because enough of their siblings had completed, which is no failure.
    pub spared: u64,
}

impl Endings {
    pub fn total(self) -> u64 {
        self.completed + self.failed + self.cancelled + self.expired + self.skipped + self.spared
    }

    /// The counter of an outcome.
    pub fn of(&mut self, outcome: TerminalOutcome) -> &mut u64 {
        match outcome {
            TerminalOutcome::Success => &mut self.completed,
            TerminalOutcome::Failed => &mut self.failed,
            TerminalOutcome::Cancelled => &mut self.cancelled,
            TerminalOutcome::Expired => &mut self.expired,
            TerminalOutcome::Skipped => &mut self.skipped,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    pub key: FlowKey,
    pub namespace: Arc<str>,
    pub kind: Arc<str>,
    pub graph_revision: i64,
    pub state: FlowState,
    pub created_at: TimestampMs,
    pub terminal_at: Option<TimestampMs>,
    /// Members that were submitted with the flow or added by one of them. None are counted for a
    /// flow that was inserted by hand, and such a flow does not end by itself.
    pub nodes: u64,
    pub edges: u64,
    pub ended: Endings,
    /// A JSON object for the few facts that have no column.
    pub raw_fields: Arc<str>,
}

impl FlowRow {
    /// How many members the transaction that cancels a flow reaches.
    pub const REACHED_AT_ONCE: u64 = 1_000;

    /// Whether that is all of them, so that whoever takes one meets the cancellation there.
    pub fn is_reached_at_once(&self) -> bool {
        (1..=Self::REACHED_AT_ONCE).contains(&self.nodes)
    }

    pub fn raw_text(&self, name: &str) -> Option<String> {
        let object = super::execution::raw_object(&self.raw_fields);
        object.get(name).and_then(|value| value.as_str()).map(str::to_owned)
    }
}

impl Row for FlowRow {
    type Key = FlowKey;

    fn key(&self) -> FlowKey {
        self.key
    }
}

/// What an edge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// The downstream runs after the upstream.
    Depends,
    /// The downstream added the upstream and may wait for its end.
    Awaits,
}

record! {
    /// "The downstream depends on the upstream."
    pub struct EdgeRow in "ff_edge" {
        key EdgeKey {
            flow: FlowKey = [partition_key: Small, flow_id: Uuid],
            edge_id: Uuid = [edge_id: Uuid],
        }
        upstream: Uuid = [upstream_eid: Uuid],
        downstream: Uuid = [downstream_eid: Uuid],
        policy: Arc<str> = [policy: Json],
        policy_version: i64 = [policy_version: Int4],
        kind: Word<EdgeKind> = [edge_kind: Text],
        /// The version that the upstream had when the edge was added: what came of it up to then
        /// was counted with the edge. Zero for an edge that is as old as its upstream.
        counted_version: u64 = [counted_version: Int],
    }
    index BY_UPSTREAM = ff_edge_upstream[partition_key, upstream_eid, flow_id, edge_id];
    index BY_DOWNSTREAM = ff_edge_downstream[partition_key, downstream_eid, flow_id, edge_id];
}

impl EdgeRow {
    /// The member that depends on another by this edge; one that awaits it has no group.
    pub fn dependent(&self) -> Option<Uuid> {
        (self.kind.0 == EdgeKind::Depends).then_some(self.downstream)
    }
}

record! {
    /// What the parents of a member have decided about it so far.
    pub struct EdgeGroupRow in "ff_edge_group" {
        key EdgeGroupKey {
            flow: FlowKey = [partition_key: Small, flow_id: Uuid],
            downstream: Uuid = [downstream_eid: Uuid],
        }
        /// An [`EdgePolicy`] in JSON; anything else means that all parents are needed.
        policy: Arc<str> = [policy: Json],
        k_target: i64 = [k_target: Int4],
        succeeded: i64 = [success_count: Int4],
        failed: i64 = [fail_count: Int4],
        skipped: i64 = [skip_count: Int4],
        running: i64 = [running_count: Int4],
        /// All parents; zero in a group that was inserted by hand, whose counters tell.
        parents: i64 = [parent_count: Int4],
        state: Word<EdgeGroupState> = [group_state: Text],
        /// Failures from before this moment are not counted: the member was replayed then.
        reset_at: Option<TimestampMs> = [reset_at_ms: Int],
    }
}

impl EdgeGroupRow {
    /// A group that no parent has decided anything about.
    pub fn new(key: EdgeGroupKey, policy: EdgePolicy, parents: usize) -> Self {
        let parents = i64::try_from(parents).unwrap_or(i64::MAX);
        let k_target = match policy {
            EdgePolicy::AllOf => parents,
            EdgePolicy::AnyOf { .. } => 1,
            EdgePolicy::Quorum { k, .. } => i64::from(k),
        };
        Self {
            key,
            policy: serde_json::json!(policy).to_string().into(),
            k_target,
            succeeded: 0,
            failed: 0,
            skipped: 0,
            running: parents,
            parents,
            state: Word(EdgeGroupState::Pending),
            reset_at: None,
        }
    }

    pub fn policy(&self) -> EdgePolicy {
        serde_json::from_str(&self.policy).unwrap_or_default()
    }

    pub fn is_pending(&self) -> bool {
        self.state.0 == EdgeGroupState::Pending
    }

    /// All parents, as far as the row tells.
    pub fn all_parents(&self) -> i64 {
        let told = self.succeeded + self.failed + self.skipped;
        match self.parents {
            0 => (told + self.running).max(self.k_target),
            parents => parents.max(told),
        }
    }
}

record! {
    /// The nodes that a member has added to its flow, and whether it waits for them.
    pub struct ChildrenRow in "ff_children", owned {
        key ChildrenKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
        }
        added: u64 = [added_count: Int],
        ended: u64 = [ended_count: Int],
        waiting: bool = [waiting: Bool],
    }
}

/// What is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CascadeKind {
    /// The subject has ended: its children must be told.
    Ended,
    /// The subject is run again: what its children were told is taken back.
    Reopened,
    /// The subject's group has decided: it must be made ready or be skipped.
    Decided,
    /// The subject's group has decided: its other parents are cancelled.
    Siblings,
    /// The subject came back after its flow was cancelled: it must be cancelled too.
    Returned,
    /// The subject is a flow that was cancelled: its members must be reached.
    Members,
    /// The subject is a flow whose cancelled members nobody acknowledges.
    Backlog,
    /// The subject is a flow that is to be forgotten.
    Forget,
}

record! {
    /// Work on a graph that did not fit into the transaction that caused it.
    pub struct CascadeRow in "ff_cascade" {
        key CascadeKey {
            /// An execution or a flow.
            subject: Uuid = [subject_id: Uuid],
            /// The version of the subject that caused it: earlier causes are dealt with first.
            version: u64 = [version: Int],
            kind: Word<CascadeKind> = [cascade_kind: Text],
        }
        flow: FlowKey = [partition_key: Small, flow_id: Uuid],
        outcome: Word<TerminalOutcome> = [outcome: Text],
        /// When the subject ended.
        at: TimestampMs = [at_ms: Int],
        /// The flow has counted the subject's ending.
        counted: bool = [counted: Bool],
        /// Up to here it is done.
        after: Option<Uuid> = [after_id: Uuid],
        /// How members are reached, and why.
        policy: Option<Arc<str>> = [policy: Text],
        reason: Option<Arc<str>> = [reason: Text],
    }
    index BY_FLOW = ff_cascade_flow[partition_key, flow_id, subject_id, version, cascade_kind];
}

record! {
    /// A flow whose cancelled members have not all been acknowledged.
    pub struct BacklogRow in "ff_cancel_backlog" {
        key BacklogKey {
            flow: FlowKey = [partition_key: Small, flow_id: Uuid],
        }
        requested_at: TimestampMs = [requested_at_ms: Int],
        requester: Arc<str> = [requester: Text],
        reason: Arc<str> = [reason: Text],
        cancellation_policy: Arc<str> = [cancellation_policy: Text],
        status: Arc<str> = [status: Text],
    }
}

record! {
    /// A cancelled member that has not been acknowledged.
    pub struct BacklogMemberRow in "ff_cancel_backlog_member" {
        key BacklogMemberKey {
            flow: FlowKey = [partition_key: Small, flow_id: Uuid],
            /// The wire form.
            execution_id: Arc<str> = [execution_id: Text],
        }
    }
}
