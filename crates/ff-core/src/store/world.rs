//! The rows that a batch asked for, read at one instant, and the store's clock.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;

use super::{Change, ClaimScan, LogFloor, MemberScan, Records, Scan, Scanned, Table, Walk, Write};
use crate::capability;
use crate::engine_error::EngineError;
use crate::rows::{
    AnyRow, AttemptKey, AttemptRow, EventRow, ExecutionRow, FlowKey, FlowRow, IdempotencyRow,
    LaneRow, TimerRow, budget_names,
};
use crate::state::LaneState;
use crate::types::{ExecutionKey, Namespace, TimestampMs};

/// What an index has for a worker.
#[derive(Clone, Debug, Default)]
pub struct Claimable {
    /// Best first.
    pub keys: Vec<ExecutionKey>,
    /// The scan stopped at its limit, so there may be more.
    pub more: bool,
}

/// What a walk over executions has come to.
#[derive(Clone, Debug, Default)]
pub struct Walked {
    /// Those that the filter names, oldest first, each with its time of creation.
    pub keys: Vec<(TimestampMs, ExecutionKey)>,
    /// The last one that was looked at, if there were any.
    pub last: Option<(TimestampMs, Uuid)>,
    /// There are more behind it.
    pub more: bool,
}

impl Walked {
    /// What was found by looking at executions in order, at so many at most: each as its time of
    /// creation, its key, and whether the filter names it.
    pub fn from_steps(
        found: impl IntoIterator<Item = (TimestampMs, ExecutionKey, bool)>,
        walk: &Walk,
    ) -> Self {
        let mut walked = Self::default();
        for (steps, (at, key, named)) in found.into_iter().enumerate() {
            if walked.keys.len() == walk.filter.limit {
                walked.more = true;
                break;
            }
            if named {
                walked.keys.push((at, key));
            }
            walked.last = Some((at, key.id));
            walked.more = steps + 1 == walk.steps;
        }
        walked
    }
}

/// What operations decide from. Each sees the changes of those before it in the batch.
#[derive(Debug, Default)]
pub struct World {
    pub now: TimestampMs,
    pub store: &'static str,
    /// Marks the lease ids that the store hands out.
    pub lease_prefix: &'static str,
    pub executions: Table<ExecutionRow>,
    pub attempts: Table<AttemptRow>,
    pub flows: Table<FlowRow>,
    pub lanes: Table<LaneRow>,
    pub timers: Table<TimerRow>,
    pub idempotency: Table<IdempotencyRow>,
    pub records: Table<AnyRow>,
    /// For each scan of members the last one, if it stopped at its limit.
    pub members: HashMap<MemberScan, Option<Uuid>>,
    /// How many executions of a flow have not ended, where that was asked.
    pub open_members: HashMap<FlowKey, u64>,
    /// The answer to each scan.
    pub scans: foldhash::HashMap<Scan, Scanned>,
    /// What each walk has come to.
    pub walks: HashMap<Uuid, Walked>,
    /// Flows that were only looked at: whoever writes them has to ask for them.
    pub seen_flows: HashSet<FlowKey>,
    /// The answer to each claim scan, best first.
    pub claimable: foldhash::HashMap<ClaimScan, Claimable>,
    pub due_timers: Vec<TimerRow>,
    pub unannounced: Vec<ExecutionKey>,
    pub retired_events: Vec<EventRow>,
    /// If set, executions and flows of other namespaces do not exist.
    scope: Option<Namespace>,
    /// UUIDs that were asked for under one partition and belong to another.
    pub taken_elsewhere: HashSet<Uuid>,
    /// Executions that this batch has made claimable.
    fresh: Vec<ExecutionKey>,
    unprepared: bool,
    events: Vec<EventRow>,
    log_floor: Option<LogFloor>,
}

impl World {
    pub fn new(now: TimestampMs, store: &'static str) -> Self {
        Self { now, store, lease_prefix: store, ..Self::default() }
    }

    pub fn execution(&self, key: ExecutionKey) -> Option<&ExecutionRow> {
        self.executions.get(&key).filter(|row| self.in_scope(&row.namespace))
    }

    /// The execution, or the refusal that there is none.
    pub fn existing(&self, key: ExecutionKey) -> Result<&ExecutionRow, EngineError> {
        self.execution(key).ok_or(EngineError::NotFound { entity: "execution" })
    }

    pub fn flow(&self, key: FlowKey) -> Option<&FlowRow> {
        self.flows.get(&key).filter(|row| self.in_scope(&row.namespace))
    }

    pub fn attempt(&self, execution: ExecutionKey, index: u32) -> Option<&AttemptRow> {
        self.attempts.get(&AttemptKey { execution, index })
    }

    /// The attempt that the execution row points at.
    pub fn current_attempt(&self, row: &ExecutionRow) -> Option<&AttemptRow> {
        self.attempt(row.key, row.attempt_index)
    }

    /// The attempt that a worker holds, whether or not its lease has expired. The holder's name
    /// stays on the attempt of an execution that has ended, so that a repeated call is recognised;
    /// that is no lease any more.
    pub fn leased_attempt(&self, row: &ExecutionRow) -> Option<&AttemptRow> {
        let leased = |attempt: &&AttemptRow| attempt.holder().is_some();
        self.current_attempt(row).filter(|_| !row.is_finished()).filter(leased)
    }

    /// What a scan of members finds at this moment, with those that the batch has added.
    pub fn members(&self, scan: &MemberScan) -> Vec<&ExecutionRow> {
        let Some(last) = self.members.get(scan) else { return Vec::new() };
        let covered = |row: &&ExecutionRow| {
            row.flow_id == Some(scan.flow.id)
                && scan.after.is_none_or(|after| row.key.id > after)
                && last.is_none_or(|last| row.key.id <= last)
        };
        let mut members: Vec<_> = self.executions.rows().filter(covered).collect();
        members.sort_unstable_by_key(|row| row.key.id);
        members
    }

    /// The last member that a scan came to, if it stopped at its limit.
    pub fn members_cut(&self, scan: &MemberScan) -> Option<Uuid> {
        self.members.get(scan).copied().flatten()
    }

    /// What a worker may be given from these lanes, best first over all of them: what the index
    /// named and what this batch has made claimable since, checked against the rows.
    pub fn claimable(&self, lanes: &[Arc<str>], offered: &[String]) -> Vec<&ExecutionRow> {
        let mut found: Vec<&ExecutionRow> = Vec::new();
        for lane in lanes {
            if let Some(scanned) = self.claimable.get(&self.claim_scan(lane, offered)) {
                found.extend(scanned.keys.iter().filter_map(|key| self.claimable_row(*key)));
            }
        }
        let scanned = found.len();
        let fresh = self.fresh.iter().filter_map(|key| self.claimable_row(*key));
        // Whether the flow of a fresh row still lives may not have been looked at; the row is
        // found in its index by the next claim.
        found.extend(fresh.filter(|row| {
            lanes.contains(&row.lane)
                && capability::satisfied(&row.capability_class, offered)
                && self.flow_is_known(row)
                && !self.may_be_limited(row)
        }));
        // One lane's answer is in order already.
        if lanes.len() > 1 || found.len() > scanned {
            found.sort_by_key(|row| (row.rank(), row.key.id));
            found.dedup_by_key(|row| row.key);
        }
        found
    }

    /// Whether the index has more for such a worker than this batch has looked at.
    pub fn more_claimable(&self, lanes: &[Arc<str>], offered: &[String]) -> bool {
        lanes.iter().any(|lane| {
            self.claimable.get(&self.claim_scan(lane, offered)).is_some_and(|scanned| scanned.more)
        })
    }

    /// The flow that an execution belongs to, if it was loaded.
    pub fn flow_of(&self, row: &ExecutionRow) -> Option<&FlowRow> {
        let id = row.flow_id?;
        // A store without partitions has all its flows at 0, whatever number an id names.
        let [own, first] = [row.key.partition, 0].map(|partition| FlowKey { partition, id });
        self.flows.get(&own).or_else(|| self.flows.get(&first))
    }

    /// Whether that flow is at hand and not only looked at.
    pub(crate) fn may_write_flow_of(&self, row: &ExecutionRow) -> bool {
        self.flow_of(row).is_some_and(|flow| self.may_write(&flow.key))
    }

    pub(crate) fn may_write(&self, flow: &FlowKey) -> bool {
        self.flows.is_loaded(flow) && !self.seen_flows.contains(flow)
    }

    fn claim_scan(&self, lane: &Arc<str>, offered: &[String]) -> ClaimScan {
        ClaimScan {
            lane: lane.clone(),
            namespace: self.scope.as_ref().map(|scope| scope.as_str().into()),
            offered: offered.to_vec(),
        }
    }

    /// The rows of lanes that speak for these lanes and say that limits must be looked at.
    pub fn limited_lanes(&self, lanes: &[Arc<str>]) -> Vec<Arc<str>> {
        let limited = |lane: &Arc<str>| self.lanes.get(lane).is_some_and(|row| row.limited);
        let mut found: Vec<Arc<str>> = lanes.iter().filter(|lane| limited(lane)).cloned().collect();
        if !lanes.is_empty() {
            found.extend(Some(LaneRow::every()).filter(limited));
        }
        found
    }

    /// Whether limits may apply to an execution. Where that was not looked at they may.
    fn may_be_limited(&self, row: &ExecutionRow) -> bool {
        let unlimited = |lane: &Arc<str>| self.lanes.get(lane).is_some_and(|lane| !lane.limited);
        !unlimited(&row.lane)
            || !unlimited(&LaneRow::every())
            || row.may_name_budgets()
            || self.flow_names_budgets(row)
    }

    fn flow_names_budgets(&self, row: &ExecutionRow) -> bool {
        self.flow_of(row).is_some_and(|flow| !budget_names(&flow.raw_fields).is_empty())
    }

    /// Whether it was looked at if the flow of an execution still lives.
    fn flow_is_known(&self, row: &ExecutionRow) -> bool {
        row.flow_id.is_none() || self.flow_of(row).is_some()
    }

    /// Whether a limit may apply to anything that a worker may be given from these lanes.
    pub fn claims_may_be_limited(&self, lanes: &[Arc<str>], offered: &[String]) -> bool {
        if !self.limited_lanes(lanes).is_empty() {
            return true;
        }
        let scans =
            lanes.iter().filter_map(|lane| self.claimable.get(&self.claim_scan(lane, offered)));
        let mut rows = scans.flat_map(|scan| &scan.keys).filter_map(|key| self.executions.get(key));
        rows.any(|row| row.may_name_budgets() || self.flow_names_budgets(row))
    }

    /// Whether a lane hands work out. One that was never used is open.
    pub fn lane_is_open(&self, lane: &Arc<str>) -> bool {
        match self.lanes.get(lane) {
            Some(lane) => lane.state == LaneState::Active,
            None => !self.unprepared,
        }
    }

    /// From now on claims are decided whose needs were not loaded: what is not here is not known.
    pub(super) fn unprepared(&mut self) {
        self.unprepared = true;
    }

    /// How much this batch has made claimable in lanes that it knows to be open. Members of flows
    /// that were not looked at are left out, because they may have been cancelled.
    pub(super) fn new_work(&self) -> HashMap<Arc<str>, usize> {
        let mut work: HashMap<Arc<str>, usize> = HashMap::new();
        for key in &self.fresh {
            let Some(row) = self.executions.get(key).filter(|row| row.is_claimable()) else {
                continue;
            };
            let known = self.lanes.get(&row.lane).is_some();
            let open = known && self.lane_is_open(&row.lane) && !self.may_be_limited(row);
            if open && self.flow_is_known(row) {
                *work.entry(row.lane.clone()).or_default() += 1;
            }
        }
        work
    }

    fn claimable_row(&self, key: ExecutionKey) -> Option<&ExecutionRow> {
        let known = |row: &&ExecutionRow| {
            !self.unprepared || (self.flow_is_known(row) && !self.may_be_limited(row))
        };
        self.execution(key).filter(|row| row.is_claimable()).filter(known)
    }

    /// From now on only this namespace can be seen.
    pub(super) fn restrict(&mut self, scope: Option<Namespace>) {
        self.scope = scope;
    }

    fn in_scope(&self, namespace: &str) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.as_str() == namespace)
    }

    /// The namespace that the present operation is confined to.
    pub fn scope(&self) -> Option<&Namespace> {
        self.scope.as_ref()
    }

    /// Takes a change over, so that the next operation sees it.
    pub fn apply(&mut self, change: Change) {
        for write in &change.executions {
            if let Write::Insert(row) | Write::Update(row) = write
                && row.is_claimable()
            {
                self.fresh.push(row.key);
            }
        }
        apply_all(&mut self.executions, change.executions);
        // What one claim has taken the next one need not look at.
        if change.attempts.iter().any(|write| matches!(write, Write::Insert(_))) {
            let executions = &self.executions;
            self.fresh.retain(|key| executions.get(key).is_some_and(ExecutionRow::is_claimable));
        }
        apply_all(&mut self.attempts, change.attempts);
        apply_all(&mut self.flows, change.flows);
        apply_all(&mut self.lanes, change.lanes);
        apply_all(&mut self.timers, change.timers);
        apply_all(&mut self.idempotency, change.idempotency);
        apply_all(&mut self.records, change.records.into_writes());
        self.events.extend(change.events);
        self.log_floor = self.log_floor.max(change.log_floor);
    }

    /// Everything that the batch wants written, merged.
    pub fn into_change(mut self) -> Change {
        Change {
            executions: self.executions.take_writes(),
            attempts: self.attempts.take_writes(),
            flows: self.flows.take_writes(),
            lanes: self.lanes.take_writes(),
            timers: self.timers.take_writes(),
            idempotency: self.idempotency.take_writes(),
            records: Records::of(self.records.take_writes()),
            events: self.events,
            log_floor: self.log_floor,
        }
    }
}

fn apply_all<R: crate::rows::Row>(table: &mut Table<R>, writes: Vec<Write<R>>) {
    table.reserve(writes.len());
    for write in writes {
        table.apply(write);
    }
}
