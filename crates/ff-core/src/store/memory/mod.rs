//! The reference store: plain maps under a mutex. It promises nothing across a restart; it exists
//! to say what the other stores must do, and to run tests and simulations fast.

mod query;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use uuid::Uuid;

use super::LogSecret;
use super::{
    Batch, Bells, Change, ClaimScan, Claimable, Needs, Query, RetentionScan, Rows, Scan, Store,
    Walk, Walked, World, Write,
};
use crate::capability;
use crate::contracts::Durability;
use crate::engine::clock::Clock;
use crate::engine::{Engine, EngineConfig};
use crate::engine_backend::EngineBackend;
use crate::engine_error::StoreError;
use crate::rows::spelling::Spelling;
use crate::rows::{
    AnyKey, AnyRow, AttemptKey, AttemptRow, EventRow, ExecutionRow, FlowKey, FlowRow,
    IdempotencyKey, IdempotencyRow, LaneRow, Row, TimerKey, TimerRow, values,
};
use crate::types::{ExecutionKey, FlowId, LaneId, TimestampMs};

pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    bells: Arc<Bells>,
    tables: Mutex<Tables>,
}

/// An engine on a memory store.
pub struct MemoryBackend {
    engine: Arc<Engine>,
    store: Arc<MemoryStore>,
}

impl MemoryBackend {
    /// Must be called inside a tokio runtime.
    pub fn new(clock: Arc<dyn Clock>, config: EngineConfig) -> Arc<Self> {
        let store = Arc::new(MemoryStore::new(clock));
        let engine = Engine::start(store.clone(), config);
        Arc::new(Self { engine, store })
    }

    pub fn store(&self) -> &MemoryStore {
        &self.store
    }
}

impl EngineBackend for MemoryBackend {
    fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// Every row there is. `Clone` is a snapshot, which simulations use to model a crash.
#[derive(Clone, Debug)]
pub struct Tables {
    pub executions: BTreeMap<ExecutionKey, ExecutionRow>,
    pub attempts: BTreeMap<AttemptKey, AttemptRow>,
    pub flows: BTreeMap<FlowKey, FlowRow>,
    pub lanes: BTreeMap<Arc<str>, LaneRow>,
    pub timers: BTreeMap<TimerKey, TimerRow>,
    pub idempotency: BTreeMap<IdempotencyKey, IdempotencyRow>,
    pub records: BTreeMap<AnyKey, AnyRow>,
    pub events: BTreeMap<u64, EventRow>,
    pub history_id: Uuid,
    pub log_secret: LogSecret,
    pub log_floor: u64,
    pub log_floor_mark: u32,
    pub log_head: u64,
    /// The claim index: lane, order, identity.
    ready: BTreeSet<(Arc<str>, i64, Uuid, u16)>,
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let history_id = Uuid::new_v4();
        Self { clock, bells: Arc::default(), tables: Mutex::new(Tables::new(history_id)) }
    }

    /// A copy of every row.
    pub fn dump(&self) -> Tables {
        self.tables().clone()
    }

    /// Looks at the rows without copying them.
    pub fn read<T>(&self, read: impl FnOnce(&Tables) -> T) -> T {
        read(&self.tables())
    }

    /// Puts rows there by hand, as a user could with SQL.
    pub fn edit(&self, edit: impl FnOnce(&mut Tables)) {
        let mut tables = self.tables();
        edit(&mut tables);
        tables.rebuild_ready();
    }

    /// Loads, decides and, if `keep`, writes: all that `transact` does, without waiting.
    pub fn transact_now(&self, batch: &mut Batch, keep: bool) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let now = self.clock.now();
        let mut world = World::new(now, "memory");
        let mut asked = batch.needs();
        tables.load(&mut world, &asked);
        while let Some(more) = batch.more(&mut world, &mut asked) {
            tables.load(&mut world, &more);
        }
        let change = batch.decide(world, &self.bells);
        if keep {
            tables.write(&change)?;
            drop(tables);
            self.bells.ring(&change);
        }
        Ok(())
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn durability(&self) -> Durability {
        Durability::BestEffort
    }

    fn now(&self) -> TimestampMs {
        self.clock.now()
    }

    async fn sleep_until(&self, at: TimestampMs) {
        self.clock.sleep_until(at).await;
    }

    fn flow_partition(&self, _: &FlowId) -> u16 {
        0
    }

    fn solo_partition(&self, _: &LaneId) -> u16 {
        0
    }

    async fn transact(&self, batch: &mut Batch) -> Result<(), StoreError> {
        self.transact_now(batch, true)
    }

    async fn query(&self, query: Query) -> Result<Rows, StoreError> {
        let mut rows = self.tables().query(query, self.clock.now());
        rows.now = self.clock.now();
        Ok(rows)
    }

    fn listen(&self) -> &Arc<Bells> {
        &self.bells
    }
}

fn random_secret() -> LogSecret {
    let halves = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes);
    let mut secret = [0; 32];
    secret.iter_mut().zip(halves.as_flattened()).for_each(|(byte, random)| *byte = *random);
    LogSecret(secret)
}

impl Tables {
    fn new(history_id: Uuid) -> Self {
        Self {
            executions: BTreeMap::new(),
            attempts: BTreeMap::new(),
            flows: BTreeMap::new(),
            lanes: [LaneRow::every()].map(|lane| (lane.clone(), LaneRow::active(lane))).into(),
            timers: BTreeMap::new(),
            idempotency: BTreeMap::new(),
            records: BTreeMap::new(),
            events: BTreeMap::new(),
            history_id,
            log_secret: random_secret(),
            log_floor: 1,
            log_floor_mark: 0,
            log_head: 0,
            ready: BTreeSet::new(),
        }
    }

    fn rebuild_ready(&mut self) {
        let ready = self.executions.values().filter(|row| row.is_claimable()).map(ready_key);
        self.ready = ready.collect();
    }

    fn load(&self, world: &mut World, needs: &Needs) {
        for key in &needs.executions {
            self.load_execution(world, key);
        }
        for scan in &needs.members {
            let after = |row: &&ExecutionRow| scan.after.is_none_or(|after| row.key.id > after);
            let mut found = self.members(scan.flow).filter(after);
            let mut last = None;
            for row in found.by_ref().take(scan.limit) {
                self.load_execution(world, &row.key);
                last = Some(row.key.id);
            }
            world.members.insert(*scan, last.filter(|_| found.next().is_some()));
        }
        for flow in &needs.open_members {
            let open = self.members(*flow).filter(|row| !row.is_finished()).count();
            world.open_members.insert(*flow, open as u64);
        }
        for key in &needs.attempts {
            load(&mut world.attempts, &self.attempts, key);
        }
        for key in &needs.flows {
            load(&mut world.flows, &self.flows, key);
        }
        for lane in &needs.lanes {
            load(&mut world.lanes, &self.lanes, lane);
        }
        for key in &needs.idempotency {
            load(&mut world.idempotency, &self.idempotency, key);
        }
        for key in &needs.records {
            load(&mut world.records, &self.records, key);
        }
        for scan in &needs.scans {
            let rows = self.scan(scan);
            world.scans.insert(scan.clone(), scan.found(rows.iter().copied()));
            for row in rows {
                world.records.load(row.clone());
            }
        }
        for (walker, walk) in &needs.walks {
            self.load_walk(world, *walker, walk);
        }
        for (scan, limit) in &needs.claimable {
            self.load_claimable(world, scan, *limit);
        }
        if needs.due_timers > 0 {
            self.load_due(world, needs.due_timers);
        }
        for row in self.unannounced().take(needs.unannounced) {
            self.load_execution(world, &row.key);
            load(&mut world.lanes, &self.lanes, &row.lane);
            world.unannounced.push(row.key);
        }
        if let Some(scan) = needs.retention {
            self.load_retired(world, scan);
        }
    }

    fn load_execution(&self, world: &mut World, key: &ExecutionKey) {
        let Some(row) = self.executions.get(key) else {
            return;
        };
        let current = AttemptKey { execution: *key, index: row.attempt_index };
        load(&mut world.attempts, &self.attempts, &current);
        world.executions.load(row.clone());
    }

    fn load_walk(&self, world: &mut World, walker: Uuid, walk: &Walk) {
        let filter = &walk.filter;
        let ahead = |row: &&ExecutionRow| filter.in_window(row) && filter.is_after(row);
        let mut rows: Vec<_> = self.executions.values().filter(ahead).collect();
        rows.sort_by_key(|row| (row.created_at, row.key.id));
        let steps = rows.iter().take(walk.steps);
        let found = steps.map(|row| (row.created_at, row.key, filter.matches(row)));
        let walked = Walked::from_steps(found, walk);
        for (_, key) in &walked.keys {
            self.load_execution(world, key);
        }
        world.walks.insert(walker, walked);
    }

    fn load_claimable(&self, world: &mut World, scan: &ClaimScan, limit: usize) {
        let from = (scan.lane.clone(), i64::MIN, Uuid::nil(), 0);
        let in_lane = self.ready.range(from..).take_while(|(lane, ..)| *lane == scan.lane);
        let suits = |row: &&ExecutionRow| {
            scan.namespace.as_ref().is_none_or(|wanted| *wanted == row.namespace)
                && capability::satisfied(&row.capability_class, &scan.offered)
        };
        let rows = in_lane
            .filter_map(|(_, _, id, partition)| {
                self.executions.get(&ExecutionKey { partition: *partition, id: *id })
            })
            .filter(suits);
        let keys: Vec<_> = rows.take(limit).map(|row| row.key).collect();
        for key in &keys {
            self.load_execution(world, key);
            if let Some(id) = self.executions[key].flow_id {
                load(&mut world.flows, &self.flows, &FlowKey { partition: key.partition, id });
            }
        }
        let more = keys.len() == limit;
        world.claimable.insert(scan.clone(), Claimable { keys, more });
    }

    fn load_due(&self, world: &mut World, limit: usize) {
        let now = world.now;
        let due = self.timers.values().take_while(|row| row.key.due_at <= now);
        let mut due: Vec<&TimerRow> = due.collect();
        // Of those that are due at the same moment, other stores take the first by their words.
        due.sort_by_key(|row| (row.key.due_at, row.key.kind.word(), row.key.subject));
        due.truncate(limit);
        due.sort_by_key(|row| row.key);
        for timer in due {
            for member in &timer.members {
                self.load_execution(world, &member.execution);
                self.load_own_key(world, &member.execution);
            }
            world.timers.load(timer.clone());
            world.due_timers.push(timer.clone());
        }
    }

    fn load_retired(&self, world: &mut World, scan: RetentionScan) {
        let now = world.now;
        let cutoff = scan.max_age_ms.map(|age| TimestampMs(now.0.saturating_sub_unsigned(age)));
        let horizon = scan.max_finished.and_then(|keep| self.finish_horizon(keep));
        let retired = |row: &&EventRow| {
            cutoff.is_some_and(|cutoff| row.at <= cutoff)
                || horizon.is_some_and(|horizon| row.seq <= horizon)
        };
        let old = self.events.range(self.log_floor..).map(|(_, row)| row);
        for event in old.take_while(retired).take(scan.limit) {
            if let Some(key) = &event.execution {
                self.load_execution(world, key);
                self.load_own_key(world, key);
            }
            world.retired_events.push(event.clone());
        }
    }

    /// The last place in the log before the newest `keep` endings.
    fn finish_horizon(&self, keep: u64) -> Option<u64> {
        let endings = self.events.values().rev().filter(|row| row.event_type.is_finish());
        endings.map(|row| row.seq).nth(usize::try_from(keep).unwrap_or(usize::MAX))
    }

    fn scan(&self, scan: &Scan) -> Vec<&AnyRow> {
        // Rows that begin alike stand together only in the order of their keys.
        let from = match scan.order {
            Some(_) => AnyKey { spec: scan.spec, values: Vec::new() },
            None => AnyKey { spec: scan.spec, values: scan.prefix.clone() },
        };
        let of_table = self.records.range(from..).take_while(|(key, _)| key.spec == scan.spec);
        let covered = of_table.map(|(_, row)| row).filter(|row| scan.covers(row));
        let mut rows: Vec<_> = covered.collect();
        rows.sort_by_cached_key(|row| scan.values_of(row));
        rows.truncate(scan.limit);
        rows
    }

    /// Executions that were put here by hand.
    fn unannounced(&self) -> impl Iterator<Item = &ExecutionRow> {
        self.executions.values().filter(|row| row.version == 0)
    }

    fn load_own_key(&self, world: &mut World, key: &ExecutionKey) {
        if let Some(row) = self.executions.get(key)
            && let Some(own) = &row.idempotency_key
        {
            let key = IdempotencyKey { namespace: row.namespace.clone(), key: own.clone() };
            load(&mut world.idempotency, &self.idempotency, &key);
        }
    }

    fn members(&self, flow: FlowKey) -> impl Iterator<Item = &ExecutionRow> {
        let of_flow = move |row: &&ExecutionRow| {
            row.flow_id == Some(flow.id) && row.key.partition == flow.partition
        };
        self.executions.values().filter(of_flow)
    }

    fn write(&mut self, change: &Change) -> Result<(), StoreError> {
        for write in &change.executions {
            let key = match write {
                Write::Insert(row) | Write::Update(row) => row.key,
                Write::Delete(key) => *key,
            };
            if let Some(old) = self.executions.get(&key) {
                self.ready.remove(&ready_key(old));
            }
            if let Write::Insert(row) | Write::Update(row) = write
                && row.is_claimable()
            {
                self.ready.insert(ready_key(row));
            }
        }
        for write in &change.executions {
            if let Write::Delete(key) = write {
                self.purge(key);
            }
        }
        write(&mut self.executions, &change.executions)?;
        write(&mut self.attempts, &change.attempts)?;
        write(&mut self.flows, &change.flows)?;
        write(&mut self.lanes, &change.lanes)?;
        for timer in &change.timers {
            match timer {
                Write::Insert(row) | Write::Update(row) => {
                    self.timers.insert(row.key, row.clone());
                }
                Write::Delete(key) => {
                    self.timers.remove(key);
                }
            }
        }
        write(&mut self.idempotency, &change.idempotency)?;
        write(&mut self.records, &change.records)?;
        for event in &change.events {
            self.log_head += 1;
            let seq = self.log_head;
            self.events.insert(seq, EventRow { seq, ..event.clone() });
        }
        if let Some(raised) = change.log_floor.filter(|raised| raised.floor > self.log_floor) {
            (self.log_floor, self.log_floor_mark) = (raised.floor, raised.mark);
            let floor = self.log_floor;
            self.events.retain(|seq, row| *seq >= floor || row.execution.is_some());
        }
        Ok(())
    }

    fn purge(&mut self, key: &ExecutionKey) {
        if let Some(row) = self.executions.remove(key) {
            self.ready.remove(&ready_key(&row));
        }
        self.attempts.retain(|attempt, _| attempt.execution != *key);
        let owner = values![*key];
        self.records.retain(|record, _| !(record.spec.owned && record.values.starts_with(&owner)));
        self.events.retain(|_, event| event.execution.as_ref() != Some(key));
    }
}

fn ready_key(row: &ExecutionRow) -> (Arc<str>, i64, Uuid, u16) {
    (row.lane.clone(), row.rank(), row.key.id, row.key.partition)
}

fn load<R: Row>(table: &mut super::Table<R>, stored: &BTreeMap<R::Key, R>, key: &R::Key) {
    if let Some(row) = stored.get(key) {
        table.load(row.clone());
    }
}

fn write<R: Row>(stored: &mut BTreeMap<R::Key, R>, writes: &[Write<R>]) -> Result<(), StoreError> {
    for write in writes {
        match write {
            Write::Insert(row) => {
                if stored.insert(row.key(), row.clone()).is_some() {
                    return Err(StoreError::Conflict("a row with this key exists".into()));
                }
            }
            Write::Update(row) => {
                stored.insert(row.key(), row.clone());
            }
            Write::Delete(key) => {
                stored.remove(key);
            }
        }
    }
    Ok(())
}
