//! Rows that this connection has just written and will soon be asked for again.
//!
//! Most work is completed moments after it was claimed, by the same process and through the same
//! connection. Its rows are kept as they were committed, so that they need not be read and
//! decoded again. SQLite says when anybody else has written; then everything is forgotten.

use std::collections::VecDeque;

use ff_core::rows::{AttemptKey, AttemptRow, Blob, ExecutionRow, FlowRow, Rewritten};
use ff_core::store::{Change, Graphs, World, Write};
use ff_core::types::ExecutionKey;
use foldhash::HashMap;
use uuid::Uuid;

use crate::load::{Place, Places};

const MOST_ROWS: usize = 16 * 1024;
/// Beyond so many all of them are read again.
const MOST_FLOWS: usize = 16 * 1024;

#[derive(Default)]
pub(crate) struct Held {
    rows: HashMap<ExecutionKey, HeldRow>,
    /// In the order in which they came, so that the oldest make room, each with its number: a row
    /// that has come again since is not meant.
    order: VecDeque<(ExecutionKey, u64)>,
    next: u64,
    /// Flows that have not ended.
    flows: HashMap<Uuid, FlowRow>,
    pub graphs: Graphs<Place, ()>,
    /// What SQLite called the state of the database when these rows were true.
    data_version: Option<i64>,
}

struct HeldRow {
    number: u64,
    row: ExecutionRow,
    /// Absent: there is no row for the current attempt.
    attempt: Option<AttemptRow>,
    place: Place,
}

impl Held {
    /// Forgets everything if another connection has written since, and says so.
    pub fn check(&mut self, data_version: i64) -> bool {
        let changed = self.data_version != Some(data_version);
        if changed {
            self.forget();
            self.data_version = Some(data_version);
        }
        changed
    }

    /// Nothing that is known may be relied on, not even that no other connection has written.
    pub fn distrust(&mut self) {
        self.forget();
        self.data_version = None;
    }

    pub fn forget(&mut self) {
        self.rows.clear();
        self.order.clear();
        self.flows.clear();
        self.graphs.forget();
    }

    pub fn flow(&self, id: Uuid) -> Option<&FlowRow> {
        self.flows.get(&id)
    }

    /// Moves the execution and its current attempt into the world, if they are held. What is
    /// written there comes back with `learn`.
    pub fn load(&mut self, key: ExecutionKey, world: &mut World, places: &mut Places) -> bool {
        let Some(held) = self.rows.remove(&key) else { return false };
        places.insert(key.id, held.place);
        if let Some(attempt) = held.attempt {
            world.attempts.load(attempt);
        }
        world.executions.load(held.row);
        true
    }

    /// Takes over what a transaction has committed.
    pub fn learn(&mut self, change: Change, places: &Places) {
        let place = |row: &ExecutionRow| places.get(&row.key.id).copied();
        self.graphs.learn(&change, |row| place(row).filter(|place| place.rowid > 0));
        for write in change.flows {
            match write {
                Write::Insert(row) | Write::Update(row) if !row.state.is_finished() => {
                    self.flows.insert(row.key.id, row);
                }
                Write::Insert(FlowRow { key, .. })
                | Write::Update(FlowRow { key, .. })
                | Write::Delete(key) => drop(self.flows.remove(&key.id)),
            }
        }
        if self.flows.len() > MOST_FLOWS {
            self.flows.clear();
        }
        // Both are sorted by key, so each execution's attempts are the next ones. What is known of
        // an attempt that is written without its execution is no longer true.
        let mut attempts = change.attempts.into_iter().peekable();
        for write in change.executions {
            let row = match write {
                Write::Update(row) if !row.is_finished() => row,
                Write::Insert(ExecutionRow { key, .. })
                | Write::Update(ExecutionRow { key, .. })
                | Write::Delete(key) => {
                    self.rows.remove(&key);
                    continue;
                }
            };
            let current = AttemptKey { execution: row.key, index: row.attempt_index };
            while let Some(other) = attempts.next_if(|write| write.key() < current) {
                self.rows.remove(&other.key().execution);
            }
            match attempts.next_if(|write| write.key() == current) {
                Some(Write::Insert(attempt) | Write::Update(attempt)) => {
                    self.keep(row, Some(attempt), places);
                }
                Some(Write::Delete(_)) => self.keep(row, None, places),
                // Whether there is such an attempt, and what it is, is not known here.
                None => drop(self.rows.remove(&row.key)),
            }
        }
        for other in attempts {
            self.rows.remove(&other.key().execution);
        }
    }

    fn keep(&mut self, row: ExecutionRow, attempt: Option<AttemptRow>, places: &Places) {
        let Some(place) = places.get(&row.key.id).copied() else { return };
        self.next += 1;
        let number = self.next;
        self.order.push_back((row.key, number));
        // Nobody who finds the row here needs its payload.
        let row = ExecutionRow { payload: Blob::Apart, rewritten: Rewritten::Nothing, ..row };
        self.rows.insert(row.key, HeldRow { number, row, attempt, place });
        while self.order.len() > MOST_ROWS {
            if let Some((oldest, number)) = self.order.pop_front()
                && self.rows.get(&oldest).is_some_and(|held| held.number == number)
            {
                self.rows.remove(&oldest);
            }
        }
    }
}
