//! What hangs on executions and their flows, of whatever tables, in one statement.

use ff_core::engine_error::StoreError;
use ff_core::rows::spelling::Spelling;
use ff_core::rows::{AnyRow, FlowKey, FlowRow, Spec, Value};
use ff_core::store::Write;
use sqlx::Row as _;

use crate::binding::Bound;
use crate::columns::narrow;
use crate::error::store_error;
use crate::records::{arrays, columns, single};
use crate::sql::{self, FLOW, FLOW_KEY};
use crate::together::Other;
use crate::write::{LEFT, Writing, column, deleted, inserted, ms, updated};

const FLOWS: &str = "ff_flow_core";

/// Parts of one statement, no two of which touch the same row.
#[derive(Default)]
pub(crate) struct Parts {
    texts: Vec<String>,
    /// How many rows each part must find, if it says so.
    expected: Vec<Option<usize>>,
    pub bound: Bound,
}

impl Parts {
    fn add(&mut self, text: String, expected: Option<usize>) {
        self.texts.push(text);
        self.expected.push(expected);
    }

    /// The parts for a statement that has more of them.
    pub fn others(&self) -> Vec<Other> {
        let compared = self.expected.iter().map(Option::is_some);
        self.texts.iter().cloned().zip(compared).collect()
    }

    /// How many rows those parts must find that say so.
    pub fn counts(&self) -> impl Iterator<Item = i64> {
        self.expected.iter().flatten().map(|count| *count as i64)
    }

    /// All of them as one statement that tells how many rows each has found.
    fn text(&self) -> String {
        let parts = self.texts.iter().enumerate();
        let parts: Vec<_> =
            parts.map(|(at, text)| format!("p{at} AS ({text} RETURNING 1)")).collect();
        let counts = (0..self.texts.len()).map(|at| format!("(SELECT count(*) FROM p{at})"));
        let counts: Vec<_> = counts.collect();
        format!("WITH {} SELECT {}", parts.join(", "), counts.join(", "))
    }
}

impl Writing<'_> {
    /// Removes what goes, and returns what is left to be put.
    pub(crate) async fn remove_hanging(
        &mut self,
        flows: &[Write<FlowRow>],
        records: &[Write<AnyRow>],
    ) -> Result<Parts, StoreError> {
        // What goes makes room for another row with its key, so it goes first.
        let (mut gone, mut put) = (Parts::default(), Parts::default());
        remove_flows(&mut gone, &deleted(flows));
        put_flows(&mut put, &inserted(flows), &updated(flows));
        for writes in records.chunk_by(|one, other| spec_of(one) == spec_of(other)) {
            remove_records(&mut gone, writes);
            put_records(&mut put, writes);
        }
        self.run_parts(gone).await?;
        Ok(put)
    }

    async fn run_parts(&mut self, parts: Parts) -> Result<(), StoreError> {
        if parts.texts.is_empty() {
            return Ok(());
        }
        let text = parts.text();
        let query = sqlx::query_with(&text, parts.bound.finish()?).persistent(self.keeps);
        let row = query.fetch_one(&mut *self.connection).await;
        let row = row.map_err(|error| store_error(&error))?;
        for (at, expected) in parts.expected.into_iter().enumerate() {
            let found: i64 = row.try_get(at).map_err(|error| store_error(&error))?;
            if expected.is_some_and(|expected| found != expected as i64) {
                return Err(StoreError::Conflict(LEFT.to_owned()));
            }
        }
        Ok(())
    }
}

fn remove_flows(parts: &mut Parts, gone: &[&FlowKey]) {
    if gone.is_empty() {
        return;
    }
    parts.add(sql::delete(parts.bound.next(), FLOWS, FLOW_KEY), None);
    parts.bound.value(column(gone, |key| narrow(key.partition)));
    parts.bound.value(column(gone, |key| key.id));
}

fn put_flows(parts: &mut Parts, new: &[&FlowRow], changed: &[&FlowRow]) {
    if !new.is_empty() {
        parts.add(sql::insert(parts.bound.next(), FLOWS, &[FLOW_KEY, FLOW]), None);
        bind_flows(&mut parts.bound, new);
    }
    if !changed.is_empty() {
        parts.add(sql::update(parts.bound.next(), FLOWS, FLOW_KEY, &[FLOW]), None);
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
        let key = columns(spec.key_columns());
        parts.add(sql::delete(parts.bound.next(), spec.table, &key), None);
        arrays(&mut parts.bound, spec.key_columns(), &gone);
    }
}

/// The records of one table that come or change.
fn put_records(parts: &mut Parts, writes: &[Write<AnyRow>]) {
    let Some(spec) = writes.first().map(spec_of) else { return };
    let all = columns(spec.columns);
    let (key, rest) = all.split_at(spec.key);
    let new: Vec<&[Value]> = inserted(writes).into_iter().map(|row| &row.values[..]).collect();
    if !new.is_empty() {
        parts.add(sql::insert(parts.bound.next(), spec.table, &[&all]), None);
        arrays(&mut parts.bound, spec.columns, &new);
    }
    let changed: Vec<&[Value]> = updated(writes).into_iter().map(|row| &row.values[..]).collect();
    if !changed.is_empty() && !rest.is_empty() {
        let (first, many) = (parts.bound.next(), changed.len());
        // Those behind one execution are mostly told the same.
        let alike = many > 1 && changed.iter().all(|row| row[spec.key..] == changed[0][spec.key..]);
        let text = match alike {
            true => sql::update_alike(first, spec.table, key, rest),
            false => sql::update(first, spec.table, key, &[rest]),
        };
        parts.add(text, Some(many));
        match alike {
            true => {
                arrays(&mut parts.bound, spec.key_columns(), &changed);
                let rest = spec.columns[spec.key..].iter().zip(&changed[0][spec.key..]);
                rest.for_each(|(column, value)| single(&mut parts.bound, column, value));
            }
            false => arrays(&mut parts.bound, spec.columns, &changed),
        }
    }
}

fn spec_of(write: &Write<AnyRow>) -> &'static Spec {
    match write {
        Write::Insert(row) | Write::Update(row) => row.spec,
        Write::Delete(key) => key.spec,
    }
}
