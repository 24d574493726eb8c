//! Reads what a batch needs, inside its transaction and under row locks.
//!
//! Locks are taken in one order everywhere: the sweeper's, lanes that are written, those that keep
//! claims away from flows that are cancelled, flows, executions by key, then the rows that hang on
//! them. Claims that lock skip what is locked. Attempts are read in a statement of their own once
//! their executions are locked: nobody else can move them then.
//!
//! The transaction begins with the first thing that must be locked. What is read before, without a
//! lock, is compared by the statement that writes it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use ff_core::engine_error::StoreError;
use ff_core::rows::{
    AttemptKey, EventRow, ExecutionRow, FlowKey, IdempotencyKey, IdempotencyRow, Spec, Value,
};
use ff_core::state::EligibilityState;
use ff_core::store::cells::{Cells, Reader, Words, readable};
use ff_core::store::{Batch, Lock, Needs, RetentionScan, Scan, Walk, Walked, World, damage};
use ff_core::types::{ExecutionKey, TimestampMs};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Executor, PgConnection, Postgres, Row};
use uuid::Uuid;

use crate::cache::Cache;
use crate::columns::{Column, EVENT, LANE, narrow};
use crate::config::BEGIN_LATE;
use crate::error::store_error;
use crate::graphs::Writers;
use crate::held::Unlocked;
use crate::query::DIALECT;
use crate::statements::Statements;
use crate::values::bind;

pub(crate) struct Loader<'c> {
    pub connection: &'c mut PgConnection,
    pub words: &'c mut Words,
    pub statements: &'c Statements,
    pub cache: &'c Cache,
    pub unlocked: Unlocked,
    /// The flows that this transaction has locked.
    pub locked_flows: HashSet<FlowKey>,
    /// Who left them as they were found.
    pub flow_writers: Writers,
    /// The number that sweepers of this database agree on.
    pub sweep_lock: i64,
    /// The last try met rows that should not be there.
    pub careful: bool,
    /// Whether the connection may keep prepared statements.
    pub keeps: bool,
    /// Whether rows are locked; not in a transaction that may stay open.
    pub locking: bool,
    /// Whether there is a transaction yet.
    pub begun: &'c mut bool,
}

pub(crate) type Prepared<'q> = Query<'q, Postgres, PgArguments>;

impl Loader<'_> {
    /// Everything that a batch needs, in as many rounds as it takes.
    pub async fn load(
        &mut self,
        batch: &mut Batch,
        mut asked: Needs,
        now: TimestampMs,
    ) -> Result<(World, Needs), StoreError> {
        let mut world = World::new(now, "postgres");
        // The contract's lease ids begin so.
        world.lease_prefix = "pg";
        self.round(&mut world, &asked).await?;
        self.load_more(batch, &mut world, &mut asked).await?;
        Ok((world, asked))
    }

    /// What the batch needs beyond what was asked for, seeing what that has brought.
    pub async fn load_more(
        &mut self,
        batch: &mut Batch,
        world: &mut World,
        asked: &mut Needs,
    ) -> Result<(), StoreError> {
        while let Some(more) = batch.more(world, asked) {
            self.begin().await?;
            self.round(world, &more).await?;
        }
        Ok(())
    }

    /// Begins the transaction, if it has not begun.
    pub async fn begin(&mut self) -> Result<(), StoreError> {
        if !*self.begun {
            let begun = self.connection.fetch_one(BEGIN_LATE).await;
            let begun = begun.map_err(|error| store_error(&error))?;
            (*self.begun, self.locking) = (true, true);
            self.cache.check(begun.try_get(0).map_err(|error| store_error(&error))?)?;
        }
        Ok(())
    }

    async fn round(&mut self, world: &mut World, needs: &Needs) -> Result<(), StoreError> {
        let (mut executions, mut ending) = (needs.executions.clone(), needs.ending.clone());
        if !needs_no_locks(needs) {
            self.begin().await?;
        }
        if needs.due_timers > 0 || needs.unannounced > 0 || needs.retention.is_some() {
            // Sweepers of other engines wait for each other, so that nothing is done twice.
            let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(self.sweep_lock);
            self.fetch(lock).await?;
        }
        if needs.due_timers > 0 {
            self.due_timers(world, needs.due_timers, &mut executions).await?;
            ending.clone_from(&executions);
        }
        if let Some(scan) = needs.retention {
            self.retired(world, scan, &mut executions).await?;
        }
        for (walker, walk) in &needs.walks {
            self.walk(world, *walker, walk, &mut executions).await?;
        }
        self.lock_lanes(&needs.written_lanes).await?;
        self.lock_flows(world, needs, &ending).await?;
        self.members(world, &needs.members, &mut executions).await?;
        self.open_members(world, &needs.open_members).await?;
        self.executions(world, &executions, &needs.unwritten).await?;
        self.behind(world, needs).await?;
        self.payloads(world, &needs.payloads).await?;
        if needs.unannounced > 0 {
            self.unannounced(world, needs.unannounced).await?;
        }
        if !needs.claimable.is_empty() {
            self.claimable(world, needs).await?;
        }
        self.attempts(world, &needs.attempts).await?;
        if !needs.claimable.is_empty() {
            self.flows_of_claimable(world).await?;
        }
        self.records(world, needs).await?;
        self.lanes(world, needs).await?;
        self.idempotency(world, needs).await
    }

    /// Locks executions in the order of their keys.
    async fn executions(
        &mut self,
        world: &mut World,
        keys: &BTreeSet<ExecutionKey>,
        unwritten: &BTreeSet<ExecutionKey>,
    ) -> Result<(), StoreError> {
        let unread = |key: &&ExecutionKey| {
            let stored = self.careful || unwritten.contains(*key);
            !world.executions.is_loaded(key)
                && (stored || !self.cache.held.take(**key, world, &mut self.unlocked))
        };
        let keys: Vec<&ExecutionKey> = keys.iter().filter(unread).collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.begin().await?;
        let partitions: Vec<_> = keys.iter().map(|key| narrow(key.partition)).collect();
        let ids: Vec<Uuid> = keys.iter().map(|key| key.id).collect();
        let sql = &self.statements.executions;
        let sql = if self.locking { sql } else { &sql.replace(" FOR UPDATE OF e", "") };
        let query = sqlx::query(sql);
        for cells in self.fetch(query.bind(partitions).bind(ids)).await? {
            let read = Reader::new(&Column(&cells), self.words).execution();
            if let Some(row) = readable(read)? {
                world.executions.load(row);
            }
        }
        Ok(())
    }

    /// The current attempt of each loaded execution, and those that were asked for.
    async fn attempts(
        &mut self,
        world: &mut World,
        asked: &BTreeSet<AttemptKey>,
    ) -> Result<(), StoreError> {
        let claimable = world.claimable.values().flat_map(|scanned| &scanned.keys);
        let claimable: HashSet<&ExecutionKey> = claimable.collect();
        // What was never leased has no attempt, unless one was put there by hand: then the insert
        // of another fails, and the next try looks carefully.
        let may_have = |row: &&ExecutionRow| {
            let blocked = row.eligibility == EligibilityState::BlockedByDependencies;
            let found = claimable.contains(&row.key) || self.unlocked.writer_of(&row.key).is_some();
            self.careful || !was_never_leased(row) || !(blocked || found)
        };
        let current = world.executions.rows().filter(may_have);
        let current =
            current.map(|row| AttemptKey { execution: row.key, index: row.attempt_index });
        let keys: BTreeSet<AttemptKey> = current.chain(asked.iter().copied()).collect();
        let missing = keys.iter().filter(|key| !world.attempts.is_loaded(key));
        let keys: Vec<&AttemptKey> = missing.collect();
        if keys.is_empty() {
            return Ok(());
        }
        let partitions: Vec<_> = keys.iter().map(|key| narrow(key.execution.partition)).collect();
        let ids: Vec<Uuid> = keys.iter().map(|key| key.execution.id).collect();
        let indexes: Vec<_> = keys.iter().map(|key| key.index as i32).collect();
        let query = sqlx::query(&self.statements.attempts);
        for cells in self.fetch(query.bind(partitions).bind(ids).bind(indexes)).await? {
            let column = Column(&cells);
            let mut reader = Reader::new(&column, self.words);
            let partition = reader.number()?;
            let execution = ExecutionKey { partition, id: reader.uuid()? };
            match reader.attempt(execution) {
                Ok(attempt) => world.attempts.load(attempt),
                Err(StoreError::Corrupt(why)) => {
                    tracing::error!(why, "an attempt's row cannot be read; it is passed over");
                    for claimable in world.claimable.values_mut() {
                        claimable.keys.retain(|key| *key != execution);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Names executions for whoever walks over them; they are locked with all others.
    async fn walk(
        &mut self,
        world: &mut World,
        walker: Uuid,
        walk: &Walk,
        executions: &mut BTreeSet<ExecutionKey>,
    ) -> Result<(), StoreError> {
        let sql = walk.filter.walk(DIALECT, "partition_key", walk.steps);
        let mut found = Vec::new();
        for cells in self.fetch(bind(sqlx::query(&sql.text), &sql.values)).await? {
            let column = Column(&cells);
            let mut reader = Reader::new(&column, self.words);
            let partition = reader.number()?;
            let at = TimestampMs(reader.number()?);
            let key = ExecutionKey { partition, id: reader.uuid()? };
            found.push((at, key, column.int(3)? == Some(1)));
        }
        let walked = Walked::from_steps(found, walk);
        executions.extend(walked.keys.iter().map(|(_, key)| *key));
        world.walks.insert(walker, walked);
        Ok(())
    }

    async fn unannounced(&mut self, world: &mut World, limit: usize) -> Result<(), StoreError> {
        let query = sqlx::query(&self.statements.unannounced).bind(whole(limit));
        for cells in self.fetch(query).await? {
            let read = Reader::new(&Column(&cells), self.words).execution();
            if let Some(row) = readable(read)? {
                world.unannounced.push(row.key);
                world.executions.load(row);
            }
        }
        Ok(())
    }

    /// Before anything reads them: what is written of a lane rests on all of its row.
    async fn lock_lanes(&mut self, lanes: &BTreeSet<Arc<str>>) -> Result<(), StoreError> {
        if lanes.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = lanes.iter().map(|lane| &**lane).collect();
        let sql = "SELECT FROM ff_lane WHERE lane_id = ANY($1) ORDER BY lane_id FOR UPDATE";
        self.fetch(sqlx::query(sql).bind(names)).await.map(drop)
    }

    async fn lanes(&mut self, world: &mut World, needs: &Needs) -> Result<(), StoreError> {
        let announced = if needs.unannounced > 0 { &world.unannounced[..] } else { &[] };
        let announced = announced.iter().filter_map(|key| world.executions.get(key));
        let announced = announced.map(|row| row.lane.clone());
        // A claim has brought its lanes already.
        let asked = needs.lanes.iter().filter(|_| needs.claimable.is_empty());
        let lanes: BTreeSet<Arc<str>> = announced.chain(asked.cloned()).collect();
        if lanes.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = lanes.iter().map(|lane| &**lane).collect();
        let sql = format!("SELECT {LANE} FROM ff_lane WHERE lane_id = ANY($1)");
        for cells in self.fetch(sqlx::query(&sql).bind(names)).await? {
            world.lanes.load(Reader::new(&Column(&cells), self.words).lane()?);
        }
        Ok(())
    }

    /// The keys that were asked for, and those of executions that a timer or retention brought.
    async fn idempotency(&mut self, world: &mut World, needs: &Needs) -> Result<(), StoreError> {
        let first = needs.due_timers > 0 || needs.retention.is_some();
        let timers = world.due_timers.iter().filter(|_| first).flat_map(|timer| &timer.members);
        let timers = timers.map(|member| member.execution);
        let retired = world.retired_events.iter().filter(|_| first);
        let retired = retired.filter_map(|event| event.execution);
        let own = timers.chain(retired).filter_map(|key| {
            let row = world.executions.get(&key)?;
            let key = row.idempotency_key.clone()?;
            Some(IdempotencyKey { namespace: row.namespace.clone(), key })
        });
        let keys: BTreeSet<IdempotencyKey> = own.chain(needs.idempotency.iter().cloned()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let namespaces: Vec<&str> = keys.iter().map(|key| &*key.namespace).collect();
        let words: Vec<&str> = keys.iter().map(|key| &*key.key).collect();
        let sql = "SELECT i.namespace, i.idempotency_key, i.partition_key, i.execution_id, \
                   i.fingerprint, i.expires_at_ms \
                   FROM unnest($1::text[], $2::text[]) AS k(namespace, word) \
                   JOIN ff_idempotency AS i ON i.namespace = k.namespace \
                   AND i.idempotency_key = k.word \
                   ORDER BY i.namespace, i.idempotency_key FOR UPDATE OF i";
        let sql = if self.locking { sql } else { &sql.replace(" FOR UPDATE OF i", "") };
        for cells in self.fetch(sqlx::query(sql).bind(namespaces).bind(words)).await? {
            world.idempotency.load(idempotency(&Column(&cells), self.words)?);
        }
        Ok(())
    }

    async fn due_timers(
        &mut self,
        world: &mut World,
        limit: usize,
        executions: &mut BTreeSet<ExecutionKey>,
    ) -> Result<(), StoreError> {
        let sql = "SELECT due_at_ms, kind, subject, members FROM ff_timer WHERE due_at_ms <= $1 \
                   ORDER BY due_at_ms, kind, subject LIMIT $2";
        let query = sqlx::query(sql).bind(world.now.0).bind(whole(limit));
        for cells in self.fetch(query).await? {
            let timer = Reader::new(&Column(&cells), self.words).timer()?;
            executions.extend(timer.members.iter().map(|member| member.execution));
            world.timers.load(timer.clone());
            world.due_timers.push(timer);
        }
        world.due_timers.sort_unstable_by_key(|timer| timer.key);
        Ok(())
    }

    /// The old end of the shard that is oldest.
    async fn retired(
        &mut self,
        world: &mut World,
        scan: RetentionScan,
        executions: &mut BTreeSet<ExecutionKey>,
    ) -> Result<(), StoreError> {
        let cutoff =
            scan.max_age_ms.map_or(i64::MIN, |age| world.now.0.saturating_sub_unsigned(age));
        let horizon = match scan.max_finished {
            Some(keep) => finish_horizon(self.connection, keep).await?,
            None => None,
        };
        let Some((shard, floor)) = oldest_shard(self.connection).await? else { return Ok(()) };
        let query = sqlx::query(&self.statements.retired);
        let query = query.bind(shard).bind(floor).bind(whole(scan.limit));
        let mut events = Vec::new();
        for cells in self.fetch(query).await? {
            events.push(damage::event(&Column(&cells), self.words, EVENT)?);
        }
        let retired = |event: &EventRow| {
            let place = (event.at.0, narrow(event.shard), event.seq as i64);
            event.at.0 <= cutoff || horizon.is_some_and(|horizon| place <= horizon)
        };
        let count = events.iter().take_while(|event| retired(event)).count();
        events.truncate(count);
        executions.extend(events.iter().filter_map(|event| event.execution));
        world.retired_events = events;
        Ok(())
    }

    pub(crate) async fn fetch(&mut self, query: Prepared<'_>) -> Result<Vec<PgRow>, StoreError> {
        let query = query.persistent(self.keeps);
        query.fetch_all(&mut *self.connection).await.map_err(|error| store_error(&error))
    }
}

/// Whether no rows are needed but those that claims and the ends of leases read, and what these
/// stand for.
pub(crate) fn needs_no_locks(needs: &Needs) -> bool {
    let rows = needs.flows.len() + needs.members.len() + needs.idempotency.len();
    let walked = needs.written_lanes.len() + needs.walks.len();
    let swept = needs.due_timers + needs.unannounced;
    let guarded = |spec: &Spec, values: &[Value]| {
        let owner = spec.owner(values).filter(|_| spec.guarded);
        owner.is_some_and(|owner| needs.executions.contains(&owner))
    };
    let looked_at = |scan: &Scan| scan.lock == Lock::None && !scan.spec.owned;
    rows + walked + swept == 0
        && needs.retention.is_none()
        && needs.records.iter().all(|key| guarded(key.spec, &key.values))
        && needs.scans.iter().all(|scan| looked_at(scan) || guarded(scan.spec, &scan.prefix))
}

pub(crate) fn was_never_leased(row: &ExecutionRow) -> bool {
    row.lease_epoch == 0 && row.version > 0
}

fn idempotency(cells: &Column<'_>, words: &mut Words) -> Result<IdempotencyRow, StoreError> {
    let mut reader = Reader::new(cells, words);
    let namespace = reader.shared_text()?.unwrap_or_default();
    let key = IdempotencyKey { namespace, key: reader.own_text()?.unwrap_or_default() };
    let partition = reader.number()?;
    let execution = ExecutionKey { partition, id: reader.uuid()? };
    let fingerprint = reader.bytes()?.unwrap_or_default();
    let fingerprint = <[u8; 32]>::try_from(&*fingerprint)
        .map_err(|_| StoreError::Corrupt("a fingerprint is not 32 bytes long".to_owned()))?;
    Ok(IdempotencyRow { key, execution, fingerprint, expires_at: reader.time()? })
}

/// Where the log is oldest: the shard and its floor.
pub(crate) async fn oldest_shard(
    connection: &mut PgConnection,
) -> Result<Option<(i16, i64)>, StoreError> {
    let sql = "SELECT s.shard, e.seq FROM ff_event_shard AS s, LATERAL ( \
                 SELECT e.seq, e.at_ms FROM ff_event AS e \
                 WHERE e.shard = s.shard AND e.seq >= s.floor ORDER BY e.seq LIMIT 1) AS e \
               ORDER BY e.at_ms, s.shard LIMIT 1";
    let query = sqlx::query_as(sql).persistent(false);
    query.fetch_optional(connection).await.map_err(|error| store_error(&error))
}

/// The last place before the newest `keep` endings of all shards: time, shard and number.
pub(crate) async fn finish_horizon(
    connection: &mut PgConnection,
    keep: u64,
) -> Result<Option<(i64, i16, i64)>, StoreError> {
    let sql = "SELECT e.at_ms, s.shard, e.seq FROM ff_event_shard AS s, LATERAL ( \
                 SELECT e.at_ms, e.seq FROM ff_event AS e WHERE e.shard = s.shard \
                 AND e.event_type IN ('completed', 'failed', 'cancelled', 'expired', 'skipped') \
                 ORDER BY e.seq DESC LIMIT $1 + 1) AS e \
               ORDER BY e.at_ms DESC, s.shard DESC, e.seq DESC OFFSET $1 LIMIT 1";
    let keep = i64::try_from(keep).unwrap_or(i64::MAX - 1);
    let query = sqlx::query_as(sql).persistent(false).bind(keep);
    query.fetch_optional(connection).await.map_err(|error| store_error(&error))
}

pub(crate) fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
