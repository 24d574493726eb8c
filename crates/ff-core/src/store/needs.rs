//! What operations must see before they can decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::{ListQuery, Scan};
use crate::rows::{AnyKey, AttemptKey, FlowKey, IdempotencyKey, LaneRow, Record};
use crate::types::ExecutionKey;

/// The needs of a whole batch, merged: each thing is read once.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Each with its result, however large, and its current attempt.
    pub executions: BTreeSet<ExecutionKey>,
    /// Those of them that must be as they are stored now: whoever reads them may write nothing
    /// that would tell.
    pub unwritten: BTreeSet<ExecutionKey>,
    /// Those of them that may end. A store with locks takes the locks of their flows before theirs.
    pub ending: BTreeSet<ExecutionKey>,
    /// Those of them that are about to end. A store may bring along what stands behind them, as
    /// [`super::behind`] says; what it leaves out is asked for.
    pub behind: BTreeSet<ExecutionKey>,
    /// Those of them that are likely to be handed out here: their payloads, as far as they are
    /// stored with the row.
    pub payloads: BTreeSet<ExecutionKey>,
    /// Attempts beyond the current ones.
    pub attempts: BTreeSet<AttemptKey>,
    pub flows: BTreeSet<FlowKey>,
    /// Those of them that may be cancelled. A store whose claims only look at flows lets no claim
    /// come between, where members are not reached at once.
    pub cancelled_flows: BTreeSet<FlowKey>,
    /// Executions of flows, each with its current attempt.
    pub members: BTreeSet<MemberScan>,
    /// Flows whose unfinished executions are to be counted, without reading them.
    pub open_members: BTreeSet<FlowKey>,
    pub lanes: BTreeSet<Arc<str>>,
    /// Those of them that may be written.
    pub written_lanes: BTreeSet<Arc<str>>,
    pub idempotency: BTreeSet<IdempotencyKey>,
    pub records: BTreeSet<AnyKey>,
    pub scans: BTreeSet<Scan>,
    /// Those of them that find edges, each with their flow. As with `behind`, a store may bring
    /// along what they lead to.
    pub leading: BTreeMap<Scan, FlowKey>,
    /// The next executions in the order of their creation, each with its current attempt, for
    /// whoever walks over them.
    pub walks: BTreeMap<Uuid, Walk>,
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
    /// Whether it may end executions.
    may_end: bool,
    /// What was asked for before, and need not be named again.
    known: Option<Box<Self>>,
}

/// "Up to n claimable executions in this lane for a worker that offers these capabilities."
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimScan {
    pub lane: Arc<str>,
    /// Only of this namespace, if there is one.
    pub namespace: Option<Arc<str>>,
    pub offered: Vec<String>,
}

/// "Up to n members of this flow, in the order of their ids."
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberScan {
    pub flow: FlowKey,
    /// Only those behind this one.
    pub after: Option<Uuid>,
    pub limit: usize,
}

/// A walk over executions: looks at so many of them at most, and stops at the limit of those that
/// the filter names.
#[derive(Clone, Debug)]
pub struct Walk {
    pub filter: ListQuery,
    pub steps: usize,
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
        if self.may_end {
            self.ending.insert(key);
        }
    }

    /// An execution that the operation reads and does not write.
    pub fn unwritten_execution(&mut self, key: ExecutionKey) {
        self.executions.insert(key);
        self.unwritten.insert(key);
    }

    /// A lane that the operation may write.
    pub fn written_lane(&mut self, lane: Arc<str>) {
        self.lanes.insert(lane.clone());
        self.written_lanes.insert(lane);
    }

    /// A flow that the operation may cancel.
    pub fn cancelled_flow(&mut self, flow: FlowKey) {
        self.flows.insert(flow);
        self.cancelled_flows.insert(flow);
    }

    pub fn attempt(&mut self, execution: ExecutionKey, index: u32) {
        self.attempts.insert(AttemptKey { execution, index });
    }

    pub fn claim(&mut self, lane: Arc<str>, offered: Vec<String>, max: usize) {
        self.lanes.insert(lane.clone());
        self.lanes.insert(LaneRow::every());
        let namespace = self.scope.clone();
        *self.claimable.entry(ClaimScan { lane, namespace, offered }).or_default() += max;
    }

    pub fn record<R: Record>(&mut self, key: &R::Key) {
        let key = R::erase_key(key);
        if !self.known.as_ref().is_some_and(|known| known.records.contains(&key)) {
            self.records.insert(key);
        }
    }

    pub fn scan(&mut self, scan: &Scan) {
        let known = self.known.as_ref().is_some_and(|known| known.scans.contains(scan));
        if !known && !self.scans.contains(scan) {
            self.scans.insert(scan.clone());
        }
    }

    /// Edges of a flow, which are likely to be followed.
    pub fn edges(&mut self, scan: &Scan, flow: FlowKey) {
        self.scan(scan);
        if self.scans.contains(scan) {
            self.leading.insert(scan.clone(), flow);
        }
    }

    /// Needs for operations that are asked again, after all of this.
    pub(super) fn after(asked: Self) -> Self {
        Self { known: Some(Box::new(asked)), ..Self::default() }
    }

    /// What was asked for before comes back, grown by what is needed beyond it; with that, or with
    /// nothing if that was all.
    pub(super) fn beyond(mut self) -> (Self, Option<Self>) {
        let mut asked = self.known.take().map(|known| *known).unwrap_or_default();
        let more = self.and_not(&mut asked);
        (asked, more)
    }

    fn and_not(mut self, asked: &mut Self) -> Option<Self> {
        debug_assert!(self.claimable.is_empty(), "claims are scanned first");
        let mut any = false;
        any |= keep_new(&mut self.executions, &mut asked.executions);
        any |= keep_new(&mut self.payloads, &mut asked.payloads);
        any |= keep_new(&mut self.attempts, &mut asked.attempts);
        any |= keep_new(&mut self.flows, &mut asked.flows);
        any |= keep_new(&mut self.members, &mut asked.members);
        any |= keep_new(&mut self.open_members, &mut asked.open_members);
        any |= keep_new(&mut self.lanes, &mut asked.lanes);
        any |= keep_new(&mut self.idempotency, &mut asked.idempotency);
        any |= keep_new(&mut self.records, &mut asked.records);
        any |= keep_new(&mut self.scans, &mut asked.scans);
        self.walks.retain(|walker, walk| {
            let new = !asked.walks.contains_key(walker);
            asked.walks.entry(*walker).or_insert_with(|| walk.clone());
            new
        });
        any |= !self.walks.is_empty();
        any.then_some(self)
    }

    /// From now on an operation is asked that is confined so and may end executions, or not.
    pub(super) fn ask(&mut self, scope: Option<Arc<str>>, may_end: bool) {
        (self.scope, self.may_end) = (scope, may_end);
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

/// Leaves only what is new, and says whether anything is.
fn keep_new<T: Ord + Clone>(needed: &mut BTreeSet<T>, asked: &mut BTreeSet<T>) -> bool {
    if needed.is_empty() {
        return false;
    }
    needed.retain(|key| asked.insert(key.clone()));
    !needed.is_empty()
}
