//! Rows that this connection has just written and will soon be asked for again.
//!
//! Most work is completed moments after it was claimed, by the same process and through the same
//! connection. Its rows are kept as they were committed, so that they need not be read and
//! decoded again. SQLite says when anybody else has written; then everything is forgotten.

use std::collections::VecDeque;

use ff_core::rows::{AttemptKey, AttemptRow, Blob, ExecutionRow};
use ff_core::store::{Change, World, Write};
use ff_core::types::ExecutionKey;
use foldhash::HashMap;

use crate::load::{Place, Places};

const MOST_ROWS: usize = 16 * 1024;

#[derive(Default)]
pub(crate) struct Held {
    rows: HashMap<ExecutionKey, HeldRow>,
    /// In the order in which they came, so that the oldest make room.
    order: VecDeque<ExecutionKey>,
    /// What SQLite called the state of the database when these rows were true.
    data_version: i64,
}

struct HeldRow {
    row: ExecutionRow,
    /// Absent: there is no row for the current attempt.
    attempt: Option<AttemptRow>,
    place: Place,
}

impl Held {
    /// Forgets everything if somebody else has written since.
    pub fn check(&mut self, data_version: i64) {
        if self.data_version != data_version {
            self.forget();
            self.data_version = data_version;
        }
    }

    pub fn forget(&mut self) {
        self.rows.clear();
        self.order.clear();
    }

    /// Puts the execution and its current attempt into the world, if they are held.
    pub fn load(&self, key: ExecutionKey, world: &mut World, places: &mut Places) -> bool {
        let Some(held) = self.rows.get(&key) else { return false };
        places.insert(key.id, held.place);
        if let Some(attempt) = &held.attempt {
            world.attempts.load(attempt.clone());
        }
        world.executions.load(held.row.clone());
        true
    }

    /// Takes over what a transaction has committed.
    pub fn learn(&mut self, change: &Change, places: &Places) {
        for write in &change.executions {
            match write {
                Write::Update(row) if !row.is_finished() => self.keep(row, change, places),
                Write::Insert(row) | Write::Update(row) => self.drop_row(&row.key),
                Write::Delete(key) => self.drop_row(key),
            }
        }
        for write in &change.attempts {
            if let Write::Insert(attempt) | Write::Update(attempt) = write
                && let Some(held) = self.rows.get_mut(&attempt.key.execution)
                && held.row.attempt_index == attempt.key.index
            {
                held.attempt = Some(attempt.clone());
            }
        }
    }

    fn keep(&mut self, row: &ExecutionRow, change: &Change, places: &Places) {
        let current = AttemptKey { execution: row.key, index: row.attempt_index };
        let before = self.rows.get(&row.key);
        let attempt = match written_attempt(change, current) {
            Some(written) => written,
            None => match before {
                Some(held) if held.row.attempt_index == row.attempt_index => held.attempt.clone(),
                // Whether there is such an attempt is not known here.
                _ => return self.drop_row(&row.key),
            },
        };
        let Some(place) = places.get(&row.key.id).copied() else { return };
        if before.is_none() {
            self.order.push_back(row.key);
        }
        // Nobody who finds the row here needs its payload.
        let row = ExecutionRow { payload: Blob::Apart, rewritten: false, ..row.clone() };
        self.rows.insert(row.key, HeldRow { row, attempt, place });
        while self.order.len() > MOST_ROWS {
            if let Some(oldest) = self.order.pop_front() {
                self.rows.remove(&oldest);
            }
        }
    }

    fn drop_row(&mut self, key: &ExecutionKey) {
        self.rows.remove(key);
    }
}

/// What the change makes of an attempt, if it speaks of it. Changes are sorted by key.
fn written_attempt(change: &Change, key: AttemptKey) -> Option<Option<AttemptRow>> {
    let key_of = |write: &Write<AttemptRow>| match write {
        Write::Insert(row) | Write::Update(row) => row.key,
        Write::Delete(key) => *key,
    };
    let at = change.attempts.binary_search_by_key(&key, key_of).ok()?;
    Some(match &change.attempts[at] {
        Write::Insert(row) | Write::Update(row) => Some(row.clone()),
        Write::Delete(_) => None,
    })
}
