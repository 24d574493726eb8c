//! Writes what a batch decided, inside its transaction: one statement for each touched table.

use std::collections::BTreeMap;
use std::sync::Arc;

use ff_core::engine_error::StoreError;
use ff_core::rows::spelling::Spelling;
use ff_core::rows::{AttemptRow, EventRow, ExecutionRow, IdempotencyRow, LaneRow, Rewritten, Row};
use ff_core::store::{Change, LogFloor, Write};
use ff_core::types::{ExecutionKey, TimestampMs};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::binding::Bound;
use crate::cache::ServerStart;
use crate::columns::narrow;
use crate::error::store_error;
use crate::groups::{
    Attempt, AttemptOwn, Detail, Documents, EventEach, EventHome, EventShared, Key, Moved,
    MovedOwn, NewEach, NewOptions, NewShared, Placed, Timer, Unsure, bytes,
};
use crate::hanging::{Other, Parts};
use crate::held::Unlocked;
use crate::load::Prepared;
use crate::sql::{self, Writes};
use crate::together::{self, Part, Shape};

pub(crate) struct Writing<'c> {
    pub connection: &'c mut PgConnection,
    pub writes: &'c Writes,
    pub unlocked: &'c Unlocked,
    /// Whether the connection may keep prepared statements.
    pub keeps: bool,
}

/// Where a transaction's events are: for each shard the place before its first one. And the name
/// that the transaction has in the rows that it wrote.
pub(crate) struct Appended {
    pub places: Vec<(u16, u64)>,
    pub writer: Option<Arc<str>>,
}

/// The events of a transaction at their places, and how many there are in each shard.
struct Log<'c> {
    placed: Vec<Placed<'c>>,
    touched: BTreeMap<u16, i64>,
}

/// About so many bytes an execution takes beyond its payload.
const ROOM: usize = 64;

impl Writing<'_> {
    /// Everything, with the events last.
    pub async fn write_and_append(
        &mut self,
        change: &Change,
        shard_of: impl Fn(Option<ExecutionKey>, Option<Uuid>) -> (u16, u16),
    ) -> Result<Appended, StoreError> {
        let log = Log::of(change, shard_of);
        self.write_rows(change).await?;
        let hanging = self.write_rest(change).await?;
        if log.touched.len() == 1 && change.log_floor.is_none() {
            return self.write_together(change, hanging, Some(&log), Shape::default()).await;
        }
        let written = self.write_together(change, hanging, None, Shape::default()).await?;
        let appended = self.append(change, &log).await?;
        Ok(Appended { writer: appended.writer.or(written.writer), ..appended })
    }

    /// Everything in one statement that is a transaction of its own, if the server still is in the
    /// run that the rows were kept in.
    pub async fn write_alone(
        &mut self,
        change: &Change,
        server: ServerStart,
        shard_of: impl Fn(Option<ExecutionKey>, Option<Uuid>) -> (u16, u16),
    ) -> Result<Appended, StoreError> {
        let (log, mut shape) = (Log::of(change, shard_of), Shape::default());
        shape.be_alone();
        let mut parts = Parts::put(change);
        parts.expected.push(server);
        self.write_together(change, parts, Some(&log), shape).await
    }

    /// Everything but the events.
    pub async fn write(&mut self, change: &Change) -> Result<(), StoreError> {
        self.write_rows(change).await?;
        let hanging = self.write_rest(change).await?;
        self.write_together(change, hanging, None, Shape::default()).await.map(|_| ())
    }

    /// What must be there or gone before the others are written.
    async fn write_rows(&mut self, change: &Change) -> Result<(), StoreError> {
        self.purge(&change.executions).await?;
        self.insert_executions(&change.executions).await?;
        self.delete_attempts(&change.attempts).await
    }

    /// What few transactions write, but for what can be written together with the rest.
    async fn write_rest(&mut self, change: &Change) -> Result<Parts, StoreError> {
        self.write_idempotency(&change.idempotency).await?;
        self.write_lanes(&change.lanes).await?;
        self.remove_hanging(change).await?;
        Ok(Parts::put(change))
    }

    async fn insert_executions(
        &mut self,
        writes: &[Write<ExecutionRow>],
    ) -> Result<(), StoreError> {
        let rows = inserted(writes);
        if rows.is_empty() {
            return Ok(());
        }
        let payloads: usize =
            rows.iter().map(|row| bytes(&row.payload).map_or(0, <[u8]>::len)).sum();
        let mut bound = Bound::with_room(payloads + rows.len() * ROOM);
        bound.each(NewEach, &rows);
        let shared = bound.alike(NewShared, &rows);
        let options = bound.alike(NewOptions, &rows);
        let mut shape = Shape::default();
        shape.add(Part::Executions, shared, options);
        let text = self.writes.texts.get((shape, Vec::new()), together::text);
        self.run(sqlx::query_with(&text, bound.finish()?)).await
    }

    /// What most transactions write, in one round trip. Most transitions move the same few columns
    /// of an execution; only some rewrite the others.
    async fn write_together(
        &mut self,
        change: &Change,
        hanging: Parts,
        log: Option<&Log<'_>>,
        mut shape: Shape,
    ) -> Result<Appended, StoreError> {
        let Parts { others, expected, mut bound } = hanging;
        let mut counts = self.bind_parts(change, &mut bound, &mut shape);
        counts.extend(expected);
        if let Some(log) = log {
            return self.append_bound(log, bound, shape, others, &counts).await;
        }
        if bound.next() > 1 {
            let text = self.writes.texts.get((shape, others), together::text);
            let query = sqlx::query_with(&text, bound.finish()?).persistent(self.keeps);
            let row = query.fetch_one(&mut *self.connection).await;
            let row = row.map_err(|error| store_error(&error))?;
            for (place, expected) in counts.iter().enumerate() {
                let found: i64 = row.try_get(place).map_err(|error| store_error(&error))?;
                if found != *expected {
                    return Err(StoreError::Conflict(LEFT.to_owned()));
                }
            }
            let writer: String = row.try_get(counts.len()).map_err(|error| store_error(&error))?;
            return Ok(Appended { places: Vec::new(), writer: Some(writer.into()) });
        }
        Ok(Appended { places: Vec::new(), writer: None })
    }

    /// Returns how many rows each part has.
    fn bind_parts(&self, change: &Change, bound: &mut Bound, shape: &mut Shape) -> Vec<i64> {
        // A row that was accepted and moved on in one batch has more to say than a new one has.
        let changed = change.executions.iter().filter_map(|write| match write {
            Write::Insert(row) if row.version > 1 => Some(row),
            Write::Update(row) => Some(row),
            Write::Insert(_) | Write::Delete(_) => None,
        });
        let changed = changed.map(|row| Unsure { row, writer: self.unlocked.writer_of(&row.key) });
        let (rewritten, moved): (Vec<_>, Vec<_>) =
            changed.partition(|held| held.row.rewritten > Rewritten::Nothing);
        let writer = |row| self.unlocked.writer_of_attempt(&AttemptRow::key(row).execution);
        let attempt = |row| Unsure { row, writer: writer(row) };
        let new: Vec<_> = inserted(&change.attempts).into_iter().map(attempt).collect();
        let tried: Vec<_> = updated(&change.attempts).into_iter().map(attempt).collect();
        let armed = put(&change.timers);
        for (part, rows) in [(Part::Moved, &moved), (Part::Rewritten, &rewritten)] {
            if !rows.is_empty() {
                bound.each(Key, rows);
                shape.add(part, bound.alike(Moved, rows), bound.alike(MovedOwn, rows));
                if matches!(part, Part::Rewritten) {
                    let everything = |held: &Unsure<'_, ExecutionRow>| {
                        held.row.rewritten == Rewritten::Everything
                    };
                    let documents = rows.iter().any(everything);
                    shape.rewrite(bound.alike(Detail, rows), documents);
                    if documents {
                        bound.each(Documents, rows);
                    }
                }
            }
        }
        for (part, rows) in [(Part::NewAttempts, &new), (Part::Attempts, &tried)] {
            if !rows.is_empty() {
                bound.each(Key, rows);
                shape.add(part, bound.alike(Attempt, rows), bound.alike(AttemptOwn, rows));
            }
        }
        if !armed.is_empty() {
            bound.each(Timer, &armed);
            shape.add(Part::Timers, false, false);
        }
        let counts = [moved.len(), rewritten.len(), new.len(), tried.len(), armed.len()];
        counts.into_iter().filter(|count| *count > 0).map(|count| count as i64).collect()
    }

    async fn delete_attempts(&mut self, writes: &[Write<AttemptRow>]) -> Result<(), StoreError> {
        let gone = deleted(writes);
        if gone.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(&self.writes.delete_attempts)
            .bind(column(&gone, |key| narrow(key.execution.partition)))
            .bind(column(&gone, |key| key.execution.id))
            .bind(column(&gone, |key| key.index as i32));
        self.run(query).await
    }

    async fn write_idempotency(
        &mut self,
        writes: &[Write<IdempotencyRow>],
    ) -> Result<(), StoreError> {
        let gone = deleted(writes);
        if !gone.is_empty() {
            let query = sqlx::query(&self.writes.delete_idempotency)
                .bind(column(&gone, |key| &*key.namespace))
                .bind(column(&gone, |key| &*key.key));
            self.run(query).await?;
        }
        for (sql, rows) in [
            (&self.writes.insert_idempotency, inserted(writes)),
            (&self.writes.update_idempotency, updated(writes)),
        ] {
            if rows.is_empty() {
                continue;
            }
            let query = sqlx::query(sql)
                .bind(column(&rows, |row| &*row.key.namespace))
                .bind(column(&rows, |row| &*row.key.key))
                .bind(column(&rows, |row| narrow(row.execution.partition)))
                .bind(column(&rows, |row| row.execution.id))
                .bind(column(&rows, |row| &row.fingerprint[..]))
                .bind(column(&rows, |row| ms(row.expires_at)));
            self.run(query).await?;
        }
        Ok(())
    }

    async fn write_lanes(&mut self, writes: &[Write<LaneRow>]) -> Result<(), StoreError> {
        let gone = deleted(writes);
        if !gone.is_empty() {
            let query = sqlx::query("DELETE FROM ff_lane WHERE lane_id = ANY($1)");
            self.run(query.bind(column(&gone, |lane| &**lane))).await?;
        }
        for (sql, rows) in [
            (&self.writes.insert_lanes, inserted(writes)),
            (&self.writes.update_lanes, updated(writes)),
        ] {
            if rows.is_empty() {
                continue;
            }
            let query = sqlx::query(sql)
                .bind(column(&rows, |row| &*row.lane))
                .bind(column(&rows, |row| row.state.word()))
                .bind(column(&rows, |row| row.paused_reason.as_deref()))
                .bind(column(&rows, |row| row.paused_by.as_deref()))
                .bind(column(&rows, |row| ms(row.paused_at)))
                .bind(column(&rows, |row| row.limited));
            self.run(query).await?;
        }
        Ok(())
    }

    /// Forgets executions and everything that hangs on them.
    async fn purge(&mut self, writes: &[Write<ExecutionRow>]) -> Result<(), StoreError> {
        let gone = deleted(writes);
        if gone.is_empty() {
            return Ok(());
        }
        for sql in &self.writes.purge {
            let query = sqlx::query(sql)
                .bind(column(&gone, |key| narrow(key.partition)))
                .bind(column(&gone, |key| key.id));
            self.run(query).await?;
        }
        Ok(())
    }

    /// Appends to the log and says where.
    async fn append(&mut self, change: &Change, log: &Log<'_>) -> Result<Appended, StoreError> {
        let touched = log.touched.keys().map(|shard| narrow(*shard));
        if log.touched.len() > 1 || change.log_floor.is_some() {
            // In their order, so that nobody waits for somebody who waits for him.
            let raised = change.log_floor.map(|raised| narrow(raised.shard));
            let locked: Vec<i16> = touched.chain(raised).collect();
            self.run(sqlx::query(sql::LOCK_SHARDS).bind(locked)).await?;
        }
        if let Some(raised) = change.log_floor {
            self.raise_floor(raised).await?;
        }
        if log.placed.is_empty() {
            return Ok(Appended { places: Vec::new(), writer: None });
        }
        let bound = Bound::with_room(log.placed.len() * ROOM);
        self.append_bound(log, bound, Shape::default(), Vec::new(), &[]).await
    }

    /// Runs the parts that are bound and appends behind them, if each has found so many rows.
    async fn append_bound(
        &mut self,
        log: &Log<'_>,
        mut bound: Bound,
        mut shape: Shape,
        others: Vec<Other>,
        counts: &[i64],
    ) -> Result<Appended, StoreError> {
        bound.each(EventEach, &log.placed);
        let shared = bound.alike(EventShared, &log.placed);
        let home = bound.alike(EventHome, &log.placed);
        shape.add(Part::Events, shared, home);
        bound.value(log.touched.keys().map(|shard| narrow(*shard)).collect::<Vec<_>>());
        bound.value(log.touched.values().copied().collect::<Vec<_>>());
        counts.iter().for_each(|count| bound.value(*count));
        let text = self.writes.texts.get((shape, others), together::text);
        let query = sqlx::query_as_with(&text, bound.finish()?).persistent(self.keeps);
        let bases: Vec<(i16, i64, String)> =
            query.fetch_all(&mut *self.connection).await.map_err(|error| store_error(&error))?;
        if bases.len() != log.touched.len() {
            return Err(StoreError::Conflict(LEFT.to_owned()));
        }
        let writer = bases.first().map(|(.., writer)| writer.as_str().into());
        let places = bases.into_iter().map(|(shard, base, _)| (shard as u16, base as u64));
        Ok(Appended { places: places.collect(), writer })
    }

    async fn raise_floor(&mut self, raised: LogFloor) -> Result<(), StoreError> {
        let (shard, mark) = (narrow(raised.shard), i64::from(raised.mark));
        let floor = i64::try_from(raised.floor).unwrap_or(i64::MAX);
        self.run(sqlx::query(sql::TRIM_EVENTS).bind(shard).bind(floor)).await?;
        self.run(sqlx::query(sql::RAISE_FLOOR).bind(shard).bind(floor).bind(mark)).await
    }

    async fn run(&mut self, query: Prepared<'_>) -> Result<(), StoreError> {
        let done = query.persistent(self.keeps).execute(&mut *self.connection).await;
        done.map(|_| ()).map_err(|error| store_error(&error))
    }
}

/// Somebody else has changed the rows that are missing.
pub(crate) const LEFT: &str = "not all rows are as they were left";

impl<'c> Log<'c> {
    fn of(
        change: &'c Change,
        shard_of: impl Fn(Option<ExecutionKey>, Option<Uuid>) -> (u16, u16),
    ) -> Self {
        let mut touched: BTreeMap<u16, i64> = BTreeMap::new();
        let place = |event: &'c EventRow| {
            let (shard, partition) = shard_of(event.execution, event.flow_id);
            let seq = touched.entry(shard).or_default();
            *seq += 1;
            Placed { event, seq: *seq, shard, partition }
        };
        let placed = change.events.iter().map(place).collect();
        Self { placed, touched }
    }
}

/// Whether one statement can write all of it.
pub(crate) fn is_together(
    change: &Change,
    shard_of: impl Fn(Option<ExecutionKey>, Option<Uuid>) -> (u16, u16),
) -> bool {
    let moved = |write: &Write<ExecutionRow>| matches!(write, Write::Update(_));
    let mut shards = change.events.iter().map(|event| shard_of(event.execution, event.flow_id).0);
    let first = shards.next();
    first.is_some()
        && shards.all(|shard| Some(shard) == first)
        && change.log_floor.is_none()
        && change.executions.iter().all(moved)
        && deleted(&change.attempts).is_empty()
        && deleted(&change.records).is_empty()
        && change.idempotency.is_empty()
        && change.lanes.is_empty()
        && change.flows.is_empty()
}

pub(crate) fn column<'r, R, T>(rows: &[&'r R], cell: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(|row| cell(row)).collect()
}

pub(crate) fn inserted<R: Row>(writes: &[Write<R>]) -> Vec<&R> {
    writes.iter().filter(|write| matches!(write, Write::Insert(_))).filter_map(row).collect()
}

pub(crate) fn updated<R: Row>(writes: &[Write<R>]) -> Vec<&R> {
    writes.iter().filter(|write| matches!(write, Write::Update(_))).filter_map(row).collect()
}

fn put<R: Row>(writes: &[Write<R>]) -> Vec<&R> {
    writes.iter().filter_map(row).collect()
}

fn row<R: Row>(write: &Write<R>) -> Option<&R> {
    match write {
        Write::Insert(row) | Write::Update(row) => Some(row),
        Write::Delete(_) => None,
    }
}

pub(crate) fn deleted<R: Row>(writes: &[Write<R>]) -> Vec<&R::Key> {
    fn key<R: Row>(write: &Write<R>) -> Option<&R::Key> {
        if let Write::Delete(key) = write { Some(key) } else { None }
    }
    writes.iter().filter_map(key).collect()
}

pub(crate) fn ms(at: Option<TimestampMs>) -> Option<i64> {
    at.map(|at| at.0)
}
