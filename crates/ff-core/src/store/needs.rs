//! What operations must see before they can decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::rows::{AttemptKey, FlowKey, IdempotencyKey};
use crate::types::ExecutionKey;

/// The needs of a whole batch, merged: each thing is read once.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Each with its result, however large, and its current attempt.
    pub executions: BTreeSet<ExecutionKey>,
    /// Attempts beyond the current ones.
    pub attempts: BTreeSet<AttemptKey>,
    pub flows: BTreeSet<FlowKey>,
    /// All executions of these flows, each with its current attempt.
    pub flow_members: BTreeSet<FlowKey>,
    /// The edge groups that gate these executions.
    pub edge_groups_into: BTreeSet<ExecutionKey>,
    /// The cancel backlog of these flows: header and members.
    pub backlogs: BTreeSet<FlowKey>,
    pub lanes: BTreeSet<Arc<str>>,
    pub idempotency: BTreeSet<IdempotencyKey>,
    /// Claimable executions, best first, each with its current attempt and its flow.
    pub claimable: BTreeMap<ClaimScan, usize>,
    /// At most this many due timers, each with its members and their current attempts, and the
    /// idempotency rows of those members.
    pub due_timers: usize,
    /// At most this many executions that no event has told of yet, each with its lane.
    pub unannounced: usize,
    /// The oldest events that may be forgotten, with the executions that finished with them, their
    /// current attempts and idempotency rows.
    pub retention: Option<RetentionScan>,
    /// The namespace that the operation being asked is confined to.
    scope: Option<Arc<str>>,
}

/// "Up to n claimable executions in this lane for a worker that offers these capabilities."
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimScan {
    pub lane: Arc<str>,
    /// Only of this namespace, if there is one.
    pub namespace: Option<Arc<str>>,
    pub offered: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionScan {
    /// Events older than this may go.
    pub max_age_ms: Option<u64>,
    /// Events before the newest so many endings may go.
    pub max_finished: Option<u64>,
    pub limit: usize,
}

impl Needs {
    pub fn execution(&mut self, key: ExecutionKey) {
        self.executions.insert(key);
    }

    pub fn attempt(&mut self, execution: ExecutionKey, index: u32) {
        self.attempts.insert(AttemptKey { execution, index });
    }

    pub fn claim(&mut self, lane: Arc<str>, offered: Vec<String>, max: usize) {
        self.lanes.insert(lane.clone());
        let namespace = self.scope.clone();
        *self.claimable.entry(ClaimScan { lane, namespace, offered }).or_default() += max;
    }

    pub(super) fn restrict(&mut self, scope: Option<Arc<str>>) {
        self.scope = scope;
    }

    /// Claims of one lane may be after the same executions, whatever else they offer, so each scan
    /// must reach as deep as all of them together.
    pub(super) fn settle_claims(&mut self) {
        let mut depth: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for (scan, max) in &self.claimable {
            *depth.entry(scan.lane.clone()).or_default() += max;
        }
        for (scan, max) in &mut self.claimable {
            *max = depth[&scan.lane];
        }
    }
}
