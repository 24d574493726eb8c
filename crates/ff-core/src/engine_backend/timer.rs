//! Whether everything that waits for a time has a timer, for `doctor`.
//!
//! Timers are read first, page by page, and then what waits. What moves meanwhile seems to have
//! none, so it is missing one only if it is found twice without a change between.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use uuid::Uuid;

use super::{EngineBackend, check_unscoped};
use crate::contracts::{ListOrder, MissingTimer, TimerCheck, UnreadPolicy};
use crate::engine::Engine;
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::limit::due::next_look;
use crate::operations::timer::Rearm;
use crate::operations::timer::expected::{self, ANY_EPOCH};
use crate::rows::spelling::Spelling;
use crate::rows::{
    AnyKey, AttemptRow, BulkRow, CascadeRow, ExecutionRow, LimitKey, LimitRow, LimitStateRow,
    Record, ScheduleRow, SuspensionKey, SuspensionRow, TimerKind, TimerRow, Value, WaitpointRow,
    WorkerRow, values,
};
use crate::state::{LifecyclePhase, PublicState};
use crate::store::{ListQuery, Query, Scan};
use crate::types::{ExecutionKey, TimestampMs};

/// So many timers are held in memory at once. With more of them, what waits is looked at in several
/// rounds.
const ROUND: usize = 500_000;
/// So many that have none are found at once. With more of them, a check that mends looks again.
const FOUND: usize = 10_000;
/// So often at most: what is still missing then, the next check tells.
const LOOKS: usize = 100;
/// So many are armed in one transaction.
const CHUNK: usize = 200;
/// So many policies that cannot be read are told.
const POLICIES: usize = 1_000;

#[async_trait]
pub trait TimerOperations: EngineBackend {
    /// Finds everything that waits for a time and has no timer; if asked to, arms one. What is
    /// overdue by then happens with the next sweep.
    async fn check_timers(&self, mend: bool) -> Result<TimerCheck, EngineError> {
        check_unscoped(self.scope(), "check_timers")?;
        self::check(self.engine(), mend, Bounds { round: ROUND, found: FOUND }).await
    }
}

impl<B: EngineBackend + ?Sized> TimerOperations for B {}

/// How much is held in memory at once.
#[derive(Clone, Copy)]
struct Bounds {
    round: usize,
    found: usize,
}

async fn check(engine: &Engine, mend: bool, bounds: Bounds) -> Result<TimerCheck, EngineError> {
    let mut check = TimerCheck::default();
    let mut armed = BTreeSet::new();
    for _ in 0..LOOKS {
        let first = Look::at(engine, bounds).await?;
        (check.waits, check.policies) = (first.waits, first.policies);
        let all = first.missing.len() < bounds.found;
        if first.missing.is_empty() {
            break;
        }
        let second = Look::at(engine, bounds).await?.missing;
        let mut missing: Vec<Wait> = Vec::new();
        for (place, wait) in first.missing {
            let still = second.get(&place).is_some_and(|again| again.version == wait.version);
            // What was armed and has no timer again is for the next check.
            if still && armed.insert(place) {
                missing.push(wait);
            }
        }
        for chunk in missing.chunks(CHUNK).filter(|_| mend) {
            engine.run(None, rearm(chunk)).await?;
        }
        check.missing.extend(missing.iter().map(Wait::told));
        if all || !mend || missing.is_empty() {
            break;
        }
    }
    log(&check.missing, mend);
    Ok(check)
}

fn log(missing: &[MissingTimer], mended: bool) {
    for MissingTimer { kind, subject, due_at } in missing {
        tracing::warn!(kind, subject, %due_at, mended, "a timer is missing");
    }
}

fn rearm(waits: &[Wait]) -> Rearm {
    let executions = waits.iter().filter_map(|wait| wait.execution).collect();
    // What an execution waits for is read from its row again.
    let alone = waits.iter().filter(|wait| wait.execution.is_none());
    Rearm { executions, timers: alone.map(|wait| wait.timer.clone()).collect() }
}

/// Something that waits for a time.
struct Wait {
    timer: TimerRow,
    /// The execution whose row says so.
    execution: Option<ExecutionKey>,
    /// Of that row.
    version: u64,
    subject: String,
}

impl Wait {
    fn bare(timer: TimerRow, subject: String) -> Self {
        Self { timer, execution: None, version: 0, subject }
    }

    fn told(&self) -> MissingTimer {
        let (kind, subject) = (self.timer.key.kind.word().to_owned(), self.subject.clone());
        MissingTimer { kind, subject, due_at: self.timer.key.due_at }
    }
}

/// The timers of one kind for one execution or one subject.
#[derive(Clone, Copy)]
struct Armed {
    due_at: TimestampMs,
    /// The last lease that is watched.
    epoch: u64,
    /// Whatever lease there is, it is watched.
    any: bool,
}

#[derive(Default)]
struct Armory(HashMap<(TimerKind, Uuid), Armed>);

impl Armory {
    fn add(&mut self, kind: TimerKind, id: Uuid, due_at: TimestampMs, epoch: u64) {
        let first = Armed { due_at, epoch, any: false };
        let armed = self.0.entry((kind, id)).or_insert(first);
        armed.due_at = armed.due_at.min(due_at);
        armed.epoch = armed.epoch.max(epoch);
        armed.any |= epoch == ANY_EPOCH;
    }

    fn has(&self, kind: TimerKind, id: Uuid) -> bool {
        self.0.contains_key(&(kind, id))
    }

    /// Whether something is looked at by then.
    fn has_by(&self, kind: TimerKind, id: Uuid, at: TimestampMs) -> bool {
        self.0.get(&(kind, id)).is_some_and(|armed| armed.due_at <= at)
    }

    /// Whether a lease is watched.
    fn watches(&self, kind: TimerKind, id: Uuid, epoch: u64) -> bool {
        self.0.get(&(kind, id)).is_some_and(|armed| armed.any || armed.epoch == epoch)
    }
}

/// One round over what waits.
struct Look<'e> {
    engine: &'e Engine,
    bounds: Bounds,
    armory: Armory,
    /// Only what falls into this part of so many is looked at.
    part: (u128, u128),
    waits: u64,
    missing: BTreeMap<(TimerKind, Uuid), Wait>,
    policies: Vec<UnreadPolicy>,
}

impl<'e> Look<'e> {
    async fn at(engine: &'e Engine, bounds: Bounds) -> Result<Self, EngineError> {
        let (missing, policies) = (BTreeMap::new(), Vec::new());
        let armory = Armory::default();
        let mut look = Self { engine, bounds, armory, part: (0, 1), waits: 0, missing, policies };
        let members = look.read_timers().await?;
        let parts = (members / bounds.round + 1) as u128;
        for part in 0..parts {
            if parts > 1 {
                look.part = (part, parts);
                look.read_timers().await?;
            }
            look.executions().await?;
            look.records().await?;
        }
        Ok(look)
    }

    fn is_of_part(&self, id: Uuid) -> bool {
        id.as_u128() % self.part.1 == self.part.0
    }

    /// Reads the timers of this part, and says how many members there are in all: one timer may
    /// watch many executions.
    async fn read_timers(&mut self) -> Result<usize, EngineError> {
        self.armory = Armory::default();
        let (mut after, mut count) = (None, 0);
        loop {
            let query = Query::Timers { after, limit: limits::PAGE };
            let timers = self.engine.query(query).await?.timers;
            for timer in &timers {
                self.add(timer);
                count += timer.members.len().max(1);
            }
            after = timers.last().map(|timer| timer.key);
            if timers.len() < limits::PAGE {
                return Ok(count);
            }
        }
    }

    fn add(&mut self, timer: &TimerRow) {
        // With more of them than are held at once, all are read again in parts.
        let is_full = self.part.1 == 1 && self.armory.0.len() > self.bounds.round;
        let by_subject = timer.members.is_empty() || timer.key.kind == TimerKind::Waitpoint;
        let (kind, due_at) = (timer.key.kind, timer.key.due_at);
        if by_subject && !is_full && self.is_of_part(timer.key.subject) {
            self.armory.add(kind, timer.key.subject, due_at, ANY_EPOCH);
        }
        for member in timer.members.iter().filter(|_| !by_subject && !is_full) {
            if self.is_of_part(member.execution.id) {
                self.armory.add(kind, member.execution.id, due_at, member.lease_epoch);
            }
        }
    }

    /// Notes something that waits, and whether it has a timer.
    fn note(&mut self, wait: Wait, armed: bool) {
        self.waits += 1;
        if !armed && self.missing.len() < self.bounds.found {
            let key = wait.timer.key;
            self.missing.insert((key.kind, key.subject), wait);
        }
    }

    async fn executions(&mut self) -> Result<(), EngineError> {
        let open = PublicState::ALL.into_iter().filter(|state| !state.is_finished());
        let mut list = ListQuery {
            states: open.collect(),
            order: ListOrder::OldestFirst,
            limit: limits::PAGE,
            ..ListQuery::default()
        };
        loop {
            let rows = self.engine.query(Query::Executions(list.clone())).await?;
            let (found, now) = (rows.executions, rows.now);
            for row in &found {
                if self.is_of_part(row.key.id) {
                    self.execution(row, now).await?;
                }
                self.waitpoints(row).await?;
            }
            list.after = found.last().map(|row| (row.created_at, row.key.id));
            if found.len() < limits::PAGE {
                return Ok(());
            }
        }
    }

    async fn execution(&mut self, row: &ExecutionRow, now: TimestampMs) -> Result<(), EngineError> {
        let parts = row.unread_policy();
        if !parts.is_empty() && self.policies.len() < POLICIES {
            self.policies.push(UnreadPolicy { execution_id: row.key.execution_id(), parts });
        }
        let id = row.key.id;
        for timer in expected::of_execution(row, now) {
            let (kind, due_at) = (timer.key.kind, timer.key.due_at);
            let armed = match kind {
                TimerKind::Lease => self.lease_is_watched(row, now).await?,
                TimerKind::Suspension => {
                    self.armory.has(kind, id) || !self.suspension_may_end(row).await?
                }
                _ => self.armory.has_by(kind, id, due_at),
            };
            self.note(Wait::of(row, timer), armed);
        }
        Ok(())
    }

    /// Whether the lease of an execution, and the time that its attempt has, are watched. A lease
    /// without an end has nothing to be watched for.
    async fn lease_is_watched(
        &mut self,
        row: &ExecutionRow,
        now: TimestampMs,
    ) -> Result<bool, EngineError> {
        let (id, epoch) = (row.key.id, row.lease_epoch);
        let timed = row.policy().timeout_policy.attempt_timeout_ms.is_some();
        let times_out = |look: &Self, epoch| {
            !timed || look.armory.watches(TimerKind::AttemptTimeout, id, epoch)
        };
        if self.armory.watches(TimerKind::Lease, id, epoch) && times_out(self, epoch) {
            return Ok(true);
        }
        let rows = self.engine.query(Query::Execution(row.key)).await?;
        let current = |attempt: &&AttemptRow| attempt.key.index == row.attempt_index;
        let Some(attempt) = rows.attempts.iter().find(current).filter(|it| it.is_leased()) else {
            return Ok(true);
        };
        let epoch = attempt.lease_epoch;
        if let Some(timer) = expected::of_attempt(row, attempt, now) {
            self.note(Wait::of(row, timer), times_out(self, epoch));
        }
        let ends = attempt.lease_expires_at.is_some();
        Ok(!ends || self.armory.watches(TimerKind::Lease, id, epoch))
    }

    async fn suspension_may_end(&self, row: &ExecutionRow) -> Result<bool, EngineError> {
        let key = SuspensionRow::erase_key(&SuspensionKey { execution: row.key });
        let found: Vec<SuspensionRow> = self.records_by(vec![key], Vec::new()).await?;
        Ok(found.first().is_some_and(|wait| wait.is_open() && wait.timeout_at.is_some()))
    }

    /// Open waitpoints that no suspension has come for.
    async fn waitpoints(&mut self, row: &ExecutionRow) -> Result<(), EngineError> {
        let marked = row.raw_fields.contains("\"waitpoints\"");
        if !marked && row.phase != LifecyclePhase::Suspended {
            return Ok(());
        }
        let scan = Scan::of::<WaitpointRow>(values![row.key, true]).by(&WaitpointRow::OPEN);
        let scan = scan.limit(limits::WAITPOINTS + 1);
        for waitpoint in self.records_by::<WaitpointRow>(Vec::new(), vec![scan]).await? {
            let id = waitpoint.key.waitpoint_id;
            if let Some(timer) = expected::of_waitpoint(&waitpoint).filter(|_| self.is_of_part(id))
            {
                let armed = self.armory.has_by(TimerKind::Waitpoint, id, timer.key.due_at);
                let subject = format!("waitpoint {id} of {}", row.key.execution_id());
                self.note(Wait::bare(timer, subject), armed);
            }
        }
        Ok(())
    }

    async fn records(&mut self) -> Result<(), EngineError> {
        let now = self.engine.store().now();
        for row in self.all::<ScheduleRow>(|row| values![row.key.id]).await? {
            let subject = format!("schedule {} in namespace {}", row.name, row.namespace);
            self.record(expected::of_schedule(&row, now), subject);
        }
        for row in self
            .all::<WorkerRow>(|row| values![row.key.namespace.clone(), row.key.instance.clone()])
            .await?
        {
            let subject = format!("worker {}", row.key.instance);
            self.record(Some(expected::of_worker(&row)), subject);
        }
        let place = |row: &CascadeRow| values![row.key.subject, row.key.version, row.key.kind];
        for row in self.all::<CascadeRow>(place).await? {
            let subject = format!("work on flow {}", row.flow.id);
            self.record(Some(expected::of_cascade(&row, now)), subject);
        }
        for row in self.all::<BulkRow>(|row| values![row.key.id]).await? {
            self.record(Some(expected::of_bulk(&row, now)), format!("bulk {}", row.key.id));
        }
        for state in self.all::<LimitStateRow>(|row| values![row.key.id]).await? {
            self.limit(&state, now).await?;
        }
        Ok(())
    }

    async fn limit(&mut self, state: &LimitStateRow, now: TimestampMs) -> Result<(), EngineError> {
        if !state.is_waiting || !self.is_of_part(state.key.id) {
            return Ok(());
        }
        let key = LimitRow::erase_key(&LimitKey { id: state.limit });
        let limits: Vec<LimitRow> = self.records_by(vec![key], Vec::new()).await?;
        // A look finds out by itself when the next one is needed.
        let timer = next_look(limits.first(), state, now)
            .map(|_| TimerRow::bare(TimerKind::Limit, now, state.key.id));
        let name = limits.first().map_or_else(|| state.limit.to_string(), |it| it.name.to_string());
        self.record(timer, format!("limit {name}"));
        Ok(())
    }

    fn record(&mut self, timer: Option<TimerRow>, subject: String) {
        let Some(timer) = timer.filter(|timer| self.is_of_part(timer.key.subject)) else { return };
        let armed = self.armory.has(timer.key.kind, timer.key.subject);
        self.note(Wait::bare(timer, subject), armed);
    }

    /// Every record of a table, page by page.
    async fn all<R: Record>(
        &self,
        place: impl Fn(&R) -> Vec<Value>,
    ) -> Result<Vec<R>, EngineError> {
        let (mut all, mut after) = (Vec::new(), Vec::new());
        loop {
            let scan = Scan::of::<R>(Vec::new()).limit(limits::PAGE).after(after);
            let found: Vec<R> = self.records_by(Vec::new(), vec![scan]).await?;
            let Some(last) = found.last() else { return Ok(all) };
            after = place(last);
            all.extend(found);
        }
    }

    async fn records_by<R: Record>(
        &self,
        keys: Vec<AnyKey>,
        scans: Vec<Scan>,
    ) -> Result<Vec<R>, EngineError> {
        let rows = self.engine.query(Query::Records { keys, scans }).await?;
        rows.records().map_err(|error| self.engine.store_error(error))
    }
}

impl Wait {
    fn of(row: &ExecutionRow, timer: TimerRow) -> Self {
        let subject = row.key.execution_id().to_string();
        Self { timer, execution: Some(row.key), version: row.version, subject }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::contracts::{ClaimArgs, Submission};
    use crate::engine::EngineConfig;
    use crate::engine::clock::ManualClock;
    use crate::store::memory::MemoryBackend;
    use crate::types::{LaneId, WorkerId, WorkerInstanceId};

    const LEASES: usize = 40;

    /// A store with leases of which several are watched by one timer.
    async fn leased() -> Arc<MemoryBackend> {
        let config = EngineConfig { manual_sweeps: true, ..EngineConfig::default() };
        let backend = MemoryBackend::new(Arc::new(ManualClock::new(1_000)), config);
        let items = (0..LEASES).map(|_| Submission::new("lane", "kind")).collect();
        backend.submit(items).await.expect("submitted");
        let args = ClaimArgs {
            lanes: vec![LaneId::new("lane")],
            capabilities: Default::default(),
            worker_id: WorkerId::new("w"),
            worker_instance_id: WorkerInstanceId::new("w-1"),
            lease_ttl_ms: 60_000,
            max: LEASES / 2,
            wait: Duration::ZERO,
        };
        for _ in 0..2 {
            let claimed = backend.claim_many(args.clone()).await.expect("claimed");
            assert_eq!(claimed.len(), LEASES / 2);
        }
        backend
    }

    #[tokio::test]
    async fn more_members_than_are_held_at_once_are_looked_at_in_rounds() {
        let backend = leased().await;
        let timers = backend.store().read(|tables| tables.timers.len());
        assert!(timers < LEASES, "a timer has several members");
        for round in [1, 3, LEASES - 1, LEASES, LEASES + 1] {
            let bounds = Bounds { round, found: FOUND };
            let check = check(backend.engine(), false, bounds).await.expect("checked");
            assert_eq!(check.missing, [], "in rounds of {round}");
            assert_eq!(check.waits, LEASES as u64);
        }
    }

    #[tokio::test]
    async fn more_missing_timers_than_are_found_at_once_are_armed() {
        let backend = leased().await;
        backend.store().edit(|tables| tables.timers.clear());
        let bounds = Bounds { round: 3, found: 7 };
        let mended = check(backend.engine(), true, bounds).await.expect("mended");
        assert_eq!(mended.missing.len(), LEASES);
        let after = check(backend.engine(), false, bounds).await.expect("checked");
        assert_eq!(after.missing, []);
    }
}
