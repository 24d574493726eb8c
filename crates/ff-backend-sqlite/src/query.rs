//! Reads outside transactions, on the readers' pool.

use std::sync::Arc;

use ff_core::engine_error::StoreError;
use ff_core::rows::spelling::Spelling;
use ff_core::rows::{Blob, EventRow, ExecutionRow, FlowKey, TimerKey, TimerRow};
use ff_core::state::PublicState;
use ff_core::store::cells::{Cells, Reader, Words};
use ff_core::store::damage;
use ff_core::store::{
    CountRow, Dialect, ListQuery, LogBounds, LogSecret, Query, RetentionScan, Rows, ShardBounds,
};
use ff_core::types::{ExecutionKey, TimestampMs};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, SqlitePool};
use uuid::Uuid;

use crate::columns::{ATTEMPT, EVENT, EXECUTION, FLOW, LANE, Read};
use crate::error::read_error;
use crate::records::bind;

/// How this database spells filters on executions.
pub(crate) const DIALECT: Dialect = Dialect {
    parameter: |at| format!("?{at}"),
    tag: |parameter| format!("json_extract(tags, {parameter})"),
    // A quoted path, because tag keys contain dots.
    tag_name: |key| format!("$.\"{key}\""),
};

const FINISHED: &str = "('terminal', 'cancelled')";
/// A page of timers after a place. A plain comparison of rows is what SQLite looks up in the index.
const TIMERS: &str = "SELECT due_at_ms, kind, subject, members FROM ff_timer \
                      WHERE (due_at_ms, kind, subject) > (?1, ?2, ?3) \
                      ORDER BY due_at_ms, kind, subject LIMIT ?4";
const ENDINGS: &str = "('completed', 'failed', 'cancelled', 'expired', 'skipped')";

pub(crate) async fn run(
    pool: &SqlitePool,
    query: Query,
    now: TimestampMs,
) -> Result<Rows, StoreError> {
    let reads = Reads { pool };
    let mut rows = Rows::default();
    match query {
        Query::Execution(key) => reads.execution(&mut rows, key).await?,
        Query::Executions(list) => reads.list(&mut rows, &list).await?,
        Query::Flow(flow) => {
            reads.flow(&mut rows, flow).await?;
            rows.counts = reads.member_counts(flow).await?;
        }
        Query::Flows(list) => reads.list_flows(&mut rows, &list).await?,
        Query::Count(list) => rows.count = reads.count(&list).await?,
        Query::UnfinishedMembers { flow, limit } => {
            reads.unfinished(&mut rows, flow, limit).await?;
        }
        Query::Payloads(keys) => {
            for key in keys {
                rows.blobs.extend(reads.bytes(key, "payload").await?);
            }
        }
        Query::Results { keys, bytes } => reads.results(&mut rows, &keys, bytes).await?,
        Query::Events { after, limit } => {
            rows.log = Some(reads.log().await?);
            let after = after.first().copied().unwrap_or_default();
            rows.events = reads.events(after, limit).await?;
        }
        Query::History { execution, after_version, limit } => {
            rows.events = reads.history(execution, after_version, limit).await?;
        }
        Query::Counts { namespace } => rows.counts = reads.counts(namespace.as_ref()).await?,
        Query::Lanes => reads.lanes(&mut rows).await?,
        Query::Records { keys, scans } => rows.records = reads.records(&keys, &scans).await?,
        Query::Log => rows.log = Some(reads.log().await?),
        Query::NextDue(scan) => rows.next_due = reads.next_due(scan, now).await?,
        Query::Timers { after, limit } => rows.timers = reads.timers(after, limit).await?,
    }
    Ok(rows)
}

pub(crate) struct Reads<'p> {
    pub pool: &'p SqlitePool,
}

impl Reads<'_> {
    async fn execution(&self, rows: &mut Rows, key: ExecutionKey) -> Result<(), StoreError> {
        let Some(row) = self.one(rows, key).await? else {
            return Ok(());
        };
        let sql = format!(
            "SELECT {ATTEMPT} FROM ff_attempt WHERE partition_key = 0 AND execution_id = ?1 \
             ORDER BY attempt_index"
        );
        let attempts = self.fetch(sqlx::query(&sql).bind(key.id)).await?;
        let mut words = Words::default();
        for cells in &attempts {
            let attempt = rows.attempt(&Read(cells), &mut words, ATTEMPT, key)?;
            rows.attempts.push(attempt);
        }
        let sql = format!("SELECT {LANE} FROM ff_lane WHERE lane_id = ?1");
        for cells in &self.fetch(sqlx::query(&sql).bind(&*row.lane)).await? {
            let lane = rows.lane(&Read(cells), &mut words, LANE)?;
            rows.lanes.push(lane);
        }
        if let Some(flow) = row.flow_id {
            let sql =
                format!("SELECT {FLOW} FROM ff_flow_core WHERE partition_key = 0 AND flow_id = ?1");
            for cells in &self.fetch(sqlx::query(&sql).bind(flow)).await? {
                let flow = rows.flow(&Read(cells), &mut words, FLOW)?;
                rows.flows.push(flow);
            }
        }
        rows.executions = vec![row];
        Ok(())
    }

    async fn one(
        &self,
        rows: &mut Rows,
        key: ExecutionKey,
    ) -> Result<Option<ExecutionRow>, StoreError> {
        let sql = format!(
            "SELECT {EXECUTION} FROM ff_exec_core WHERE partition_key = 0 AND execution_id = ?1"
        );
        let found = executions(rows, &self.fetch(sqlx::query(&sql).bind(key.id)).await?)?;
        Ok(found.into_iter().find(|row| row.key == key))
    }

    /// A prefix of these executions, as long as their results fit.
    async fn results(
        &self,
        rows: &mut Rows,
        keys: &[ExecutionKey],
        bytes: usize,
    ) -> Result<(), StoreError> {
        let mut room = bytes;
        for key in keys {
            let Some(row) = self.one(rows, *key).await? else { continue };
            let blob = match &row.result {
                Blob::Absent => None,
                Blob::Here(bytes) => Some((*key, bytes.clone())),
                Blob::Apart => self.bytes(*key, "result").await?,
            };
            let size = blob.as_ref().map_or(0, |(_, bytes)| bytes.len());
            if size > room && !rows.executions.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            rows.blobs.extend(blob);
            rows.executions.push(row);
        }
        Ok(())
    }

    async fn list(&self, rows: &mut Rows, list: &ListQuery) -> Result<(), StoreError> {
        let sql = list.page(DIALECT, EXECUTION);
        let found = self.fetch(bind(sqlx::query(&sql.text), &sql.values)).await?;
        rows.executions = executions(rows, &found)?;
        Ok(())
    }

    async fn count(&self, list: &ListQuery) -> Result<u64, StoreError> {
        let sql = list.count(DIALECT);
        let found = self.fetch(bind(sqlx::query(&sql.text), &sql.values)).await?;
        let count = found.first().map_or(Ok(None), |cells| Read(cells).int(0))?;
        Ok(u64::try_from(count.unwrap_or(0)).unwrap_or(0))
    }

    async fn unfinished(
        &self,
        rows: &mut Rows,
        flow: FlowKey,
        limit: usize,
    ) -> Result<(), StoreError> {
        let sql = format!(
            "SELECT {EXECUTION} FROM ff_exec_core WHERE flow_id = ?1 \
             AND lifecycle_phase NOT IN {FINISHED} \
             AND blocking_reason <> 'paused_by_flow_cancel' ORDER BY execution_id LIMIT ?2"
        );
        let found = self.fetch(sqlx::query(&sql).bind(flow.id).bind(whole(limit))).await?;
        rows.executions = executions(rows, &found)?;
        Ok(())
    }

    async fn bytes(
        &self,
        key: ExecutionKey,
        part: &str,
    ) -> Result<Option<(ExecutionKey, Arc<[u8]>)>, StoreError> {
        let sql = format!(
            "SELECT coalesce(c.{part}, b.bytes), c.home_partition FROM ff_exec_core AS c \
             LEFT JOIN ff_blob AS b ON b.execution_id = c.execution_id AND b.part = ?2 \
               AND c.{part}_apart = 1 \
             WHERE c.partition_key = 0 AND c.execution_id = ?1"
        );
        let found = self.fetch(sqlx::query(&sql).bind(key.id).bind(part)).await?;
        let Some(cells) = found.first() else {
            return Ok(None);
        };
        let cells = Read(cells);
        let own = cells.int(1)? == Some(i64::from(key.partition));
        Ok(cells.blob(0)?.filter(|_| own).map(|bytes| (key, bytes.into())))
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<EventRow>, StoreError> {
        // Below the floor only the histories of living executions remain, with holes between.
        let sql = format!(
            "SELECT {EVENT} FROM ff_event WHERE seq >= ?1 \
             AND (seq = ?1 OR seq >= (SELECT value FROM ff_meta WHERE name = 'log_floor')) \
             ORDER BY seq LIMIT ?2 + 1"
        );
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        events(&self.fetch(sqlx::query(&sql).bind(after).bind(whole(limit))).await?)
    }

    async fn history(
        &self,
        execution: ExecutionKey,
        after_version: u64,
        limit: usize,
    ) -> Result<Vec<EventRow>, StoreError> {
        let sql = format!(
            "WITH RECURSIVE chain (at) AS ( \
               SELECT last_event FROM ff_exec_core WHERE partition_key = 0 AND execution_id = ?1 \
               UNION ALL \
               SELECT previous FROM ff_event JOIN chain ON seq = at \
               WHERE previous > 0 AND version > ?2 + 1 \
             ) SELECT {EVENT} FROM ff_event JOIN chain ON seq = at WHERE version > ?2 \
             ORDER BY version LIMIT ?3"
        );
        let after = i64::try_from(after_version).unwrap_or(i64::MAX - 1);
        let query = sqlx::query(&sql).bind(execution.id).bind(after).bind(whole(limit));
        events(&self.fetch(query).await?)
    }

    async fn counts(&self, namespace: Option<&Arc<str>>) -> Result<Vec<CountRow>, StoreError> {
        let sql = "SELECT namespace, lane_id, public_state, count(*) FROM ff_exec_core \
                   WHERE ?1 IS NULL OR namespace = ?1 GROUP BY 1, 2, 3";
        let namespace = namespace.map(ToString::to_string);
        let found = self.fetch(sqlx::query(sql).bind(namespace)).await?;
        let count = |cells: &SqliteRow| -> Result<CountRow, StoreError> {
            let cells = Read(cells);
            let state = cells.text(2).ok().flatten().and_then(PublicState::read);
            Ok(CountRow {
                namespace: cells.text(0).ok().flatten().unwrap_or_default().into(),
                lane: cells.text(1).ok().flatten().unwrap_or_default().into(),
                state: state.unwrap_or(PublicState::Waiting),
                count: u64::try_from(cells.int(3)?.unwrap_or(0)).unwrap_or(0),
            })
        };
        found.iter().map(count).collect()
    }

    async fn lanes(&self, rows: &mut Rows) -> Result<(), StoreError> {
        let sql = format!("SELECT {LANE} FROM ff_lane ORDER BY lane_id");
        let mut words = Words::default();
        for cells in &self.fetch(sqlx::query(&sql)).await? {
            let lane = rows.lane(&Read(cells), &mut words, LANE)?;
            rows.lanes.push(lane);
        }
        Ok(())
    }

    async fn log(&self) -> Result<LogBounds, StoreError> {
        let sql = "SELECT (SELECT value FROM ff_meta WHERE name = 'history_id'), \
                   (SELECT value FROM ff_meta WHERE name = 'log_floor'), \
                   (SELECT max(seq) FROM ff_event), \
                   (SELECT value FROM ff_meta WHERE name = 'log_floor_mark'), \
                   (SELECT value FROM ff_meta WHERE name = 'log_secret')";
        let found = sqlx::query(sql).fetch_one(self.pool).await.map_err(|e| read_error(&e))?;
        let read = |at: usize| found.try_get::<Option<i64>, _>(at).map_err(|e| read_error(&e));
        let history: Vec<u8> = found.try_get(0).map_err(|e| read_error(&e))?;
        let floor = read(1)?.unwrap_or(1);
        let head = read(2)?.unwrap_or(0).max(floor - 1);
        let shard = ShardBounds {
            floor: u64::try_from(floor).unwrap_or(1),
            head: u64::try_from(head).unwrap_or(0),
            floor_mark: read(3)?.and_then(|mark| u32::try_from(mark).ok()).unwrap_or(0),
        };
        let secret: Vec<u8> = found.try_get(4).map_err(|e| read_error(&e))?;
        let secret = <[u8; 32]>::try_from(secret)
            .map_err(|_| StoreError::Corrupt("the log's secret cannot be read".to_owned()))?;
        let history_id = Uuid::from_slice(&history)
            .map_err(|error| StoreError::Corrupt(format!("the history id: {error}")))?;
        Ok(LogBounds { history_id, secret: LogSecret(secret), shards: vec![shard] })
    }

    async fn next_due(
        &self,
        scan: Option<RetentionScan>,
        now: TimestampMs,
    ) -> Result<Option<TimestampMs>, StoreError> {
        let sql = "SELECT (SELECT due_at_ms FROM ff_timer ORDER BY due_at_ms LIMIT 1), \
                   e.seq, e.at_ms, EXISTS (SELECT 1 FROM ff_exec_core WHERE version = 0) \
                   FROM (SELECT 1) LEFT JOIN (SELECT seq, at_ms FROM ff_event \
                   WHERE seq >= (SELECT value FROM ff_meta WHERE name = 'log_floor') \
                   ORDER BY seq LIMIT 1) AS e";
        let found = sqlx::query(sql).fetch_one(self.pool).await.map_err(|e| read_error(&e))?;
        let found = Read(&found);
        let timer = found.int(0)?.map(TimestampMs);
        let retired = match (scan, found.int(1)?, found.int(2)?) {
            (Some(scan), Some(seq), Some(at)) => {
                let old = scan.max_age_ms.map(|age| TimestampMs(at).after_ms(age));
                let many = match scan.max_finished {
                    Some(keep) => self.finish_horizon(keep).await?.is_some_and(|last| seq <= last),
                    None => false,
                };
                if many { Some(now) } else { old }
            }
            _ => None,
        };
        let unannounced = (found.int(3)? == Some(1)).then_some(now);
        Ok(timer.into_iter().chain(retired).chain(unannounced).min())
    }

    async fn timers(
        &self,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerRow>, StoreError> {
        let query = sqlx::query(TIMERS)
            .bind(after.map_or(i64::MIN, |key| key.due_at.0))
            .bind(after.map_or("", |key| key.kind.word()))
            .bind(after.map_or(Uuid::nil(), |key| key.subject))
            .bind(whole(limit));
        let mut words = Words::default();
        let found = self.fetch(query).await?;
        found.iter().map(|cells| Reader::new(&Read(cells), &mut words).timer()).collect()
    }

    /// The last place in the log before the newest `keep` endings.
    async fn finish_horizon(&self, keep: u64) -> Result<Option<i64>, StoreError> {
        let sql = format!(
            "SELECT seq FROM ff_event WHERE event_type IN {ENDINGS} \
             ORDER BY seq DESC LIMIT 1 OFFSET ?1"
        );
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        let found = self.fetch(sqlx::query(&sql).bind(keep)).await?;
        found.first().map_or(Ok(None), |cells| Read(cells).int(0))
    }

    pub(crate) async fn fetch<'q>(
        &self,
        query: sqlx::query::Query<'q, Sqlite, sqlx::sqlite::SqliteArguments<'q>>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        query.fetch_all(self.pool).await.map_err(|error| read_error(&error))
    }
}

pub(crate) fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn executions(rows: &mut Rows, found: &[SqliteRow]) -> Result<Vec<ExecutionRow>, StoreError> {
    let mut words = Words::default();
    found.iter().map(|cells| rows.execution(&Read(cells), &mut words, EXECUTION)).collect()
}

fn events(found: &[SqliteRow]) -> Result<Vec<EventRow>, StoreError> {
    let mut words = Words::default();
    found.iter().map(|cells| damage::event(&Read(cells), &mut words, EVENT)).collect()
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_page_of_timers_begins_at_its_place_in_the_index() {
        let connection = Connection::open_in_memory().expect("open");
        crate::migrate::apply(&connection).expect("migrate");
        let mut statement =
            connection.prepare(&format!("EXPLAIN QUERY PLAN {TIMERS}")).expect("prepare");
        let rows = statement.query_map([None::<i64>; 4], |row| row.get::<_, String>(3));
        let plan: Vec<String> = rows.expect("explain").map(|row| row.expect("row")).collect();
        let search = "SEARCH ff_timer USING PRIMARY KEY ((due_at_ms,kind,subject)>(?,?,?))";
        assert_eq!(plan, [search]);
    }
}
