//! Reads what a batch needs, inside its transaction.

use std::sync::Arc;

use ff_core::capability;
use ff_core::engine_error::StoreError;
use ff_core::rows::{
    AttemptKey, AttemptRow, Blob, ExecutionRow, FlowKey, IdempotencyKey, IdempotencyRow,
};
use ff_core::store::cells::{Reader, Words, readable};
use ff_core::store::{ClaimScan, Claimable, MemberScan, Needs, World, behind};
use ff_core::types::{ExecutionKey, TimestampMs};
use foldhash::HashMap;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use crate::columns::Written;
use crate::error::store_error;
use crate::held::Held;
use crate::statements::{CHUNK, Statements};

/// How many rows that cannot be read a claim passes over.
const UNREADABLE: usize = 100;

/// Where an execution is stored.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    /// The number that SQLite finds its row by; 0 while that is not known.
    pub rowid: i64,
    /// Its last event, which the next one is chained to.
    pub last_event: i64,
}

/// The places of the executions that a transaction deals with.
pub(crate) type Places = HashMap<Uuid, Place>;

pub(crate) struct Loader<'c> {
    pub connection: &'c Connection,
    pub words: &'c mut Words,
    pub places: &'c mut Places,
    pub statements: &'c Statements,
    pub held: &'c mut Held,
    pub log_floor: i64,
    /// The last try met rows that should not be there.
    pub careful: bool,
}

impl Loader<'_> {
    pub fn load(&mut self, world: &mut World, needs: &Needs) -> Result<(), StoreError> {
        let keys: Vec<ExecutionKey> = needs.executions.iter().copied().collect();
        let rows = keys.len() + needs.claimable.values().sum::<usize>();
        world.executions.reserve(rows);
        world.attempts.reserve(rows);
        self.executions(world, &keys)?;
        for key in &needs.payloads {
            self.payload(world, key)?;
        }
        for scan in &needs.members {
            self.members(world, *scan)?;
        }
        for flow in &needs.open_members {
            self.open_members(world, *flow)?;
        }
        for key in &needs.attempts {
            self.attempt(world, key.execution, key.index)?;
        }
        for flow in &needs.flows {
            self.flow(world, *flow)?;
        }
        self.behind(world, needs)?;
        for lane in &needs.lanes {
            self.lane(world, lane)?;
        }
        for key in &needs.idempotency {
            self.idempotency(world, key)?;
        }
        self.records(world, needs)?;
        for (walker, walk) in &needs.walks {
            self.walk(world, *walker, walk)?;
        }
        for (scan, limit) in &needs.claimable {
            self.claimable(world, scan, *limit)?;
        }
        if needs.due_timers > 0 {
            self.due_timers(world, needs.due_timers)?;
        }
        if needs.unannounced > 0 {
            self.unannounced(world, needs.unannounced)?;
        }
        if let Some(scan) = needs.retention {
            self.retired(world, scan)?;
        }
        Ok(())
    }

    /// Executions with their current attempts.
    pub(crate) fn executions(
        &mut self,
        world: &mut World,
        keys: &[ExecutionKey],
    ) -> Result<(), StoreError> {
        let sql = [&self.statements.one, &self.statements.chunk];
        // The same UUID under another partition is another identity: it does not exist.
        self.in_chunks(world, keys, sql, |loader, world, cells, keys| {
            loader.joined(world, cells, |key| keys.contains(&key))
        })
    }

    /// What stands behind executions that are about to end.
    fn behind(&mut self, world: &mut World, needs: &Needs) -> Result<(), StoreError> {
        let flows: Vec<FlowKey> =
            needs.behind.iter().filter_map(|key| behind::flow(world, key)).collect();
        for flow in flows {
            self.flow(world, flow)?;
        }
        let (mut groups, mut members) = (Vec::new(), Vec::new());
        let mut scans = behind::edges(world, needs);
        let (graphs, places) = (&self.held.graphs, &mut self.places);
        scans.retain(|scan| {
            let found = |key: ExecutionKey, place: &Place| {
                places.insert(key.id, *place);
            };
            !graphs.bring(world, scan, found, &mut members)
        });
        self.scans(world, &scans, |edge| groups.extend(behind::group(edge)))?;
        self.by_keys(world, &groups, |group| members.extend(behind::member(group)))?;
        let sql = [&self.statements.next, &self.statements.next_chunk];
        self.in_chunks(world, &members, sql, |loader, world, cells, keys| {
            loader.with_payload(world, cells, |key| keys.contains(&key)).map(drop)
        })
    }

    /// Reads executions that are not held by their ids, many at a time.
    fn in_chunks(
        &mut self,
        world: &mut World,
        keys: &[ExecutionKey],
        [one, chunk]: [&String; 2],
        read: fn(&mut Self, &mut World, &Row<'_>, &[ExecutionKey]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut missing = Vec::new();
        for key in keys {
            let known = world.executions.is_loaded(key);
            if !known && !self.held.load(*key, world, self.places) {
                missing.push(*key);
            }
        }
        for keys in missing.chunks(CHUNK) {
            let (sql, places) = if keys.len() == 1 { (one, 1) } else { (chunk, CHUNK) };
            let mut statement = self.prepare(sql)?;
            // A short chunk names its last execution again, which changes nothing.
            let ids = (0..places).map(|at| keys[at.min(keys.len() - 1)].id.into_bytes());
            let mut rows =
                statement.query(rusqlite::params_from_iter(ids)).map_err(|e| store_error(&e))?;
            while let Some(cells) = rows.next().map_err(|e| store_error(&e))? {
                read(self, world, cells, keys)?;
            }
        }
        Ok(())
    }

    /// A row of an execution that may be handed out here, with its payload. Unless it cannot be
    /// read it is named with its rank.
    fn with_payload(
        &mut self,
        world: &mut World,
        cells: &Row<'_>,
        wanted: impl FnOnce(ExecutionKey) -> bool,
    ) -> Result<Option<(i64, ExecutionKey)>, StoreError> {
        let read = Reader::new(&Written(cells), self.words).execution_with_payload();
        let Some(row) = readable(read)? else { return Ok(None) };
        if !wanted(row.key) {
            world.taken_elsewhere.insert(row.key.id);
            return Ok(None);
        }
        // An execution that was never leased has no attempt, unless somebody has put one there by
        // hand.
        if (row.lease_epoch > 0 || self.careful)
            && readable(self.attempt(world, row.key, row.attempt_index))?.is_none()
        {
            return Ok(None);
        }
        self.places.insert(row.key.id, place(cells)?);
        if let Some(id) = row.flow_id {
            self.flow(world, FlowKey { partition: row.key.partition, id })?;
        }
        let named = (row.rank(), row.key);
        self.loaded(world, row, None)?;
        Ok(Some(named))
    }

    /// The payload of an execution that was read without it.
    fn payload(&mut self, world: &mut World, key: &ExecutionKey) -> Result<(), StoreError> {
        if world.executions.get(key).is_none_or(|row| row.payload != Blob::Apart) {
            return Ok(());
        }
        let Some(place) = self.places.get(&key.id).copied() else { return Ok(()) };
        let mut statement = self.prepare(&self.statements.payload)?;
        let mut rows = statement.query([place.rowid]).map_err(|e| store_error(&e))?;
        if let Some(cells) = rows.next().map_err(|e| store_error(&e))? {
            let payload = Reader::new(&Written(cells), self.words).blob()?;
            world.executions.complement(key, |row| row.payload = payload);
        }
        Ok(())
    }

    /// A row of an execution, its current attempt and its last event.
    fn joined(
        &mut self,
        world: &mut World,
        cells: &Row<'_>,
        wanted: impl FnOnce(ExecutionKey) -> bool,
    ) -> Result<(), StoreError> {
        let written = Written(cells);
        let mut reader = Reader::new(&written, self.words);
        let read = reader.execution().and_then(|row| {
            let attempt = reader.joined_attempt(row.key)?;
            Ok((row, attempt))
        });
        let Some((row, attempt)) = readable(read)? else { return Ok(()) };
        if wanted(row.key) {
            self.places.insert(row.key.id, place(cells)?);
            self.loaded(world, row, attempt)?;
        } else {
            world.taken_elsewhere.insert(row.key.id);
        }
        Ok(())
    }

    fn loaded(
        &self,
        world: &mut World,
        mut row: ExecutionRow,
        attempt: Option<AttemptRow>,
    ) -> Result<(), StoreError> {
        if row.result == Blob::Apart {
            let sql = "SELECT bytes FROM ff_blob WHERE execution_id = ?1 AND part = 'result'";
            let read = |row: &Row<'_>| Ok(Arc::from(row.get_ref(0)?.as_blob()?));
            let bytes = self.rows(sql, params![row.key.id.as_bytes()], read)?.pop();
            row.result = bytes.map_or(Blob::Absent, Blob::Here);
        }
        if let Some(attempt) = attempt {
            world.attempts.load(attempt);
        }
        world.executions.load(row);
        Ok(())
    }

    fn open_members(&mut self, world: &mut World, flow: FlowKey) -> Result<(), StoreError> {
        let sql = "SELECT count(*) FROM ff_exec_core WHERE flow_id = ?1 \
                   AND lifecycle_phase NOT IN ('terminal', 'cancelled')";
        let mut statement = self.prepare(sql)?;
        let open: i64 = statement
            .query_row(params![flow.id.as_bytes()], |row| row.get(0))
            .map_err(|e| store_error(&e))?;
        world.open_members.insert(flow, u64::try_from(open).unwrap_or(0));
        Ok(())
    }

    fn members(&mut self, world: &mut World, scan: MemberScan) -> Result<(), StoreError> {
        let mut statement = self.prepare(&self.statements.member)?;
        let after = scan.after.map(|after| after.as_bytes().to_vec()).unwrap_or_default();
        // One more than asked for tells whether there is more.
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX).saturating_add(1);
        let mut rows = statement
            .query(params![scan.flow.id.as_bytes(), after, limit])
            .map_err(|e| store_error(&e))?;
        let (mut count, mut last) = (0, None);
        while let Some(cells) = rows.next().map_err(|e| store_error(&e))? {
            count += 1;
            if count > scan.limit {
                break;
            }
            last = Some(cells.get(0).map_err(|e| store_error(&e))?);
            self.joined(world, cells, |_| true)?;
        }
        world.members.insert(scan, last.filter(|_| count > scan.limit));
        Ok(())
    }

    fn attempt(
        &mut self,
        world: &mut World,
        execution: ExecutionKey,
        index: u32,
    ) -> Result<(), StoreError> {
        if world.attempts.is_loaded(&AttemptKey { execution, index }) {
            return Ok(());
        }
        let mut statement = self.prepare(&self.statements.attempt)?;
        let mut rows = statement
            .query(params![execution.id.as_bytes(), index])
            .map_err(|e| store_error(&e))?;
        if let Some(cells) = rows.next().map_err(|e| store_error(&e))? {
            world.attempts.load(Reader::new(&Written(cells), self.words).attempt(execution)?);
        }
        Ok(())
    }

    fn flow(&mut self, world: &mut World, flow: FlowKey) -> Result<(), StoreError> {
        if world.flows.is_loaded(&flow) {
            return Ok(());
        }
        if let Some(row) = self.held.flow(flow.id) {
            world.flows.load(row.clone());
            return Ok(());
        }
        let mut statement = self.prepare(&self.statements.flow)?;
        let mut rows = statement.query([flow.id.as_bytes()]).map_err(|e| store_error(&e))?;
        if let Some(cells) = rows.next().map_err(|e| store_error(&e))? {
            world.flows.load(Reader::new(&Written(cells), self.words).flow()?);
        }
        Ok(())
    }

    pub(crate) fn lane(&mut self, world: &mut World, lane: &Arc<str>) -> Result<(), StoreError> {
        let mut statement = self.prepare(&self.statements.lane)?;
        let mut rows = statement.query([&**lane]).map_err(|e| store_error(&e))?;
        if let Some(cells) = rows.next().map_err(|e| store_error(&e))? {
            world.lanes.load(Reader::new(&Written(cells), self.words).lane()?);
        }
        Ok(())
    }

    pub(crate) fn idempotency(
        &self,
        world: &mut World,
        key: &IdempotencyKey,
    ) -> Result<(), StoreError> {
        let sql = "SELECT execution_id, home_partition, fingerprint, expires_at_ms \
                   FROM ff_idempotency WHERE namespace = ?1 AND idempotency_key = ?2";
        let read = |row: &Row<'_>| {
            Ok(IdempotencyRow {
                key: key.clone(),
                execution: ExecutionKey { partition: row.get(1)?, id: row.get(0)? },
                fingerprint: row.get(2)?,
                expires_at: row.get::<_, Option<i64>>(3)?.map(TimestampMs),
            })
        };
        for row in self.rows(sql, params![&*key.namespace, &*key.key], read)? {
            world.idempotency.load(row);
        }
        Ok(())
    }

    /// The best executions of a lane for a worker. The index is sorted by namespace and required
    /// capabilities first, so each combination that suits the worker is read in its own order.
    fn claimable(
        &mut self,
        world: &mut World,
        scan: &ClaimScan,
        limit: usize,
    ) -> Result<(), StoreError> {
        let mut found: Vec<(i64, ExecutionKey)> = Vec::new();
        let mut last: Option<(String, String)> = None;
        while let Some((namespace, class)) = self.next_class(scan, last.as_ref())? {
            if capability::satisfied(&class, &scan.offered) {
                self.claimable_of(world, scan, (&namespace, &class), limit, &mut found)?;
            }
            last = Some((namespace, class));
        }
        found.sort_unstable_by_key(|(rank, key)| (*rank, key.id));
        let more = found.len() >= limit;
        found.truncate(limit);
        let keys = found.into_iter().map(|(_, key)| key).collect();
        world.claimable.insert(scan.clone(), Claimable { keys, more });
        Ok(())
    }

    /// The next combination of namespace and capabilities that the lane has work for. Each query
    /// is one seek: a comparison of both columns at once would walk over all the work between.
    fn next_class(
        &self,
        scan: &ClaimScan,
        last: Option<&(String, String)>,
    ) -> Result<Option<(String, String)>, StoreError> {
        let lane = &*scan.lane;
        let sql = &self.statements;
        let found = match (&scan.namespace, last) {
            (None, None) => self.class(&sql.first_class, params![lane])?,
            (Some(namespace), None) => {
                self.class(&sql.first_class_of_namespace, params![lane, &**namespace])?
            }
            (_, Some((namespace, class))) => {
                self.class(&sql.next_class_of_namespace, params![lane, namespace, class])?
            }
        };
        match (found, &scan.namespace, last) {
            (None, None, Some((namespace, _))) => {
                self.class(&sql.next_namespace, params![lane, namespace])
            }
            (found, _, _) => Ok(found),
        }
    }

    fn class(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Option<(String, String)>, StoreError> {
        Ok(self.rows(sql, params, |row| Ok((row.get(0)?, row.get(1)?)))?.pop())
    }

    fn claimable_of(
        &mut self,
        world: &mut World,
        scan: &ClaimScan,
        (namespace, class): (&str, &str),
        limit: usize,
        found: &mut Vec<(i64, ExecutionKey)>,
    ) -> Result<(), StoreError> {
        let mut statement = self.prepare(&self.statements.claim)?;
        // A few more than asked for, in case some cannot be read.
        let wanted = limit;
        let limit = i64::try_from(limit + UNREADABLE).unwrap_or(i64::MAX);
        let mut count = 0;
        let mut rows = statement
            .query(params![&*scan.lane, namespace, class, limit])
            .map_err(|e| store_error(&e))?;
        while count < wanted
            && let Some(cells) = rows.next().map_err(|e| store_error(&e))?
        {
            let named = self.with_payload(world, cells, |_| true)?;
            count += usize::from(named.is_some());
            found.extend(named);
        }
        Ok(())
    }

    pub(crate) fn prepare<'s>(&self, sql: &str) -> Result<rusqlite::CachedStatement<'s>, StoreError>
    where
        Self: 's,
    {
        self.connection.prepare_cached(sql).map_err(|error| store_error(&error))
    }

    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let collect = || -> rusqlite::Result<Vec<T>> {
            self.connection.prepare_cached(sql)?.query_map(params, read)?.collect()
        };
        collect().map_err(|error| store_error(&error))
    }
}

/// It is always in the last two columns.
fn place(cells: &Row<'_>) -> Result<Place, StoreError> {
    let count = cells.as_ref().column_count();
    let read = |at: usize| cells.get(at).map_err(|error| store_error(&error));
    Ok(Place { rowid: read(count - 2)?, last_event: read(count - 1)? })
}
