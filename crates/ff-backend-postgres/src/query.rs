//! Reads outside transactions, on the readers' pool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ff_core::engine_error::StoreError;
use ff_core::rows::spelling::Spelling;
use ff_core::rows::{Blob, EventRow, ExecutionRow, FlowKey, TimerKey, TimerRow};
use ff_core::state::PublicState;
use ff_core::store::cells::{Cells, Reader, Words};
use ff_core::store::damage;
use ff_core::store::{
    CountRow, Dialect, ListQuery, LogBounds, Query, RetentionScan, Rows, ShardBounds,
};
use ff_core::types::{ExecutionKey, TimestampMs};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{Executor, PgConnection, Postgres};
use uuid::Uuid;

use crate::columns::{ATTEMPT, Column, EVENT, EXECUTION, FLOW, LANE, narrow, of_table};
use crate::error::store_error;
use crate::load::{Prepared, finish_horizon, oldest_shard, whole};
use crate::statements::{Statements, UNANNOUNCED};
use crate::transact::CONNECT_PATIENCE;
use crate::values::bind;
use crate::{Identity, PostgresStore};

/// How this database spells filters on executions.
pub(crate) const DIALECT: Dialect = Dialect {
    parameter: |at| format!("${at}"),
    tag: |parameter| format!("tags ->> {parameter}"),
    tag_name: str::to_owned,
};

/// Longer than any read that a caller would wait for.
const READ_PATIENCE: Duration = Duration::from_secs(60);

/// Between two tries, so that readers do not keep a server busy that cannot answer yet.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Answers a query. A server that was restarted has closed every connection of the pool, so the
/// query is tried again on the next one; while the server is away no connection can be had.
pub(crate) async fn run(store: &PostgresStore, query: Query) -> Result<Rows, StoreError> {
    let give_up = Instant::now() + CONNECT_PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        let connection = store.readers.acquire().await.map_err(|error| store_error(&error))?;
        match once(store, connection, query.clone()).await {
            Err(StoreError::Unavailable(_)) if !store.is_closed() && Instant::now() < give_up => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            answer => return answer,
        }
    }
}

async fn once(
    store: &PostgresStore,
    mut connection: PoolConnection<Postgres>,
    query: Query,
) -> Result<Rows, StoreError> {
    let now = store.time.now();
    let (pooled, statements) = (store.pooled, store.statements.clone());
    let identity = store.identity(&mut connection).await?;
    // Behind a pooler statements find each other only inside a transaction, and a transaction must
    // not be left open by a caller who goes away: a task of its own sees it to its end.
    let reading = async move {
        let connection = &mut connection;
        let mut reads = Reads { connection, statements, identity, keeps: !pooled };
        let reading = reads.read(query, now, pooled);
        let answer = tokio::time::timeout(READ_PATIENCE, reading).await;
        answer.unwrap_or_else(|_| {
            connection.close_on_drop();
            Err(StoreError::Unavailable("the server does not answer".to_owned()))
        })
    };
    let mut rows = match pooled {
        false => reading.await?,
        true => {
            let ended = tokio::spawn(reading).await;
            ended.map_err(|error| StoreError::Failed(error.to_string()))??
        }
    };
    if rows.now.0 > 0 {
        store.time.observe(rows.now.0);
    }
    rows.now = store.time.now();
    Ok(rows)
}

pub(crate) struct Reads<'c> {
    connection: &'c mut PgConnection,
    pub statements: Arc<Statements>,
    identity: Identity,
    /// Whether the connection may keep prepared statements.
    keeps: bool,
}

impl Reads<'_> {
    async fn read(
        &mut self,
        query: Query,
        now: TimestampMs,
        pooled: bool,
    ) -> Result<Rows, StoreError> {
        if !pooled {
            return self.answer(query, now).await;
        }
        self.run("BEGIN READ ONLY").await?;
        let answer = self.answer(query, now).await;
        self.run("COMMIT").await?;
        answer
    }

    async fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        let done = (&mut *self.connection).execute(sql).await;
        done.map(|_| ()).map_err(|error| store_error(&error))
    }

    async fn answer(&mut self, query: Query, now: TimestampMs) -> Result<Rows, StoreError> {
        let mut rows = Rows::default();
        match query {
            Query::Execution(key) => self.execution(&mut rows, key).await?,
            Query::Executions(list) => self.list(&mut rows, &list).await?,
            Query::Flow(flow) => {
                self.flow(&mut rows, flow).await?;
                rows.counts = self.member_counts(flow).await?;
            }
            Query::Flows(list) => self.list_flows(&mut rows, &list).await?,
            Query::Count(list) => rows.count = self.count(&list).await?,
            Query::UnfinishedMembers { flow, limit } => {
                self.unfinished(&mut rows, flow, limit).await?;
            }
            Query::Payloads(keys) => {
                for key in keys {
                    rows.blobs.extend(self.bytes(key, "payload").await?);
                }
            }
            Query::Results { keys, bytes } => self.results(&mut rows, &keys, bytes).await?,
            Query::Events { after, limit } => {
                rows.log = Some(self.log().await?);
                rows.events = self.events(&after, limit).await?;
            }
            Query::History { execution, after_version, limit } => {
                rows.events = self.history(execution, after_version, limit).await?;
            }
            Query::Counts { namespace } => rows.counts = self.counts(namespace.as_ref()).await?,
            Query::Lanes => self.lanes(&mut rows).await?,
            Query::Records { keys, scans } => rows.records = self.records(&keys, &scans).await?,
            Query::Log => rows.log = Some(self.log().await?),
            Query::NextDue(scan) => (rows.next_due, rows.now) = self.next_due(scan, now).await?,
            Query::Timers { after, limit } => rows.timers = self.timers(after, limit).await?,
        }
        Ok(rows)
    }

    async fn execution(&mut self, rows: &mut Rows, key: ExecutionKey) -> Result<(), StoreError> {
        let Some(row) = self.one(rows, key).await? else {
            return Ok(());
        };
        let mut words = Words::default();
        let sql = format!(
            "SELECT {ATTEMPT} FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2 \
             ORDER BY attempt_index"
        );
        for cells in self.fetch(keyed(&sql, key.partition, key.id)).await? {
            let attempt = rows.attempt(&Column(&cells), &mut words, ATTEMPT, key)?;
            rows.attempts.push(attempt);
        }
        let sql = format!("SELECT {LANE} FROM ff_lane WHERE lane_id = $1");
        for cells in self.fetch(sqlx::query(&sql).bind(&*row.lane)).await? {
            let lane = rows.lane(&Column(&cells), &mut words, LANE)?;
            rows.lanes.push(lane);
        }
        if let Some(flow) = row.flow_id {
            let sql = format!(
                "SELECT {FLOW} FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2"
            );
            for cells in self.fetch(keyed(&sql, key.partition, flow)).await? {
                let flow = rows.flow(&Column(&cells), &mut words, FLOW)?;
                rows.flows.push(flow);
            }
        }
        rows.executions = vec![row];
        Ok(())
    }

    async fn one(
        &mut self,
        rows: &mut Rows,
        key: ExecutionKey,
    ) -> Result<Option<ExecutionRow>, StoreError> {
        let sql = format!(
            "SELECT {EXECUTION} FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2"
        );
        Ok(executions(rows, &self.fetch(keyed(&sql, key.partition, key.id)).await?)?.pop())
    }

    /// A prefix of these executions, as long as their results fit. Their sizes are known without
    /// reading them.
    async fn results(
        &mut self,
        rows: &mut Rows,
        keys: &[ExecutionKey],
        bytes: usize,
    ) -> Result<(), StoreError> {
        let sql = format!(
            "SELECT {EXECUTION} FROM ( \
               SELECT c.*, u.place, row_number() OVER (ORDER BY u.place) AS found, \
                 sum(coalesce(octet_length(c.result), 0)) OVER (ORDER BY u.place) AS total \
               FROM unnest($1::int2[], $2::uuid[]) WITH ORDINALITY AS u(home, id, place) \
               JOIN ff_exec_core AS c ON c.partition_key = u.home AND c.execution_id = u.id \
             ) AS r WHERE found = 1 OR total <= $3 ORDER BY place"
        );
        let homes: Vec<i16> = keys.iter().map(|key| narrow(key.partition)).collect();
        let ids: Vec<Uuid> = keys.iter().map(|key| key.id).collect();
        let query = sqlx::query(&sql).bind(homes).bind(ids).bind(whole(bytes));
        rows.executions = executions(rows, &self.fetch(query).await?)?;
        rows.blobs.extend(rows.executions.iter().filter_map(|row| match &row.result {
            Blob::Here(bytes) => Some((row.key, bytes.clone())),
            Blob::Absent | Blob::Apart => None,
        }));
        Ok(())
    }

    async fn list(&mut self, rows: &mut Rows, list: &ListQuery) -> Result<(), StoreError> {
        let sql = list.page(DIALECT, EXECUTION);
        let found = self.fetch(bind(sqlx::query(&sql.text), &sql.values)).await?;
        rows.executions = executions(rows, &found)?;
        Ok(())
    }

    async fn count(&mut self, list: &ListQuery) -> Result<u64, StoreError> {
        let sql = list.count(DIALECT);
        let found = self.fetch(bind(sqlx::query(&sql.text), &sql.values)).await?;
        let count = found.first().map_or(Ok(None), |cells| Column(cells).int(0))?;
        Ok(u64::try_from(count.unwrap_or(0)).unwrap_or(0))
    }

    async fn unfinished(
        &mut self,
        rows: &mut Rows,
        flow: FlowKey,
        limit: usize,
    ) -> Result<(), StoreError> {
        let sql = format!(
            "SELECT {EXECUTION} FROM ff_exec_core WHERE partition_key = $1 AND flow_id = $2 \
             AND lifecycle_phase NOT IN ('terminal', 'cancelled') \
             AND blocking_reason <> 'paused_by_flow_cancel' ORDER BY execution_id LIMIT $3"
        );
        let query = keyed(&sql, flow.partition, flow.id).bind(whole(limit));
        let found = self.fetch(query).await?;
        rows.executions = executions(rows, &found)?;
        Ok(())
    }

    async fn bytes(
        &mut self,
        key: ExecutionKey,
        part: &str,
    ) -> Result<Option<(ExecutionKey, Arc<[u8]>)>, StoreError> {
        let sql = format!(
            "SELECT {part} FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2"
        );
        let found = self.fetch(keyed(&sql, key.partition, key.id)).await?;
        let Some(cells) = found.first() else { return Ok(None) };
        Ok(Column(cells).blob(0)?.map(|bytes| (key, bytes.into())))
    }

    /// The next events of each shard.
    async fn events(&mut self, after: &[u64], limit: usize) -> Result<Vec<EventRow>, StoreError> {
        let shards: Vec<i16> = (0..after.len()).map(|shard| narrow(shard as u16)).collect();
        let after: Vec<i64> =
            after.iter().map(|seq| i64::try_from(*seq).unwrap_or(i64::MAX)).collect();
        // Below the floor only the histories of living executions remain, with holes between.
        let sql = format!(
            "SELECT {} FROM unnest($1::int2[], $2::int8[]) AS u(shard, seen) \
             JOIN ff_event_shard AS s ON s.shard = u.shard, LATERAL ( \
               SELECT * FROM ff_event AS e WHERE e.shard = u.shard AND e.seq >= u.seen \
               AND (e.seq >= s.floor OR e.seq = u.seen) ORDER BY e.seq LIMIT $3 + 1) AS e \
             ORDER BY e.shard, e.seq",
            of_table("e", EVENT)
        );
        events(&self.fetch(sqlx::query(&sql).bind(shards).bind(after).bind(whole(limit))).await?)
    }

    async fn history(
        &mut self,
        execution: ExecutionKey,
        after_version: u64,
        limit: usize,
    ) -> Result<Vec<EventRow>, StoreError> {
        let sql = format!(
            "SELECT {EVENT} FROM ff_event WHERE partition_key = $1 AND execution_id = $2 \
             AND version > $3 ORDER BY version LIMIT $4"
        );
        let after = i64::try_from(after_version).unwrap_or(i64::MAX);
        let query = keyed(&sql, execution.partition, execution.id).bind(after).bind(whole(limit));
        events(&self.fetch(query).await?)
    }

    async fn counts(&mut self, namespace: Option<&Arc<str>>) -> Result<Vec<CountRow>, StoreError> {
        let sql = "SELECT namespace, lane_id, public_state, count(*) FROM ff_exec_core \
                   WHERE $1::text IS NULL OR namespace = $1 GROUP BY 1, 2, 3";
        let found = self.fetch(sqlx::query(sql).bind(namespace.map(|name| &**name))).await?;
        let count = |cells: &PgRow| -> Result<CountRow, StoreError> {
            let cells = Column(cells);
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

    async fn lanes(&mut self, rows: &mut Rows) -> Result<(), StoreError> {
        let sql = format!("SELECT {LANE} FROM ff_lane ORDER BY lane_id COLLATE \"C\"");
        let mut words = Words::default();
        for cells in &self.fetch(sqlx::query(&sql)).await? {
            let lane = rows.lane(&Column(cells), &mut words, LANE)?;
            rows.lanes.push(lane);
        }
        Ok(())
    }

    async fn log(&mut self) -> Result<LogBounds, StoreError> {
        let sql = "SELECT floor, head, floor_mark FROM ff_event_shard ORDER BY shard";
        let found = self.fetch(sqlx::query(sql)).await?;
        let bounds = |cells: &PgRow| -> Result<ShardBounds, StoreError> {
            let mut words = Words::default();
            let column = Column(cells);
            let mut reader = Reader::new(&column, &mut words);
            let (floor, head) = (reader.number()?, reader.number()?);
            Ok(ShardBounds { floor, head, floor_mark: reader.number()? })
        };
        let shards = found.iter().map(bounds).collect::<Result<_, _>>()?;
        let Identity { history_id, secret, .. } = self.identity;
        Ok(LogBounds { history_id, secret, shards })
    }

    /// When something is due, and what time it is by the database's clock: an engine that writes
    /// nothing would not hear of it otherwise.
    async fn next_due(
        &mut self,
        scan: Option<RetentionScan>,
        now: TimestampMs,
    ) -> Result<(Option<TimestampMs>, TimestampMs), StoreError> {
        let sql = format!(
            "SELECT (SELECT due_at_ms FROM ff_timer ORDER BY due_at_ms LIMIT 1), \
                   (SELECT true FROM ff_exec_core AS e WHERE {UNANNOUNCED} \
                    ORDER BY e.execution_id LIMIT 1), \
                   (SELECT min(e.at_ms) FROM ff_event_shard AS s, LATERAL ( \
                     SELECT e.at_ms FROM ff_event AS e \
                     WHERE e.shard = s.shard AND e.seq >= s.floor ORDER BY e.seq LIMIT 1) AS e), \
                   (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        );
        let found = self.fetch(sqlx::query(&sql)).await?;
        let Some(cells) = found.first() else { return Ok((None, now)) };
        let cells = Column(cells);
        let clock = TimestampMs(cells.int(3)?.unwrap_or_default());
        let timer = cells.int(0)?.map(TimestampMs);
        let unannounced = (cells.int(1)? == Some(1)).then_some(now);
        let retired = match (scan, cells.int(2)?) {
            (Some(scan), Some(oldest)) => {
                let many = match scan.max_finished {
                    Some(keep) => self.too_many(keep).await?,
                    None => false,
                };
                let old = scan.max_age_ms.map(|age| TimestampMs(oldest).after_ms(age));
                if many { Some(now) } else { old }
            }
            _ => None,
        };
        Ok((timer.into_iter().chain(unannounced).chain(retired).min(), clock))
    }

    async fn timers(
        &mut self,
        after: Option<TimerKey>,
        limit: usize,
    ) -> Result<Vec<TimerRow>, StoreError> {
        let sql = "SELECT due_at_ms, kind, subject, members FROM ff_timer \
                   WHERE (due_at_ms, kind, subject) > ($1, $2, $3) \
                   ORDER BY due_at_ms, kind, subject LIMIT $4";
        let query = sqlx::query(sql)
            .bind(after.map_or(i64::MIN, |key| key.due_at.0))
            .bind(after.map_or("", |key| key.kind.word()))
            .bind(after.map_or(Uuid::nil(), |key| key.subject))
            .bind(whole(limit));
        let mut words = Words::default();
        let found = self.fetch(query).await?;
        found.iter().map(|cells| Reader::new(&Column(cells), &mut words).timer()).collect()
    }

    /// Whether the oldest event lies before the newest `keep` endings.
    async fn too_many(&mut self, keep: u64) -> Result<bool, StoreError> {
        let Some(horizon) = finish_horizon(self.connection, keep).await? else {
            return Ok(false);
        };
        let Some((shard, seq)) = oldest_shard(self.connection).await? else { return Ok(false) };
        let sql = "SELECT at_ms FROM ff_event WHERE shard = $1 AND seq = $2";
        let found = self.fetch(sqlx::query(sql).bind(shard).bind(seq)).await?;
        let at = found.first().map_or(Ok(None), |cells| Column(cells).int(0))?;
        Ok(at.is_some_and(|at| (at, shard, seq) <= horizon))
    }

    pub(crate) async fn fetch(&mut self, query: Prepared<'_>) -> Result<Vec<PgRow>, StoreError> {
        let query = query.persistent(self.keeps);
        query.fetch_all(&mut *self.connection).await.map_err(|error| store_error(&error))
    }
}

fn keyed(sql: &str, partition: u16, id: Uuid) -> Prepared<'_> {
    sqlx::query(sql).bind(narrow(partition)).bind(id)
}

fn executions(rows: &mut Rows, found: &[PgRow]) -> Result<Vec<ExecutionRow>, StoreError> {
    let mut words = Words::default();
    found.iter().map(|cells| rows.execution(&Column(cells), &mut words, EXECUTION)).collect()
}

fn events(found: &[PgRow]) -> Result<Vec<EventRow>, StoreError> {
    let mut words = Words::default();
    found.iter().map(|cells| damage::event(&Column(cells), &mut words, EVENT)).collect()
}
