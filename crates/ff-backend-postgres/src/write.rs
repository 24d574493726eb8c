//! Writes what a batch decided, inside its transaction: one statement for each touched table.

use std::collections::BTreeMap;
use std::sync::Arc;

use ff_core::engine_error::StoreError;
use ff_core::rows::spelling::Spelling;
use ff_core::rows::{
    AttemptRow, Blob, EdgeGroupRow, ExecutionRow, FlowRow, IdempotencyRow, LaneRow, Row, TimerRow,
};
use ff_core::store::{Change, Write};
use ff_core::types::{ExecutionKey, TimestampMs};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::columns::narrow;
use crate::error::store_error;
use crate::held::Unread;
use crate::load::Prepared;
use crate::sql::{self, PARTS, Writes};

pub(crate) struct Writing<'c> {
    pub connection: &'c mut PgConnection,
    pub writes: &'c Writes,
    pub unread: &'c Unread,
    /// Whether the connection may keep prepared statements.
    pub keeps: bool,
}

/// Where a transaction's events are: for each shard the place before its first one. And the name
/// that the transaction has in the rows that it wrote.
pub(crate) struct Appended {
    pub places: Vec<(u16, u64)>,
    pub writer: Option<Arc<str>>,
}

impl Writing<'_> {
    /// Everything but the events, which come last.
    pub async fn write(&mut self, change: &Change) -> Result<(), StoreError> {
        self.purge(&change.executions).await?;
        self.insert_executions(&change.executions).await?;
        self.delete_attempts(&change.attempts).await?;
        self.delete_timers(&change.timers).await?;
        self.write_together(change).await?;
        self.write_idempotency(&change.idempotency).await?;
        self.write_lanes(&change.lanes).await?;
        self.write_flows(&change.flows).await?;
        self.write_edge_groups(&change.edge_groups).await?;
        self.write_records(&change.records).await
    }

    async fn insert_executions(
        &mut self,
        writes: &[Write<ExecutionRow>],
    ) -> Result<(), StoreError> {
        let rows = inserted(writes);
        if rows.is_empty() {
            return Ok(());
        }
        let query = keyed(sqlx::query(&self.writes.insert_executions), &rows)
            .bind(column(&rows, |row| row.flow_id))
            .bind(column(&rows, |row| &*row.namespace))
            .bind(column(&rows, |row| &*row.lane))
            .bind(column(&rows, |row| &*row.kind))
            .bind(column(&rows, |row| bytes(&row.payload)))
            .bind(column(&rows, |row| row.payload_encoding.as_deref()))
            .bind(column(&rows, |row| &*row.creator))
            .bind(column(&rows, |row| row.idempotency_key.as_deref()))
            .bind(column(&rows, |row| row.policy.as_deref()))
            .bind(column(&rows, |row| &*row.capability_class))
            .bind(column(&rows, |row| row.created_at.0))
            .bind(column(&rows, |row| row.priority))
            .bind(column(&rows, |row| &*row.tags))
            .bind(column(&rows, |row| row.phase.word()))
            .bind(column(&rows, |row| row.eligibility.word()))
            .bind(column(&rows, |row| row.public_state.word()))
            .bind(column(&rows, |row| row.blocking.word()))
            .bind(column(&rows, |row| ms(row.not_before)))
            .bind(column(&rows, |row| ms(row.deadline_at)))
            .bind(column(&rows, |row| row.holds_key))
            .bind(column(&rows, |row| row.version as i64));
        self.run(query).await
    }

    /// What most transactions write, in one round trip. Most transitions move the same few columns
    /// of an execution; only some rewrite the others.
    async fn write_together(&mut self, change: &Change) -> Result<(), StoreError> {
        // A row that was accepted and moved on in one batch has more to say than a new one has.
        let changed = change.executions.iter().filter_map(|write| match write {
            Write::Insert(row) if row.version > 1 => Some(row),
            Write::Update(row) => Some(row),
            Write::Insert(_) | Write::Delete(_) => None,
        });
        let (rewritten, moved): (Vec<_>, Vec<_>) = changed.partition(|row| row.rewritten);
        let (new, tried) = (inserted(&change.attempts), updated(&change.attempts));
        let armed = put(&change.timers);
        let counts: [usize; PARTS] =
            [moved.len(), rewritten.len(), new.len(), tried.len(), armed.len()];
        let parts = counts.iter().rev().fold(0, |bits, count| bits << 1 | usize::from(*count > 0));
        if parts == 0 {
            return Ok(());
        }
        let mut query = sqlx::query(&self.writes.together[parts]);
        if !moved.is_empty() {
            query = moves(query, &moved).bind(writers(self.unread, &moved));
        }
        if !rewritten.is_empty() {
            query = rewrites(moves(query, &rewritten), &rewritten)
                .bind(writers(self.unread, &rewritten));
        }
        if !new.is_empty() {
            query = attempts(query, &new);
        }
        if !tried.is_empty() {
            let writers = column(&tried, |row| self.unread.writer_of(&row.key.execution));
            query = attempts(query, &tried).bind(writers);
        }
        if !armed.is_empty() {
            query = timers(query, &armed);
        }
        let row = query.persistent(self.keeps).fetch_one(&mut *self.connection).await;
        let row = row.map_err(|error| store_error(&error))?;
        for (place, expected) in counts.into_iter().filter(|count| *count > 0).enumerate() {
            let found: i64 = row.try_get(place).map_err(|error| store_error(&error))?;
            if found != expected as i64 {
                // Somebody else has changed the rows that are missing.
                let why = format!("{found} of {expected} rows are as they were left");
                return Err(StoreError::Conflict(why));
            }
        }
        Ok(())
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

    async fn delete_timers(&mut self, writes: &[Write<TimerRow>]) -> Result<(), StoreError> {
        let gone = deleted(writes);
        if gone.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(&self.writes.delete_timers)
            .bind(column(&gone, |key| key.due_at.0))
            .bind(column(&gone, |key| key.kind.word()))
            .bind(column(&gone, |key| key.subject));
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
                .bind(column(&rows, |row| ms(row.paused_at)));
            self.run(query).await?;
        }
        Ok(())
    }

    async fn write_flows(&mut self, writes: &[Write<FlowRow>]) -> Result<(), StoreError> {
        for write in writes {
            let query = match write {
                Write::Insert(row) => flow(sqlx::query(sql::INSERT_FLOW), row),
                Write::Update(row) => flow(sqlx::query(sql::UPDATE_FLOW), row),
                Write::Delete(key) => {
                    let sql = "DELETE FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2";
                    sqlx::query(sql).bind(narrow(key.partition)).bind(key.id)
                }
            };
            self.run(query).await?;
        }
        Ok(())
    }

    async fn write_edge_groups(
        &mut self,
        writes: &[Write<EdgeGroupRow>],
    ) -> Result<(), StoreError> {
        let rows = put(writes);
        if rows.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(&self.writes.update_edge_groups)
            .bind(column(&rows, |row| narrow(row.key.flow.partition)))
            .bind(column(&rows, |row| row.key.flow.id))
            .bind(column(&rows, |row| row.key.downstream))
            .bind(column(&rows, |row| row.success_count as i32))
            .bind(column(&rows, |row| row.fail_count as i32))
            .bind(column(&rows, |row| row.skip_count as i32))
            .bind(column(&rows, |row| row.running_count as i32));
        self.run(query).await
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
    pub async fn append(
        &mut self,
        change: &Change,
        shard_of: impl Fn(Option<ExecutionKey>, Option<Uuid>) -> (u16, u16),
    ) -> Result<Appended, StoreError> {
        let events = &change.events;
        let mut counts: BTreeMap<u16, i64> = BTreeMap::new();
        let (mut homes, mut shards, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for event in events {
            let (shard, partition) = shard_of(event.execution, event.flow_id);
            let count = counts.entry(shard).or_default();
            *count += 1;
            places.push(*count);
            shards.push(narrow(shard));
            homes.push(narrow(partition));
        }
        let touched: Vec<i16> = counts.keys().map(|shard| narrow(*shard)).collect();
        if touched.len() > 1 || change.log_floor.is_some() {
            // In their order, so that nobody waits for somebody who waits for him.
            let raised = change.log_floor.map(|(shard, _)| narrow(shard));
            let locked: Vec<i16> = touched.iter().copied().chain(raised).collect();
            self.run(sqlx::query(sql::LOCK_SHARDS).bind(locked)).await?;
        }
        if let Some((shard, floor)) = change.log_floor {
            self.raise_floor(shard, floor).await?;
        }
        if events.is_empty() {
            return Ok(Appended { places: Vec::new(), writer: None });
        }
        let rows: Vec<_> = events.iter().collect();
        let query = sqlx::query_as(&self.writes.append_events)
            .bind(touched)
            .bind(counts.into_values().collect::<Vec<_>>())
            .bind(shards)
            .bind(places)
            .bind(column(&rows, |row| row.at.0))
            .bind(column(&rows, |row| row.event_type.as_str()))
            .bind(column(&rows, |row| &*row.namespace))
            .bind(column(&rows, |row| row.lane.as_deref()))
            .bind(column(&rows, |row| row.kind.as_deref()))
            .bind(column(&rows, |row| row.execution.map(|key| key.id)))
            .bind(homes)
            .bind(column(&rows, |row| row.flow_id))
            .bind(column(&rows, |row| row.from.map(Spelling::word)))
            .bind(column(&rows, |row| row.to.map(Spelling::word)))
            .bind(column(&rows, |row| row.version as i64))
            .bind(column(&rows, |row| row.attempt_index as i32))
            .bind(column(&rows, |row| row.lease_epoch as i64))
            .bind(column(&rows, |row| row.lease_ended))
            .bind(column(&rows, |row| row.by.as_deref()))
            .bind(column(&rows, |row| row.details.as_deref()));
        let query = query.persistent(self.keeps);
        let bases: Vec<(i16, i64, String)> =
            query.fetch_all(&mut *self.connection).await.map_err(|error| store_error(&error))?;
        let writer = bases.first().map(|(.., writer)| writer.as_str().into());
        let places = bases.into_iter().map(|(shard, base, _)| (shard as u16, base as u64));
        Ok(Appended { places: places.collect(), writer })
    }

    async fn raise_floor(&mut self, shard: u16, floor: u64) -> Result<(), StoreError> {
        let (shard, floor) = (narrow(shard), i64::try_from(floor).unwrap_or(i64::MAX));
        for sql in [sql::TRIM_EVENTS, sql::RAISE_FLOOR] {
            self.run(sqlx::query(sql).bind(shard).bind(floor)).await?;
        }
        Ok(())
    }

    /// Runs a statement that must find as many rows as this, if it says so.
    pub(crate) async fn counted(
        &mut self,
        query: Prepared<'_>,
        expected: Option<usize>,
    ) -> Result<(), StoreError> {
        let done = query.persistent(self.keeps).execute(&mut *self.connection).await;
        let found = done.map_err(|error| store_error(&error))?.rows_affected();
        match expected {
            Some(expected) if found != expected as u64 => {
                Err(StoreError::Conflict(format!("{found} of {expected} rows are there")))
            }
            _ => Ok(()),
        }
    }

    async fn run(&mut self, query: Prepared<'_>) -> Result<(), StoreError> {
        let done = query.persistent(self.keeps).execute(&mut *self.connection).await;
        done.map(|_| ()).map_err(|error| store_error(&error))
    }
}

fn column<'r, R, T>(rows: &[&'r R], cell: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(|row| cell(row)).collect()
}

fn keyed<'q>(query: Prepared<'q>, rows: &[&ExecutionRow]) -> Prepared<'q> {
    query.bind(column(rows, |row| narrow(row.key.partition))).bind(column(rows, |row| row.key.id))
}

fn writers<'u>(unread: &'u Unread, rows: &[&ExecutionRow]) -> Vec<Option<&'u str>> {
    rows.iter().map(|row| unread.writer_of(&row.key)).collect()
}

/// What every transition moves.
fn moves<'q>(query: Prepared<'q>, rows: &[&'q ExecutionRow]) -> Prepared<'q> {
    keyed(query, rows)
        .bind(column(rows, |row| row.phase.word()))
        .bind(column(rows, |row| row.ownership.word()))
        .bind(column(rows, |row| row.eligibility.word()))
        .bind(column(rows, |row| row.public_state.word()))
        .bind(column(rows, |row| row.attempt_state.word()))
        .bind(column(rows, |row| row.blocking.word()))
        .bind(column(rows, |row| ms(row.started_at)))
        .bind(column(rows, |row| ms(row.terminal_at)))
        .bind(column(rows, |row| bytes(&row.result)))
        .bind(column(rows, |row| row.lease_epoch as i64))
        .bind(column(rows, |row| row.version as i64))
}

/// What only some of them change.
fn rewrites<'q>(query: Prepared<'q>, rows: &[&'q ExecutionRow]) -> Prepared<'q> {
    query
        .bind(column(rows, |row| row.priority))
        .bind(column(rows, |row| &*row.tags))
        .bind(column(rows, |row| row.attempt_index as i32))
        .bind(column(rows, |row| ms(row.not_before)))
        .bind(column(rows, |row| ms(row.deadline_at)))
        .bind(column(rows, |row| row.failure_reason.as_deref()))
        .bind(column(rows, |row| row.failure_category.as_deref()))
        .bind(column(rows, |row| row.cancellation_reason.as_deref()))
        .bind(column(rows, |row| row.cancelled_by.as_deref()))
        .bind(column(rows, |row| row.retry_count as i32))
        .bind(column(rows, |row| row.reclaim_count as i32))
        .bind(column(rows, |row| row.holds_key))
        .bind(column(rows, |row| &*row.raw_fields))
}

/// A timer says nothing but "look then", so a second one at the same time takes its place.
fn timers<'q>(query: Prepared<'q>, rows: &[&'q TimerRow]) -> Prepared<'q> {
    query
        .bind(column(rows, |row| row.key.due_at.0))
        .bind(column(rows, |row| row.key.kind.word()))
        .bind(column(rows, |row| row.key.subject))
        .bind(column(rows, |row| row.encode_members()))
}

fn attempts<'q>(query: Prepared<'q>, rows: &[&'q AttemptRow]) -> Prepared<'q> {
    query
        .bind(column(rows, |row| narrow(row.key.execution.partition)))
        .bind(column(rows, |row| row.key.execution.id))
        .bind(column(rows, |row| row.key.index as i32))
        .bind(column(rows, |row| row.attempt_type.word()))
        .bind(column(rows, |row| row.lease_epoch as i64))
        .bind(column(rows, |row| row.worker_id.as_deref()))
        .bind(column(rows, |row| row.worker_instance_id.as_deref()))
        .bind(column(rows, |row| ms(row.lease_expires_at)))
        .bind(column(rows, |row| ms(row.started_at)))
        .bind(column(rows, |row| ms(row.ended_at)))
        .bind(column(rows, |row| row.outcome.map(Spelling::word)))
        .bind(column(rows, |row| row.failure_reason.as_deref()))
        .bind(column(rows, |row| row.failure_category.as_deref()))
        .bind(column(rows, |row| ms(row.retry_at)))
        .bind(column(rows, |row| row.progress_percent.map(i32::from)))
        .bind(column(rows, |row| row.progress_message.as_deref()))
}

fn flow<'q>(query: Prepared<'q>, row: &'q FlowRow) -> Prepared<'q> {
    query
        .bind(narrow(row.key.partition))
        .bind(row.key.id)
        .bind(&*row.namespace)
        .bind(row.graph_revision)
        .bind(row.state.word())
        .bind(row.created_at.0)
        .bind(ms(row.terminal_at))
        .bind(&*row.raw_fields)
}

fn inserted<R: Row>(writes: &[Write<R>]) -> Vec<&R> {
    writes.iter().filter(|write| matches!(write, Write::Insert(_))).filter_map(row).collect()
}

fn updated<R: Row>(writes: &[Write<R>]) -> Vec<&R> {
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

fn deleted<R: Row>(writes: &[Write<R>]) -> Vec<&R::Key> {
    fn key<R: Row>(write: &Write<R>) -> Option<&R::Key> {
        if let Write::Delete(key) = write { Some(key) } else { None }
    }
    writes.iter().filter_map(key).collect()
}

fn bytes(blob: &Blob) -> Option<&[u8]> {
    match blob {
        Blob::Here(bytes) => Some(bytes),
        Blob::Absent | Blob::Apart => None,
    }
}

fn ms(at: Option<TimestampMs>) -> Option<i64> {
    at.map(|at| at.0)
}
