//! What an operation wants written: a value that can be printed and merged.

use crate::rows::{
    AnyRow, AttemptRow, EventRow, ExecutionRow, FlowRow, IdempotencyRow, LaneRow, Record, Row,
    TimerRow,
};

/// One row to write. An insert of a row that exists is a conflict, never an overwrite.
#[derive(Clone, Debug, PartialEq)]
pub enum Write<R: Row> {
    Insert(R),
    Update(R),
    Delete(R::Key),
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
    pub records: Vec<Write<AnyRow>>,
    /// Appended to the log, in this order.
    pub events: Vec<EventRow>,
    /// Subscriptions cannot start below this place in the log any more.
    pub log_floor: Option<(u16, u64)>,
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
