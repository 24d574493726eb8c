//! Writes what a batch decided, inside its transaction.

use ff_core::rows::spelling::Spelling;
use ff_core::rows::{
    AttemptRow, Blob, Endings, EventRow, ExecutionRow, FlowRow, IdempotencyRow, LaneRow, Rewritten,
    TimerRow,
};
use ff_core::store::{Change, LogFloor, Write};
use ff_core::types::{ExecutionKey, TimestampMs};
use rusqlite::{Connection, Result, params};

use crate::bound::{Bound, Cell};
use crate::cells::{
    MOVE_EXECUTIONS, Moved, REWRITE_ATTEMPT, REWRITE_EXECUTION, Statements, UPDATE_FLOW,
    attempt_cells, detail_cells, event_cells, flow_cells, moved_cells, new_cells,
};
use crate::load::{Place, Places};
use crate::order;

/// Bytes up to this length travel with their row.
const INLINE_BYTES: usize = 512;

/// Where the log stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    pub head: i64,
    pub floor: i64,
}

pub(crate) struct Writing<'c> {
    pub connection: &'c Connection,
    pub places: &'c mut Places,
    pub log: &'c mut Log,
    pub statements: &'c Statements,
}

impl Writing<'_> {
    pub fn write(&mut self, change: &Change) -> Result<()> {
        // Events first: their numbers go into the executions' rows.
        self.insert_events(&change.events)?;
        self.write_executions(change)?;
        self.write_attempts(&change.attempts)?;
        self.write_timers(&change.timers)?;
        self.write_idempotency(&change.idempotency)?;
        self.write_lanes(&change.lanes)?;
        self.write_flows(change)?;
        self.write_records(&change.records)?;
        if let Some(raised) = change.log_floor {
            self.raise_floor(raised)?;
        }
        Ok(())
    }

    fn insert_events(&mut self, events: &[EventRow]) -> Result<()> {
        let mut cells = Vec::with_capacity(events.len() * self.statements.event.width);
        for row in events {
            self.log.head += 1;
            let previous = row.execution.map_or(0, |key| {
                let place = self.places.entry(key.id).or_default();
                std::mem::replace(&mut place.last_event, self.log.head)
            });
            cells.extend(event_cells(row, self.log.head, previous));
        }
        self.statements.event.run(self.connection, &cells)
    }

    fn write_executions(&mut self, change: &Change) -> Result<()> {
        let writes = &change.executions;
        for write in writes {
            if let Write::Delete(key) = write {
                self.purge(*key)?;
            }
        }
        self.insert_executions(&order::stored(writes, &change.records))?;
        let mut moved = Vec::new();
        let mut rewritten = Bound::new(self.connection, REWRITE_EXECUTION)?;
        for write in writes {
            match write {
                // A row that was accepted and moved on in one batch has more to say than a new
                // one has.
                Write::Insert(row) if row.version == 1 => {}
                Write::Insert(row) | Write::Update(row) => {
                    let result = self.place(row.key, "result", &row.result)?;
                    let place = self.place_of(row.key)?;
                    moved.push((place.rowid, moved_cells(row, result, place)));
                    if row.rewritten > Rewritten::Nothing {
                        rewritten.run(detail_cells(row, place).into_iter())?;
                    }
                }
                Write::Delete(_) => {}
            }
        }
        moved.sort_unstable_by_key(|(rowid, _)| *rowid);
        self.move_executions(moved.into_iter().map(|(_, cells)| cells))
    }

    /// Rows that are inserted one after the other get numbers one after the other.
    fn insert_executions(&mut self, rows: &[&ExecutionRow]) -> Result<()> {
        let mut cells = Vec::with_capacity(rows.len() * self.statements.execution.width);
        for row in rows {
            let payload = self.place(row.key, "payload", &row.payload)?;
            let last_event = self.places.get(&row.key.id).map_or(0, |place| place.last_event);
            cells.extend(new_cells(row, payload, last_event));
        }
        self.statements.execution.run(self.connection, &cells)?;
        let mut rowid = self.connection.last_insert_rowid();
        for row in rows.iter().rev() {
            self.places.entry(row.key.id).or_default().rowid = rowid;
            rowid -= 1;
        }
        Ok(())
    }

    /// One statement moves rows that stand one behind the other and move alike.
    fn move_executions<'r>(&self, rows: impl Iterator<Item = Moved<'r>>) -> Result<()> {
        let mut statement = Bound::new(self.connection, MOVE_EXECUTIONS)?;
        let mut waiting: Option<Moved<'_>> = None;
        for row in rows {
            if let Some(before) = &mut waiting
                && let Some(step) = follows(before, &row)
            {
                (before[1], before[15]) = (row[1], Cell::Int(step));
            } else if let Some(before) = waiting.replace(row) {
                statement.run(before.into_iter())?;
            }
        }
        match waiting {
            Some(last) => statement.run(last.into_iter()),
            None => Ok(()),
        }
    }

    /// Where a row is that must be there.
    fn place_of(&mut self, key: ExecutionKey) -> Result<Place> {
        let place = self.places.entry(key.id).or_default();
        if place.rowid == 0 {
            let sql =
                "SELECT rowid FROM ff_exec_core WHERE partition_key = 0 AND execution_id = ?1";
            let mut find = self.connection.prepare_cached(sql)?;
            place.rowid = find.query_row([key.id.as_bytes()], |row| row.get(0))?;
        }
        Ok(*place)
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
                    "INSERT OR REPLACE INTO ff_blob (execution_id, part, bytes) \
                     VALUES (?1, ?2, ?3)",
                    params![key.id.as_bytes(), part, &bytes[..]],
                )?;
                Ok([Cell::Null, Cell::Int(1)])
            }
        }
    }

    fn write_attempts(&self, writes: &[Write<AttemptRow>]) -> Result<()> {
        let mut new = Vec::new();
        let mut update = Bound::new(self.connection, REWRITE_ATTEMPT)?;
        for write in writes {
            match write {
                Write::Insert(row) => new.extend(attempt_cells(row)),
                Write::Update(row) => update.run(attempt_cells(row).into_iter())?,
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
                 paused_at_ms, limited) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            );
            self.run(
                &sql,
                params![
                    &*row.lane,
                    row.state.word(),
                    row.paused_reason.as_deref(),
                    row.paused_by.as_deref(),
                    ms(row.paused_at),
                    row.limited
                ],
            )?;
        }
        Ok(())
    }

    fn write_flows(&self, change: &Change) -> Result<()> {
        if change.flows.is_empty() {
            return Ok(());
        }
        let mut update = Bound::new(self.connection, UPDATE_FLOW)?;
        for write in &change.flows {
            match write {
                Write::Insert(row) => {
                    self.insert_flow(row)?;
                    if row.ended != Endings::default() {
                        update.run(flow_cells(row).into_iter())?;
                    }
                }
                Write::Update(row) => update.run(flow_cells(row).into_iter())?,
                Write::Delete(key) => self.run(
                    "DELETE FROM ff_flow_core WHERE partition_key = 0 AND flow_id = ?1",
                    params![key.id.as_bytes()],
                )?,
            }
        }
        Ok(())
    }

    fn insert_flow(&self, row: &FlowRow) -> Result<()> {
        self.run(
            "INSERT INTO ff_flow_core (flow_id, namespace, flow_kind, graph_revision, \
             public_flow_state, created_at_ms, terminal_at_ms, node_count, edge_count, raw_fields) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                row.key.id.as_bytes(),
                &*row.namespace,
                &*row.kind,
                row.graph_revision,
                row.state.word(),
                row.created_at.0,
                ms(row.terminal_at),
                row.nodes,
                row.edges,
                &*row.raw_fields
            ],
        )
    }

    /// Forgets an execution and everything that hangs on it, its chain of events first.
    fn purge(&mut self, key: ExecutionKey) -> Result<()> {
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
        self.purge_records(key)?;
        // Another row may take the key in this very transaction.
        self.places.entry(key.id).or_default().rowid = 0;
        self.run("DELETE FROM ff_exec_core WHERE partition_key = 0 AND execution_id = ?1", id)
    }

    fn raise_floor(&mut self, raised: LogFloor) -> Result<()> {
        let floor = i64::try_from(raised.floor).unwrap_or(i64::MAX);
        if floor <= self.log.floor {
            return Ok(());
        }
        self.run(
            "DELETE FROM ff_event WHERE seq >= ?1 AND seq < ?2 AND execution_id IS NULL",
            params![self.log.floor, floor],
        )?;
        let set = "UPDATE ff_meta SET value = ?2 WHERE name = ?1";
        self.run(set, params!["log_floor", floor])?;
        self.run(set, params!["log_floor_mark", raised.mark])?;
        self.log.floor = floor;
        Ok(())
    }

    fn run(&self, sql: &str, params: impl rusqlite::Params) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute(params).map(|_| ())
    }
}

/// How many events lie between the last events of one row and the next, if this row stands right
/// behind those before and moves as they do.
fn follows(before: &Moved<'_>, row: &Moved<'_>) -> Option<i64> {
    let [Cell::Int(first), Cell::Int(last), .., Cell::Int(event), Cell::Int(step)] = *before else {
        return None;
    };
    let [Cell::Int(this), .., Cell::Int(this_event), _] = *row else { return None };
    let step = if first == last { this_event - event } else { step };
    let next = this == last + 1 && this_event == event + (this - first) * step;
    (next && before[2..14] == row[2..14]).then_some(step)
}

fn ms(at: Option<TimestampMs>) -> Option<i64> {
    at.map(|at| at.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row with this number, whose last event is this one, in this version.
    fn moved(rowid: i64, event: i64, version: i64) -> Moved<'static> {
        let mut cells = [Cell::Null; 16];
        (cells[0], cells[1], cells[13]) = (Cell::Int(rowid), Cell::Int(rowid), Cell::Int(version));
        (cells[14], cells[15]) = (Cell::Int(event), Cell::Int(0));
        cells
    }

    #[test]
    fn rows_move_together_whose_events_stand_equally_far_apart() {
        let first = moved(7, 100, 2);
        assert_eq!(follows(&first, &moved(8, 101, 2)), Some(1));
        assert_eq!(follows(&first, &moved(8, 103, 2)), Some(3));
        assert_eq!(follows(&first, &moved(8, 90, 2)), Some(-10));
        assert_eq!(follows(&first, &moved(9, 101, 2)), None, "one stands between");
        assert_eq!(follows(&first, &moved(8, 101, 3)), None, "it moves otherwise");
        let mut two = first;
        (two[1], two[15]) = (Cell::Int(8), Cell::Int(3));
        assert_eq!(follows(&two, &moved(9, 106, 2)), Some(3));
        assert_eq!(follows(&two, &moved(9, 104, 2)), None);
        assert_eq!(follows(&two, &moved(8, 103, 2)), None);
    }
}
