//! The rows of one table as an operation sees them: as loaded, under the changes made so far.

use std::collections::hash_map::Entry;

use foldhash::{HashMap, HashMapExt};

use super::change::Write;
use crate::rows::Row;

/// What is known about a key, and what must be written for it.
#[derive(Clone, Debug)]
struct Slot<R> {
    row: Option<R>,
    stored: bool,
    changed: bool,
    /// The stored row was deleted before another took its key.
    replaced: bool,
}

/// Hashed with a random seed per process, because keys are users' input, and cheaply, because an
/// operation looks its rows up many times.
#[derive(Clone, Debug)]
pub struct Table<R: Row> {
    slots: HashMap<R::Key, Slot<R>>,
    changed: Vec<R::Key>,
}

impl<R: Row> Default for Table<R> {
    fn default() -> Self {
        Self { slots: HashMap::new(), changed: Vec::new() }
    }
}

impl<R: Row> Table<R> {
    /// Makes room for rows that are about to come. Rows are large, so growing moves much.
    pub fn reserve(&mut self, rows: usize) {
        self.slots.reserve(rows);
    }

    /// A row as the store has it.
    pub fn load(&mut self, row: R) {
        self.slots.entry(row.key()).or_insert(Slot {
            row: Some(row),
            stored: true,
            changed: false,
            replaced: false,
        });
    }

    /// A row as the store has it at a later moment.
    pub fn reload(&mut self, row: R) {
        self.slots.remove(&row.key());
        self.load(row);
    }

    /// Adds to a row what the store had left out of it.
    pub fn complement(&mut self, key: &R::Key, add: impl FnOnce(&mut R)) {
        if let Some(row) = self.slots.get_mut(key).and_then(|slot| slot.row.as_mut()) {
            add(row);
        }
    }

    pub fn is_loaded(&self, key: &R::Key) -> bool {
        self.slots.contains_key(key)
    }

    pub fn get(&self, key: &R::Key) -> Option<&R> {
        self.slots.get(key).and_then(|slot| slot.row.as_ref())
    }

    /// What was written here, in the order of its first write.
    pub(super) fn changed(&self) -> impl Iterator<Item = &R::Key> {
        self.changed.iter()
    }

    pub fn rows(&self) -> impl Iterator<Item = &R> {
        self.slots.values().filter_map(|slot| slot.row.as_ref())
    }

    pub(super) fn apply(&mut self, write: Write<R>) {
        let (key, row) = match write {
            Write::Insert(row) => {
                let key = row.key();
                debug_assert!(self.get(&key).is_none(), "an insert over a visible row: {key:?}");
                (key, Some(row))
            }
            Write::Update(row) => (row.key(), Some(row)),
            Write::Delete(key) => (key, None),
        };
        match self.slots.entry(key) {
            Entry::Occupied(entry) => {
                if !entry.get().changed {
                    self.changed.push(entry.key().clone());
                }
                let slot = entry.into_mut();
                slot.replaced |= slot.stored && row.is_none();
                (slot.row, slot.changed) = (row, true);
            }
            Entry::Vacant(entry) => {
                self.changed.push(entry.key().clone());
                // Deleting an unseen row assumes that it may be stored; writing one assumes that
                // it is new, and the store's unique key says otherwise if that is wrong.
                let stored = row.is_none();
                entry.insert(Slot { row, stored, changed: true, replaced: stored });
            }
        }
    }

    /// What must be written in the end, in key order so that locks are taken in one order.
    pub(super) fn take_writes(&mut self) -> Vec<Write<R>> {
        let mut keys = std::mem::take(&mut self.changed);
        keys.sort_unstable();
        let mut writes = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(slot) = self.slots.remove(&key) else { continue };
            match (slot.row, slot.stored) {
                (Some(row), true) if slot.replaced => {
                    writes.extend([Write::Delete(key), Write::Insert(row)]);
                }
                (Some(row), true) => writes.push(Write::Update(row)),
                (Some(row), false) => writes.push(Write::Insert(row)),
                (None, true) => writes.push(Write::Delete(key)),
                (None, false) => {}
            }
        }
        writes
    }
}
