//! What an operation wants written: a value that can be printed and merged.

use std::ops::Deref;

use foldhash::{HashMap, HashMapExt};

use crate::rows::{
    AnyKey, AnyRow, AttemptRow, EventRow, ExecutionRow, FlowRow, IdempotencyRow, LaneRow, Record,
    Row, TimerRow,
};

/// One row to write. An insert of a row that exists is a conflict, never an overwrite.
#[derive(Clone, Debug, PartialEq)]
pub enum Write<R: Row> {
    Insert(R),
    Update(R),
    Delete(R::Key),
}

impl<R: Row> Write<R> {
    pub fn key(&self) -> R::Key {
        match self {
            Self::Insert(row) | Self::Update(row) => row.key(),
            Self::Delete(key) => key.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// An execution that is deleted is forgotten with its attempts, bytes and events.
    pub executions: Vec<Write<ExecutionRow>>,
    pub attempts: Vec<Write<AttemptRow>>,
    pub flows: Vec<Write<FlowRow>>,
    pub lanes: Vec<Write<LaneRow>>,
    pub timers: Vec<Write<TimerRow>>,
    pub idempotency: Vec<Write<IdempotencyRow>>,
    pub records: Records,
    /// Appended to the log, in this order.
    pub events: Vec<EventRow>,
    /// Subscriptions cannot start below this place in the log any more.
    pub log_floor: Option<LogFloor>,
}

/// Where a shard of the log begins from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogFloor {
    pub shard: u16,
    pub floor: u64,
    /// The mark of the event before it, by which cursors that stand there are known.
    pub mark: u32,
}

/// Writes of records, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Records {
    writes: Vec<Write<AnyRow>>,
    /// Where the last write of each record stands, once there are many: an operation that tells
    /// the thousand behind an execution looks each of them up.
    places: Option<HashMap<AnyKey, usize>>,
}

/// The places say nothing that the writes do not say.
impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        self.writes == other.writes
    }
}

impl Deref for Records {
    type Target = [Write<AnyRow>];

    fn deref(&self) -> &Self::Target {
        &self.writes
    }
}

/// So many records are looked through one by one.
const FEW: usize = 16;

impl Records {
    /// Writes that nobody will look up.
    pub(super) fn of(writes: Vec<Write<AnyRow>>) -> Self {
        Self { writes, places: None }
    }

    pub(super) fn into_writes(self) -> Vec<Write<AnyRow>> {
        self.writes
    }

    /// What was last written for a record.
    pub(crate) fn last_of(&self, key: &AnyKey) -> Option<&Write<AnyRow>> {
        match &self.places {
            Some(places) => places.get(key).map(|at| &self.writes[*at]),
            None => self.writes.iter().rev().find(|write| is_of(write, key)),
        }
    }

    fn push(&mut self, write: Write<AnyRow>) {
        if self.writes.len() == FEW {
            let mut places = HashMap::with_capacity(4 * FEW);
            places.extend(self.writes.iter().map(Write::key).zip(0..));
            self.places = Some(places);
        }
        if let Some(places) = &mut self.places {
            places.insert(write.key(), self.writes.len());
        }
        self.writes.push(write);
    }
}

impl Change {
    pub fn insert(&mut self, row: &impl Record) {
        self.records.push(Write::Insert(row.erase()));
    }

    pub fn update(&mut self, row: &impl Record) {
        self.records.push(Write::Update(row.erase()));
    }

    pub fn delete<R: Record>(&mut self, key: &R::Key) {
        self.records.push(Write::Delete(R::erase_key(key)));
    }
}

/// Without a copy of each key that is passed over.
fn is_of(write: &Write<AnyRow>, key: &AnyKey) -> bool {
    match write {
        Write::Insert(row) | Write::Update(row) => {
            row.spec == key.spec && row.values[..row.spec.key] == key.values[..]
        }
        Write::Delete(gone) => gone == key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{ChildrenKey, ChildrenRow};
    use crate::types::ExecutionKey;

    #[test]
    fn the_last_write_of_a_record_is_found_among_few_and_many() {
        let key = |id: u128| ChildrenKey {
            execution: ExecutionKey { partition: 0, id: uuid::Uuid::from_u128(id) },
        };
        let row = |id, added| ChildrenRow { key: key(id), added, ended: 0, waiting: false };
        let mut change = Change::default();
        for id in 0..4 * FEW as u128 {
            assert!(change.records.last_of(&ChildrenRow::erase_key(&key(id))).is_none());
            change.insert(&row(id, 1));
            change.update(&row(0, id as u64 + 2));
            let first = change.records.last_of(&ChildrenRow::erase_key(&key(0)));
            assert_eq!(first, Some(&Write::Update(row(0, id as u64 + 2).erase())));
        }
        change.delete::<ChildrenRow>(&key(1));
        let gone = ChildrenRow::erase_key(&key(1));
        assert_eq!(change.records.last_of(&gone), Some(&Write::Delete(gone.clone())));
    }
}
