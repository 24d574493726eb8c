//! Flows, timers that go and what hangs on executions, of whatever tables, in one statement.

use std::collections::BTreeSet;

use ff_core::engine_error::StoreError;
use ff_core::rows::spelling::Spelling;
use ff_core::rows::{AnyRow, FlowKey, FlowRow, Spec, TimerKey, Value};
use ff_core::store::{Change, Write};

use crate::binding::Bound;
use crate::columns::narrow;
use crate::error::store_error;
use crate::sql::{self, FLOW, FLOW_KEY, Many, TIMER_KEY};
use crate::together::{self, Shape};
use crate::values::{bind_rows, columns};
use crate::write::{Writing, column, deleted, inserted, ms, updated};

/// A part of a statement. Its text follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Other {
    table: Table,
    how: How,
    many: Many,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Table {
    Flows,
    Timers,
    Records(&'static Spec),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum How {
    Insert,
    Update,
    /// All rows get the same values.
    UpdateAlike,
    Delete,
}

type Columns = Vec<(&'static str, &'static str)>;

impl Other {
    /// How many parameters it has.
    pub fn parameters(self) -> usize {
        let (key, rest) = self.columns();
        key.len() + if self.how == How::Delete { 0 } else { rest.len() }
    }

    /// Whether the number of its rows is compared.
    pub fn is_compared(self) -> bool {
        matches!((self.table, self.how), (Table::Records(_), How::Update | How::UpdateAlike))
    }

    /// The text with this as its first parameter.
    pub fn text(self, first: usize) -> String {
        let table = match self.table {
            Table::Flows => "ff_flow_core",
            Table::Timers => "ff_timer",
            Table::Records(spec) => spec.table,
        };
        let (key, rest) = self.columns();
        match self.how {
            How::Insert => sql::insert(first, table, &[&key, &rest], self.many),
            How::Update => sql::update(first, table, &key, &rest, self.many),
            How::UpdateAlike => sql::update_alike(first, table, &key, &rest),
            How::Delete => sql::delete(first, table, &key, self.many),
        }
    }

    /// Those of the key, and the others.
    fn columns(self) -> (Columns, Columns) {
        match self.table {
            Table::Flows => (FLOW_KEY.to_vec(), FLOW.to_vec()),
            Table::Timers => (TIMER_KEY.to_vec(), Vec::new()),
            Table::Records(spec) => {
                (columns(spec.key_columns()), columns(&spec.columns[spec.key..]))
            }
        }
    }
}

/// Parts of one statement, no two of which touch the same row.
#[derive(Default)]
pub(crate) struct Parts {
    pub others: Vec<Other>,
    /// How many rows those must find that are compared.
    pub expected: Vec<i64>,
    pub bound: Bound,
}

impl Parts {
    fn add(&mut self, table: Table, how: How, rows: usize) {
        let many = match table {
            Table::Records(_) => Many::of(rows),
            Table::Flows | Table::Timers => Many::Arrays,
        };
        let other = Other { table, how, many };
        if other.is_compared() {
            self.expected.push(rows as i64);
        }
        self.others.push(other);
    }

    /// What can be written with the rest.
    pub fn put(change: &Change) -> Self {
        let mut put = Self::default();
        put_flows(&mut put, &inserted(&change.flows), &updated(&change.flows));
        of_each_table(&change.records).for_each(|writes| put_records(&mut put, writes));
        // A timer that goes and comes again is put with the others, over itself.
        let (new, changed) = (inserted(&change.timers), updated(&change.timers));
        let kept: BTreeSet<TimerKey> = new.into_iter().chain(changed).map(|row| row.key).collect();
        let mut gone = deleted(&change.timers);
        gone.retain(|key| !kept.contains(key));
        remove_timers(&mut put, &gone);
        put
    }
}

impl Writing<'_> {
    /// Flows and records that go. They make room for others, so they go first.
    pub(crate) async fn remove_hanging(&mut self, change: &Change) -> Result<(), StoreError> {
        let mut gone = Parts::default();
        remove_flows(&mut gone, &deleted(&change.flows));
        of_each_table(&change.records).for_each(|writes| remove_records(&mut gone, writes));
        self.run_parts(gone).await
    }

    async fn run_parts(&mut self, parts: Parts) -> Result<(), StoreError> {
        if parts.others.is_empty() {
            return Ok(());
        }
        let text = self.writes.texts.get((Shape::default(), parts.others), together::text);
        let query = sqlx::query_with(&text, parts.bound.finish()?).persistent(self.keeps);
        let done = query.fetch_one(&mut *self.connection).await;
        done.map(|_| ()).map_err(|error| store_error(&error))
    }
}

fn remove_flows(parts: &mut Parts, gone: &[&FlowKey]) {
    if gone.is_empty() {
        return;
    }
    parts.add(Table::Flows, How::Delete, gone.len());
    parts.bound.value(column(gone, |key| narrow(key.partition)));
    parts.bound.value(column(gone, |key| key.id));
}

fn remove_timers(parts: &mut Parts, gone: &[&TimerKey]) {
    if gone.is_empty() {
        return;
    }
    parts.add(Table::Timers, How::Delete, gone.len());
    parts.bound.value(column(gone, |key| key.due_at.0));
    parts.bound.value(column(gone, |key| key.kind.word()));
    parts.bound.value(column(gone, |key| key.subject));
}

fn put_flows(parts: &mut Parts, new: &[&FlowRow], changed: &[&FlowRow]) {
    if !new.is_empty() {
        parts.add(Table::Flows, How::Insert, new.len());
        bind_flows(&mut parts.bound, new);
    }
    if !changed.is_empty() {
        parts.add(Table::Flows, How::Update, changed.len());
        bind_flows(&mut parts.bound, changed);
    }
}

fn bind_flows(bound: &mut Bound, rows: &[&FlowRow]) {
    bound.value(column(rows, |row| narrow(row.key.partition)));
    bound.value(column(rows, |row| row.key.id));
    bound.value(column(rows, |row| &*row.namespace));
    bound.value(column(rows, |row| &*row.kind));
    bound.value(column(rows, |row| row.graph_revision));
    bound.value(column(rows, |row| row.state.word()));
    bound.value(column(rows, |row| row.created_at.0));
    bound.value(column(rows, |row| ms(row.terminal_at)));
    bound.value(column(rows, |row| row.nodes as i64));
    bound.value(column(rows, |row| row.edges as i64));
    bound.value(column(rows, |row| row.ended.completed as i64));
    bound.value(column(rows, |row| row.ended.failed as i64));
    bound.value(column(rows, |row| row.ended.cancelled as i64));
    bound.value(column(rows, |row| row.ended.expired as i64));
    bound.value(column(rows, |row| row.ended.skipped as i64));
    bound.value(column(rows, |row| row.ended.spared as i64));
    bound.value(column(rows, |row| &*row.raw_fields));
}

/// The records of one table that go.
fn remove_records(parts: &mut Parts, writes: &[Write<AnyRow>]) {
    let gone: Vec<&[Value]> = deleted(writes).into_iter().map(|key| &key.values[..]).collect();
    if let Some(first) = writes.first().filter(|_| !gone.is_empty()) {
        let spec = spec_of(first);
        parts.add(Table::Records(spec), How::Delete, gone.len());
        bind_rows(&mut parts.bound, spec.key_columns(), &gone);
    }
}

/// The records of one table that come or change.
fn put_records(parts: &mut Parts, writes: &[Write<AnyRow>]) {
    let Some(spec) = writes.first().map(spec_of) else { return };
    let new: Vec<&[Value]> = inserted(writes).into_iter().map(|row| &row.values[..]).collect();
    if !new.is_empty() {
        parts.add(Table::Records(spec), How::Insert, new.len());
        bind_rows(&mut parts.bound, spec.columns, &new);
    }
    let changed: Vec<&[Value]> = updated(writes).into_iter().map(|row| &row.values[..]).collect();
    if changed.is_empty() || spec.columns.len() == spec.key {
        return;
    }
    let first = &changed[0][spec.key..];
    // Those behind one execution are mostly told the same.
    if changed.len() > 1 && changed.iter().all(|row| row[spec.key..] == *first) {
        parts.add(Table::Records(spec), How::UpdateAlike, changed.len());
        bind_rows(&mut parts.bound, spec.key_columns(), &changed);
        bind_rows(&mut parts.bound, &spec.columns[spec.key..], &[first]);
    } else {
        parts.add(Table::Records(spec), How::Update, changed.len());
        bind_rows(&mut parts.bound, spec.columns, &changed);
    }
}

fn of_each_table(records: &[Write<AnyRow>]) -> impl Iterator<Item = &[Write<AnyRow>]> {
    records.chunk_by(|one, other| spec_of(one) == spec_of(other))
}

fn spec_of(write: &Write<AnyRow>) -> &'static Spec {
    match write {
        Write::Insert(row) | Write::Update(row) => row.spec,
        Write::Delete(key) => key.spec,
    }
}
