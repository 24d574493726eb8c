//! Writes what a batch decided, inside its transaction.

use std::sync::Arc;

use ff_core::rows::spelling::Spelling;
use ff_core::rows::{
    AttemptRow, BacklogMemberRow, BacklogRow, Blob, EdgeGroupRow, EventRow, ExecutionRow, FlowRow,
    IdempotencyRow, LaneRow, TimerRow,
};
use ff_core::store::{Change, Write};
use ff_core::types::{ExecutionKey, TimestampMs};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Result, ToSql, params, params_from_iter};
use uuid::Uuid;

use crate::columns::{ATTEMPT, EVENT};
use crate::load::LastEvents;

/// Bytes up to this length travel with their row.
const INLINE_BYTES: usize = 512;

/// How many rows one statement inserts, where there are as many.
const CHUNK: usize = 16;

/// One bound value, borrowed from its row.
enum Cell<'r> {
    Null,
    Int(i64),
    Text(&'r str),
    Bytes(&'r [u8]),
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl<'r> Cell<'r> {
    fn time(at: Option<TimestampMs>) -> Self {
        at.map_or(Self::Null, |at| Self::Int(at.0))
    }

    fn text(text: Option<&'r Arc<str>>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text))
    }

    fn word<T: Spelling>(word: Option<T>) -> Self {
        word.map_or(Self::Null, |word| Self::Text(word.word()))
    }

    fn id(id: Option<&'r Uuid>) -> Self {
        id.map_or(Self::Null, |id| Self::Bytes(id.as_bytes()))
    }
}

const INSERT_EXECUTION: &str = "INSERT INTO ff_exec_core (execution_id, home_partition, flow_id, \
    namespace, lane_id, execution_kind, payload, payload_apart, payload_encoding, \
    creator_identity, idempotency_key, policy, required_capabilities, created_at_ms, priority, \
    tags, attempt_index, lifecycle_phase, ownership_state, eligibility_state, public_state, \
    attempt_state, blocking_reason, not_before_ms, deadline_at_ms, holds_key, version, \
    last_event, raw_fields) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
    ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)";

const UPDATE_EXECUTION: &str = "UPDATE ff_exec_core SET priority = ?2, tags = ?3, \
    attempt_index = ?4, lifecycle_phase = ?5, ownership_state = ?6, eligibility_state = ?7, \
    public_state = ?8, attempt_state = ?9, blocking_reason = ?10, not_before_ms = ?11, \
    deadline_at_ms = ?12, started_at_ms = ?13, terminal_at_ms = ?14, result = ?15, \
    result_apart = ?16, failure_reason = ?17, failure_category = ?18, cancellation_reason = ?19, \
    cancelled_by = ?20, retry_count = ?21, reclaim_count = ?22, holds_key = ?23, \
    lease_epoch = ?24, version = ?25, last_event = ?26, raw_fields = ?27 \
    WHERE partition_key = 0 AND execution_id = ?1";

/// An insert of one row and of a chunk of them.
struct Insert {
    one: String,
    chunk: String,
    width: usize,
}

impl Insert {
    fn new(table: &str, columns: &str) -> Self {
        let width = columns.split(',').count();
        let row = format!("({})", vec!["?"; width].join(", "));
        let insert = format!("INSERT INTO {table} ({columns}) VALUES ");
        let chunk = format!("{insert}{}", vec![row.as_str(); CHUNK].join(", "));
        Self { one: format!("{insert}{row}"), chunk, width }
    }

    /// Inserts rows whose cells stand one after the other.
    fn run(&self, connection: &Connection, cells: &[Cell<'_>]) -> Result<()> {
        for chunk in cells.chunks(self.width * CHUNK) {
            if chunk.len() == self.width * CHUNK {
                connection.prepare_cached(&self.chunk)?.execute(params_from_iter(chunk))?;
                continue;
            }
            let mut one = connection.prepare_cached(&self.one)?;
            for row in chunk.chunks(self.width) {
                one.execute(params_from_iter(row))?;
            }
        }
        Ok(())
    }
}

/// Texts that are put together once.
pub(crate) struct Statements {
    event: Insert,
    attempt: Insert,
}

impl Default for Statements {
    fn default() -> Self {
        Self {
            event: Insert::new("ff_event", &format!("{EVENT}, previous")),
            attempt: Insert::new("ff_attempt", &format!("execution_id, {ATTEMPT}")),
        }
    }
}

/// Where the log stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    pub head: i64,
    pub floor: i64,
}

pub(crate) struct Writing<'c> {
    pub connection: &'c Connection,
    pub last_events: &'c mut LastEvents,
    pub log: &'c mut Log,
    pub statements: &'c Statements,
}

impl Writing<'_> {
    pub fn write(&mut self, change: &Change) -> Result<()> {
        // Events first: their numbers go into the executions' rows.
        self.insert_events(&change.events)?;
        self.write_executions(&change.executions)?;
        self.write_attempts(&change.attempts)?;
        self.write_timers(&change.timers)?;
        self.write_idempotency(&change.idempotency)?;
        self.write_lanes(&change.lanes)?;
        self.write_flows(change)?;
        for key in &change.purges {
            self.purge(*key)?;
        }
        if let Some((_, floor)) = change.log_floor {
            self.raise_floor(i64::try_from(floor).unwrap_or(i64::MAX))?;
        }
        Ok(())
    }

    fn insert_events(&mut self, events: &[EventRow]) -> Result<()> {
        let mut cells = Vec::with_capacity(events.len() * self.statements.event.width);
        for row in events {
            self.log.head += 1;
            let id = row.execution.as_ref().map(|key| &key.id);
            let previous = id.and_then(|id| self.last_events.insert(*id, self.log.head));
            cells.extend([
                Cell::Int(self.log.head),
                Cell::Int(row.at.0),
                Cell::Text(row.event_type.as_str()),
                Cell::Text(&row.namespace),
                Cell::text(row.lane.as_ref()),
                Cell::text(row.kind.as_ref()),
                Cell::id(id),
                row.execution.map_or(Cell::Null, |key| Cell::Int(i64::from(key.partition))),
                Cell::id(row.flow_id.as_ref()),
                Cell::word(row.from),
                Cell::word(row.to),
                Cell::Int(row.version as i64),
                Cell::Int(i64::from(row.attempt_index)),
                Cell::Int(row.lease_epoch as i64),
                Cell::Int(i64::from(row.lease_ended)),
                Cell::text(row.by.as_ref()),
                Cell::text(row.details.as_ref()),
                Cell::Int(previous.unwrap_or(0)),
            ]);
        }
        self.statements.event.run(self.connection, &cells)
    }

    fn write_executions(&self, writes: &[Write<ExecutionRow>]) -> Result<()> {
        // Prepared once for all rows: looking a statement up costs as much as running it.
        let mut insert = self.connection.prepare_cached(INSERT_EXECUTION)?;
        let mut update = self.connection.prepare_cached(UPDATE_EXECUTION)?;
        for write in writes {
            match write {
                Write::Insert(row) => {
                    let payload = self.place(row.key, "payload", &row.payload)?;
                    let last_event = self.last_event(row.key);
                    insert.execute(params_from_iter(new_cells(row, payload, last_event)))?;
                }
                Write::Update(_) => {}
                Write::Delete(key) => self.purge(*key)?,
            }
            // A row that was accepted and moved on in one batch has more to say than a new one.
            if let Write::Insert(row) | Write::Update(row) = write
                && (matches!(write, Write::Update(_)) || row.version > 1)
            {
                let result = self.place(row.key, "result", &row.result)?;
                let last_event = self.last_event(row.key);
                update.execute(params_from_iter(moved_cells(row, result, last_event)))?;
            }
        }
        Ok(())
    }

    /// Small bytes stay in the row; large ones go where they are not rewritten with it.
    fn place<'b>(&self, key: ExecutionKey, part: &str, blob: &'b Blob) -> Result<[Cell<'b>; 2]> {
        match blob {
            Blob::Absent => Ok([Cell::Null, Cell::Int(0)]),
            Blob::Apart => Ok([Cell::Null, Cell::Int(1)]),
            Blob::Here(bytes) if bytes.len() <= INLINE_BYTES => {
                Ok([Cell::Bytes(bytes), Cell::Int(0)])
            }
            Blob::Here(bytes) => {
                self.run(
                    "INSERT OR REPLACE INTO ff_blob (execution_id, part, bytes) VALUES (?1, ?2, ?3)",
                    params![key.id.as_bytes(), part, &bytes[..]],
                )?;
                Ok([Cell::Null, Cell::Int(1)])
            }
        }
    }

    fn write_attempts(&self, writes: &[Write<AttemptRow>]) -> Result<()> {
        let mut new = Vec::new();
        let mut update = self.connection.prepare_cached(
            "UPDATE ff_attempt SET attempt_type = ?3, lease_epoch = ?4, worker_id = ?5, \
             worker_instance_id = ?6, lease_expires_at_ms = ?7, started_at_ms = ?8, \
             terminal_at_ms = ?9, outcome = ?10, failure_reason = ?11, failure_category = ?12, \
             retry_at_ms = ?13, progress_pct = ?14, progress_message = ?15 \
             WHERE partition_key = 0 AND execution_id = ?1 AND attempt_index = ?2",
        )?;
        for write in writes {
            match write {
                Write::Insert(row) => new.extend(attempt_cells(row)),
                Write::Update(row) => {
                    update.execute(params_from_iter(attempt_cells(row)))?;
                }
                Write::Delete(key) => self.run(
                    "DELETE FROM ff_attempt WHERE partition_key = 0 AND execution_id = ?1 \
                     AND attempt_index = ?2",
                    params![key.execution.id.as_bytes(), key.index],
                )?,
            }
        }
        self.statements.attempt.run(self.connection, &new)
    }

    fn write_timers(&self, writes: &[Write<TimerRow>]) -> Result<()> {
        for write in writes {
            match write {
                Write::Insert(row) | Write::Update(row) => self.run(
                    "INSERT OR REPLACE INTO ff_timer (due_at_ms, kind, subject, members) \
                     VALUES (?1, ?2, ?3, ?4)",
                    params![
                        row.key.due_at.0,
                        row.key.kind.word(),
                        row.key.subject.as_bytes(),
                        row.encode_members()
                    ],
                )?,
                Write::Delete(key) => self.run(
                    "DELETE FROM ff_timer WHERE due_at_ms = ?1 AND kind = ?2 AND subject = ?3",
                    params![key.due_at.0, key.kind.word(), key.subject.as_bytes()],
                )?,
            }
        }
        Ok(())
    }

    fn write_idempotency(&self, writes: &[Write<IdempotencyRow>]) -> Result<()> {
        for write in writes {
            let (row, verb) = match write {
                Write::Insert(row) => (row, "INSERT"),
                Write::Update(row) => (row, "INSERT OR REPLACE"),
                Write::Delete(key) => {
                    let sql = "DELETE FROM ff_idempotency \
                               WHERE namespace = ?1 AND idempotency_key = ?2";
                    self.run(sql, params![&*key.namespace, &*key.key])?;
                    continue;
                }
            };
            let sql = format!(
                "{verb} INTO ff_idempotency (namespace, idempotency_key, execution_id, \
                 home_partition, fingerprint, expires_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            );
            self.run(
                &sql,
                params![
                    &*row.key.namespace,
                    &*row.key.key,
                    row.execution.id.as_bytes(),
                    row.execution.partition,
                    row.fingerprint,
                    ms(row.expires_at)
                ],
            )?;
        }
        Ok(())
    }

    fn write_lanes(&self, writes: &[Write<LaneRow>]) -> Result<()> {
        for write in writes {
            let (row, verb) = match write {
                Write::Insert(row) => (row, "INSERT"),
                Write::Update(row) => (row, "INSERT OR REPLACE"),
                Write::Delete(lane) => {
                    self.run("DELETE FROM ff_lane WHERE lane_id = ?1", params![&**lane])?;
                    continue;
                }
            };
            let sql = format!(
                "{verb} INTO ff_lane (lane_id, lane_state, paused_reason, paused_by, \
                 paused_at_ms) VALUES (?1, ?2, ?3, ?4, ?5)"
            );
            self.run(
                &sql,
                params![
                    &*row.lane,
                    row.state.word(),
                    row.paused_reason.as_deref(),
                    row.paused_by.as_deref(),
                    ms(row.paused_at)
                ],
            )?;
        }
        Ok(())
    }

    fn write_flows(&self, change: &Change) -> Result<()> {
        for write in &change.flows {
            match write {
                Write::Insert(row) => self.insert_flow(row)?,
                Write::Update(row) => self.update_flow(row)?,
                Write::Delete(key) => self.run(
                    "DELETE FROM ff_flow_core WHERE partition_key = 0 AND flow_id = ?1",
                    params![key.id.as_bytes()],
                )?,
            }
        }
        for write in &change.edge_groups {
            if let Write::Insert(row) | Write::Update(row) = write {
                self.write_edge_group(row)?;
            }
        }
        for write in &change.backlogs {
            match write {
                Write::Insert(row) | Write::Update(row) => self.insert_backlog(row)?,
                Write::Delete(key) => self.run(
                    "DELETE FROM ff_cancel_backlog WHERE partition_key = 0 AND flow_id = ?1",
                    params![key.id.as_bytes()],
                )?,
            }
        }
        for write in &change.backlog_members {
            let (sql, key) = match write {
                Write::Insert(BacklogMemberRow { key })
                | Write::Update(BacklogMemberRow { key }) => (
                    "INSERT INTO ff_cancel_backlog_member (flow_id, execution_id) VALUES (?1, ?2)",
                    key,
                ),
                Write::Delete(key) => (
                    "DELETE FROM ff_cancel_backlog_member \
                     WHERE partition_key = 0 AND flow_id = ?1 AND execution_id = ?2",
                    key,
                ),
            };
            self.run(sql, params![key.flow.id.as_bytes(), key.execution_id])?;
        }
        Ok(())
    }

    fn insert_flow(&self, row: &FlowRow) -> Result<()> {
        self.run(
            "INSERT INTO ff_flow_core (flow_id, namespace, graph_revision, public_flow_state, \
             created_at_ms, terminal_at_ms, raw_fields) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                row.key.id.as_bytes(),
                &*row.namespace,
                row.graph_revision,
                row.state.word(),
                row.created_at.0,
                ms(row.terminal_at),
                &*row.raw_fields
            ],
        )
    }

    fn update_flow(&self, row: &FlowRow) -> Result<()> {
        self.run(
            "UPDATE ff_flow_core SET graph_revision = ?2, public_flow_state = ?3, \
             terminal_at_ms = ?4, raw_fields = ?5 WHERE partition_key = 0 AND flow_id = ?1",
            params![
                row.key.id.as_bytes(),
                row.graph_revision,
                row.state.word(),
                ms(row.terminal_at),
                &*row.raw_fields
            ],
        )
    }

    fn write_edge_group(&self, row: &EdgeGroupRow) -> Result<()> {
        self.run(
            "UPDATE ff_edge_group SET success_count = ?3, fail_count = ?4, skip_count = ?5, \
             running_count = ?6 \
             WHERE partition_key = 0 AND flow_id = ?1 AND downstream_eid = ?2",
            params![
                row.key.flow.id.as_bytes(),
                row.key.downstream.as_bytes(),
                row.success_count,
                row.fail_count,
                row.skip_count,
                row.running_count
            ],
        )
    }

    fn insert_backlog(&self, row: &BacklogRow) -> Result<()> {
        self.run(
            "INSERT INTO ff_cancel_backlog (flow_id, requested_at_ms, requester, reason, \
             cancellation_policy, status) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                row.key.id.as_bytes(),
                row.requested_at.0,
                &*row.requester,
                &*row.reason,
                &*row.cancellation_policy,
                &*row.status
            ],
        )
    }

    /// Forgets an execution and everything that hangs on it, its chain of events first.
    fn purge(&self, key: ExecutionKey) -> Result<()> {
        let id = params![key.id.as_bytes()];
        self.run(
            "WITH RECURSIVE chain (seq) AS ( \
               SELECT last_event FROM ff_exec_core WHERE partition_key = 0 AND execution_id = ?1 \
               UNION ALL \
               SELECT previous FROM ff_event JOIN chain USING (seq) WHERE previous > 0 \
             ) DELETE FROM ff_event WHERE seq IN chain",
            id,
        )?;
        self.run("DELETE FROM ff_blob WHERE execution_id = ?1", id)?;
        self.run("DELETE FROM ff_attempt WHERE partition_key = 0 AND execution_id = ?1", id)?;
        self.run("DELETE FROM ff_exec_core WHERE partition_key = 0 AND execution_id = ?1", id)
    }

    fn raise_floor(&mut self, floor: i64) -> Result<()> {
        let floor = floor.max(self.log.floor);
        self.run(
            "DELETE FROM ff_event WHERE seq >= ?1 AND seq < ?2 AND execution_id IS NULL",
            params![self.log.floor, floor],
        )?;
        self.run("UPDATE ff_meta SET value = ?1 WHERE name = 'log_floor'", params![floor])?;
        self.log.floor = floor;
        Ok(())
    }

    fn last_event(&self, key: ExecutionKey) -> i64 {
        self.last_events.get(&key.id).copied().unwrap_or(0)
    }

    fn run(&self, sql: &str, params: impl rusqlite::Params) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute(params).map(|_| ())
    }
}

fn ms(at: Option<TimestampMs>) -> Option<i64> {
    at.map(|at| at.0)
}

/// In the order of `execution_id` and the columns of `ATTEMPT`.
fn attempt_cells(row: &AttemptRow) -> [Cell<'_>; 15] {
    [
        Cell::Bytes(row.key.execution.id.as_bytes()),
        Cell::Int(i64::from(row.key.index)),
        Cell::Text(row.attempt_type.word()),
        Cell::Int(row.lease_epoch as i64),
        Cell::text(row.worker_id.as_ref()),
        Cell::text(row.worker_instance_id.as_ref()),
        Cell::time(row.lease_expires_at),
        Cell::time(row.started_at),
        Cell::time(row.ended_at),
        Cell::word(row.outcome),
        Cell::text(row.failure_reason.as_ref()),
        Cell::text(row.failure_category.as_ref()),
        Cell::time(row.retry_at),
        row.progress_percent.map_or(Cell::Null, |percent| Cell::Int(i64::from(percent))),
        Cell::text(row.progress_message.as_ref()),
    ]
}

/// A new execution, in the order of `INSERT_EXECUTION`.
fn new_cells<'r>(
    row: &'r ExecutionRow,
    [payload, payload_apart]: [Cell<'r>; 2],
    last_event: i64,
) -> [Cell<'r>; 29] {
    [
        Cell::Bytes(row.key.id.as_bytes()),
        Cell::Int(i64::from(row.key.partition)),
        Cell::id(row.flow_id.as_ref()),
        Cell::Text(&row.namespace),
        Cell::Text(&row.lane),
        Cell::Text(&row.kind),
        payload,
        payload_apart,
        Cell::text(row.payload_encoding.as_ref()),
        Cell::Text(&row.creator),
        Cell::text(row.idempotency_key.as_ref()),
        Cell::text(row.policy.as_ref()),
        Cell::Text(&row.capability_class),
        Cell::Int(row.created_at.0),
        Cell::Int(i64::from(row.priority)),
        Cell::Text(&row.tags),
        Cell::Int(i64::from(row.attempt_index)),
        Cell::Text(row.phase.word()),
        Cell::Text(row.ownership.word()),
        Cell::Text(row.eligibility.word()),
        Cell::Text(row.public_state.word()),
        Cell::Text(row.attempt_state.word()),
        Cell::Text(row.blocking.word()),
        Cell::time(row.not_before),
        Cell::time(row.deadline_at),
        Cell::Int(i64::from(row.holds_key)),
        Cell::Int(row.version as i64),
        Cell::Int(last_event),
        Cell::Text(&row.raw_fields),
    ]
}

/// What operations move, in the order of `UPDATE_EXECUTION`.
fn moved_cells<'r>(
    row: &'r ExecutionRow,
    [result, result_apart]: [Cell<'r>; 2],
    last_event: i64,
) -> [Cell<'r>; 27] {
    [
        Cell::Bytes(row.key.id.as_bytes()),
        Cell::Int(i64::from(row.priority)),
        Cell::Text(&row.tags),
        Cell::Int(i64::from(row.attempt_index)),
        Cell::Text(row.phase.word()),
        Cell::Text(row.ownership.word()),
        Cell::Text(row.eligibility.word()),
        Cell::Text(row.public_state.word()),
        Cell::Text(row.attempt_state.word()),
        Cell::Text(row.blocking.word()),
        Cell::time(row.not_before),
        Cell::time(row.deadline_at),
        Cell::time(row.started_at),
        Cell::time(row.terminal_at),
        result,
        result_apart,
        Cell::text(row.failure_reason.as_ref()),
        Cell::text(row.failure_category.as_ref()),
        Cell::text(row.cancellation_reason.as_ref()),
        Cell::text(row.cancelled_by.as_ref()),
        Cell::Int(i64::from(row.retry_count)),
        Cell::Int(i64::from(row.reclaim_count)),
        Cell::Int(i64::from(row.holds_key)),
        Cell::Int(row.lease_epoch as i64),
        Cell::Int(row.version as i64),
        Cell::Int(last_event),
        Cell::Text(&row.raw_fields),
    ]
}
