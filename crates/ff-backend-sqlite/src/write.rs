//! Writes what a batch decided, inside its transaction.

use ff_core::rows::spelling::Spelling;
use ff_core::rows::{
    AttemptRow, BacklogMemberRow, BacklogRow, Blob, EdgeGroupRow, EventRow, ExecutionRow, FlowRow,
    IdempotencyRow, LaneRow, TimerRow,
};
use ff_core::store::{Change, Write};
use ff_core::types::{ExecutionKey, TimestampMs};
use rusqlite::{Connection, Result, params};

use crate::load::LastEvents;

/// Bytes up to this length travel with their row.
const INLINE_BYTES: usize = 512;

/// The columns of an attempt in the order that both statements number them.
macro_rules! attempt_params {
    ($row:ident) => {
        params![
            $row.key.execution.id.as_bytes(),
            $row.key.index,
            $row.attempt_type.word(),
            $row.lease_epoch as i64,
            $row.worker_id.as_deref(),
            $row.worker_instance_id.as_deref(),
            ms($row.lease_expires_at),
            ms($row.started_at),
            ms($row.ended_at),
            $row.outcome.map(Spelling::word),
            $row.failure_reason.as_deref(),
            $row.failure_category.as_deref(),
            ms($row.retry_at),
            $row.progress_percent,
            $row.progress_message.as_deref(),
        ]
    };
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
}

impl Writing<'_> {
    pub fn write(&mut self, change: &Change) -> Result<()> {
        // Events first: their numbers go into the executions' rows.
        for event in &change.events {
            self.event(event)?;
        }
        for write in &change.executions {
            match write {
                Write::Insert(row) => self.insert_execution(row)?,
                Write::Update(row) => self.update_execution(row)?,
                Write::Delete(key) => self.purge(*key)?,
            }
        }
        for write in &change.attempts {
            match write {
                Write::Insert(row) => self.insert_attempt(row)?,
                Write::Update(row) => self.update_attempt(row)?,
                Write::Delete(key) => self.run(
                    "DELETE FROM ff_attempt WHERE partition_key = 0 AND execution_id = ?1 \
                     AND attempt_index = ?2",
                    params![key.execution.id.as_bytes(), key.index],
                )?,
            }
        }
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

    fn event(&mut self, row: &EventRow) -> Result<()> {
        self.log.head += 1;
        let id = row.execution.map(|key| key.id);
        let previous = id.and_then(|id| self.last_events.insert(id, self.log.head));
        self.run(
            "INSERT INTO ff_event (seq, at_ms, event_type, namespace, lane_id, execution_kind, \
             execution_id, home_partition, flow_id, from_state, to_state, version, attempt_index, \
             lease_epoch, lease_ended, by_whom, details, previous) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
             ?18)",
            params![
                self.log.head,
                row.at.0,
                row.event_type.as_str(),
                &*row.namespace,
                row.lane.as_deref(),
                row.kind.as_deref(),
                id.as_ref().map(|id| id.as_bytes()),
                row.execution.map(|key| key.partition),
                row.flow_id.as_ref().map(|id| id.as_bytes()),
                row.from.map(Spelling::word),
                row.to.map(Spelling::word),
                row.version as i64,
                row.attempt_index,
                row.lease_epoch as i64,
                row.lease_ended,
                row.by.as_deref(),
                row.details.as_deref(),
                previous.unwrap_or(0),
            ],
        )
    }

    fn insert_execution(&mut self, row: &ExecutionRow) -> Result<()> {
        let (payload, payload_apart) = self.place(row.key, "payload", &row.payload)?;
        self.run(
            "INSERT INTO ff_exec_core (execution_id, home_partition, flow_id, namespace, lane_id, \
             execution_kind, payload, payload_apart, payload_encoding, creator_identity, \
             idempotency_key, policy, required_capabilities, created_at_ms, priority, tags, \
             attempt_index, lifecycle_phase, ownership_state, eligibility_state, public_state, \
             attempt_state, blocking_reason, not_before_ms, deadline_at_ms, holds_key, version, \
             last_event, raw_fields) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, \
             ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)",
            params![
                row.key.id.as_bytes(),
                row.key.partition,
                row.flow_id.as_ref().map(|id| id.as_bytes()),
                &*row.namespace,
                &*row.lane,
                &*row.kind,
                payload,
                payload_apart,
                row.payload_encoding.as_deref(),
                &*row.creator,
                row.idempotency_key.as_deref(),
                row.policy.as_deref(),
                &*row.capability_class,
                row.created_at.0,
                row.priority,
                &*row.tags,
                row.attempt_index,
                row.phase.word(),
                row.ownership.word(),
                row.eligibility.word(),
                row.public_state.word(),
                row.attempt_state.word(),
                row.blocking.word(),
                ms(row.not_before),
                ms(row.deadline_at),
                row.holds_key,
                row.version as i64,
                self.last_event(row.key),
                &*row.raw_fields,
            ],
        )?;
        // A row that was accepted and moved on in one batch has more to say than a new one.
        if row.version > 1 { self.update_execution(row) } else { Ok(()) }
    }

    fn update_execution(&mut self, row: &ExecutionRow) -> Result<()> {
        let (result, result_apart) = self.place(row.key, "result", &row.result)?;
        self.run(
            "UPDATE ff_exec_core SET priority = ?2, tags = ?3, attempt_index = ?4, \
             lifecycle_phase = ?5, ownership_state = ?6, eligibility_state = ?7, \
             public_state = ?8, attempt_state = ?9, blocking_reason = ?10, not_before_ms = ?11, \
             deadline_at_ms = ?12, started_at_ms = ?13, terminal_at_ms = ?14, result = ?15, \
             result_apart = ?16, failure_reason = ?17, failure_category = ?18, \
             cancellation_reason = ?19, cancelled_by = ?20, retry_count = ?21, \
             reclaim_count = ?22, holds_key = ?23, lease_epoch = ?24, version = ?25, \
             last_event = ?26, raw_fields = ?27 WHERE partition_key = 0 AND execution_id = ?1",
            params![
                row.key.id.as_bytes(),
                row.priority,
                &*row.tags,
                row.attempt_index,
                row.phase.word(),
                row.ownership.word(),
                row.eligibility.word(),
                row.public_state.word(),
                row.attempt_state.word(),
                row.blocking.word(),
                ms(row.not_before),
                ms(row.deadline_at),
                ms(row.started_at),
                ms(row.terminal_at),
                result,
                result_apart,
                row.failure_reason.as_deref(),
                row.failure_category.as_deref(),
                row.cancellation_reason.as_deref(),
                row.cancelled_by.as_deref(),
                row.retry_count,
                row.reclaim_count,
                row.holds_key,
                row.lease_epoch as i64,
                row.version as i64,
                self.last_event(row.key),
                &*row.raw_fields,
            ],
        )
    }

    /// Small bytes stay in the row; large ones go where they are not rewritten with it.
    fn place<'b>(
        &self,
        key: ExecutionKey,
        part: &str,
        blob: &'b Blob,
    ) -> Result<(Option<&'b [u8]>, bool)> {
        match blob {
            Blob::Absent => Ok((None, false)),
            Blob::Apart => Ok((None, true)),
            Blob::Here(bytes) if bytes.len() <= INLINE_BYTES => Ok((Some(bytes), false)),
            Blob::Here(bytes) => {
                self.run(
                    "INSERT OR REPLACE INTO ff_blob (execution_id, part, bytes) VALUES (?1, ?2, ?3)",
                    params![key.id.as_bytes(), part, &bytes[..]],
                )?;
                Ok((None, true))
            }
        }
    }

    fn insert_attempt(&self, row: &AttemptRow) -> Result<()> {
        self.run(
            "INSERT INTO ff_attempt (execution_id, attempt_index, attempt_type, lease_epoch, \
             worker_id, worker_instance_id, lease_expires_at_ms, started_at_ms, terminal_at_ms, \
             outcome, failure_reason, failure_category, retry_at_ms, progress_pct, \
             progress_message) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            attempt_params!(row),
        )
    }

    fn update_attempt(&self, row: &AttemptRow) -> Result<()> {
        self.run(
            "UPDATE ff_attempt SET attempt_type = ?3, lease_epoch = ?4, worker_id = ?5, \
             worker_instance_id = ?6, lease_expires_at_ms = ?7, started_at_ms = ?8, \
             terminal_at_ms = ?9, outcome = ?10, failure_reason = ?11, failure_category = ?12, \
             retry_at_ms = ?13, progress_pct = ?14, progress_message = ?15 \
             WHERE partition_key = 0 AND execution_id = ?1 AND attempt_index = ?2",
            attempt_params!(row),
        )
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
