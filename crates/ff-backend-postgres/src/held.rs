//! Rows that this engine has just written and will soon be asked for again.
//!
//! Most work is completed moments after it was claimed, by the same process. Its rows are kept as
//! they were committed, with the transaction that wrote them, so that they need not be locked, read
//! and decoded again. Others may have changed them since; so a decision that rests on a held row
//! counts only if the row is written too, by a statement that finds it as it was left. If it does
//! not, or if nothing is written, the batch is decided again from what is stored.
//!
//! What a claim has found without locking it is written in the same way.
//!
//! An execution that was put down is held too: whoever brings it forward mostly comes soon.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use ff_core::rows::{AttemptKey, AttemptRow, Blob, ExecutionRow, Rewritten};
use ff_core::state::AttemptState;
use ff_core::store::{Change, World, Write};
use ff_core::types::{ExecutionKey, TimestampMs};

const MOST_ROWS: usize = 16 * 1024;

#[derive(Default)]
pub(crate) struct Held(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    rows: HashMap<ExecutionKey, HeldRow>,
    /// In the order in which they came, so that the oldest make room, each with its number: a row
    /// that has come again since is not meant.
    order: VecDeque<(ExecutionKey, u64)>,
    next: u64,
}

struct HeldRow {
    number: u64,
    row: ExecutionRow,
    attempt: AttemptRow,
    writer: Arc<str>,
}

/// The rows of one transaction that it has not locked, each with the transaction that wrote it.
#[derive(Default)]
pub(crate) struct Unlocked {
    /// With their attempts, which the same transaction wrote.
    held: HashMap<ExecutionKey, Arc<str>>,
    /// Whoever is told that there was nothing for him came too early, so these need not be written.
    found: HashMap<ExecutionKey, Arc<str>>,
    /// Attempts that were put down, of held executions.
    put_down: HashMap<ExecutionKey, AttemptRow>,
}

impl Held {
    /// Takes an execution and its current attempt into the world, if they are held. Nobody else
    /// finds them here from then on.
    pub fn take(&self, key: ExecutionKey, world: &mut World, unlocked: &mut Unlocked) -> bool {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).rows.remove(&key);
        let usable =
            |held: &HeldRow| !held.attempt.is_leased() || is_live(&held.attempt, world.now);
        let Some(held) = held.filter(usable) else {
            return false;
        };
        if !held.attempt.is_leased() {
            unlocked.put_down.insert(key, held.attempt.clone());
        }
        world.attempts.load(held.attempt);
        world.executions.load(held.row);
        unlocked.held.insert(key, held.writer);
        true
    }

    /// The attempt that was put down with an execution, if that was last written by this
    /// transaction: nobody writes such an attempt alone.
    pub fn put_down(&self, row: &ExecutionRow, writer: &str) -> Option<AttemptRow> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = rows.rows.get(&row.key)?;
        let same = *held.writer == *writer && held.attempt.key.index == row.attempt_index;
        (same && !held.attempt.is_leased()).then(|| held.attempt.clone())
    }

    /// Whether all of these are here.
    pub fn has_all<'k>(&self, mut keys: impl Iterator<Item = &'k ExecutionKey>) -> bool {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.all(|key| rows.rows.contains_key(key))
    }

    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Rows::default();
    }

    /// Takes over what a transaction has committed.
    pub fn learn(&self, change: &Change, unlocked: &Unlocked, writer: &Arc<str>) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for write in &change.attempts {
            if let Write::Insert(attempt) | Write::Update(attempt) = write {
                rows.rows.remove(&attempt.key.execution);
            }
        }
        for write in &change.executions {
            if let Write::Insert(row) | Write::Update(row) = write
                && let Some(attempt) = going_on(change, unlocked, row)
            {
                rows.keep(row, attempt, writer);
            }
        }
    }
}

impl Rows {
    fn keep(&mut self, row: &ExecutionRow, attempt: &AttemptRow, writer: &Arc<str>) {
        // Nobody who finds the row here needs its payload.
        let rewritten = Rewritten::Nothing;
        let row = ExecutionRow { payload: Blob::Apart, rewritten, ..row.clone() };
        let (attempt, writer) = (attempt.clone(), writer.clone());
        self.next += 1;
        let number = self.next;
        self.order.push_back((row.key, number));
        self.rows.insert(row.key, HeldRow { number, row, attempt, writer });
        while self.order.len() > MOST_ROWS {
            if let Some((oldest, number)) = self.order.pop_front()
                && self.rows.get(&oldest).is_some_and(|held| held.number == number)
            {
                self.rows.remove(&oldest);
            }
        }
    }
}

impl Unlocked {
    /// A row that is found twice is known as it was the first time.
    pub fn find(&mut self, key: ExecutionKey, writer: impl Into<Arc<str>>) {
        self.found.entry(key).or_insert_with(|| writer.into());
    }

    pub fn writer_of(&self, key: &ExecutionKey) -> Option<&str> {
        self.held.get(key).or_else(|| self.found.get(key)).map(|writer| &**writer)
    }

    pub fn writer_of_attempt(&self, key: &ExecutionKey) -> Option<&str> {
        self.held.get(key).map(|writer| &**writer)
    }

    /// Whether every decision that rests on a held row writes it.
    pub fn is_confirmed_by(&self, change: &Change) -> bool {
        let written = change.executions.iter().filter(
            |write| matches!(write, Write::Update(row) if self.held.contains_key(&row.key)),
        );
        written.count() == self.held.len()
    }
}

/// A lease that has ended here may have been renewed elsewhere.
fn is_live(attempt: &AttemptRow, now: TimestampMs) -> bool {
    attempt.lease_expires_at.is_some_and(|expires_at| expires_at > now)
}

/// The attempt that somebody goes on with: leased by this change, or put down by it or before.
/// Changes are sorted by key.
fn going_on<'c>(
    change: &'c Change,
    unlocked: &'c Unlocked,
    row: &ExecutionRow,
) -> Option<&'c AttemptRow> {
    let put_down = row.attempt_state == AttemptState::AttemptInterrupted;
    let key = AttemptKey { execution: row.key, index: row.attempt_index };
    let Ok(at) = change.attempts.binary_search_by_key(&key, Write::key) else {
        return unlocked.put_down.get(&row.key).filter(|attempt| put_down && attempt.key == key);
    };
    match &change.attempts[at] {
        Write::Insert(attempt) | Write::Update(attempt) if put_down || attempt.is_leased() => {
            Some(attempt)
        }
        _ => None,
    }
}
