//! Rows that cannot be read as what they should be. Reads outside transactions show them as far as
//! they can be read, so that one damaged row does not hide the others.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;

use super::Rows;
use super::cells::{Cells, Reader, Words};
use crate::engine_error::StoreError;
use crate::rows::{AnyRow, AttemptRow, EventRow, ExecutionRow, FlowKey, FlowRow, LaneRow, Spec};
use crate::types::ExecutionKey;

/// What cannot be read of the rows of an answer.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// With what cannot be read of their attempts.
    pub executions: HashMap<ExecutionKey, String>,
    pub flows: HashMap<FlowKey, String>,
    pub lanes: HashMap<Arc<str>, String>,
}

/// These read one result row each; `columns` names its columns in their order. What cannot be read
/// of a row counts as empty and is noted beside it.
impl Rows {
    pub fn execution<C: Cells>(
        &mut self,
        cells: &C,
        words: &mut Words,
        columns: &str,
    ) -> Result<ExecutionRow, StoreError> {
        let (row, damage) = read(cells, words, columns, |reader| reader.execution())?;
        self.damage.executions.extend(damage.map(|damage| (row.key, damage)));
        Ok(row)
    }

    pub fn attempt<C: Cells>(
        &mut self,
        cells: &C,
        words: &mut Words,
        columns: &str,
        key: ExecutionKey,
    ) -> Result<AttemptRow, StoreError> {
        let (row, damage) = read(cells, words, columns, |reader| reader.attempt(key))?;
        if let Some(damage) = damage {
            let told = format!("attempt {}: {damage}", row.key.index);
            let known = self.damage.executions.entry(key).or_default();
            *known = if known.is_empty() { told } else { format!("{known}; {told}") };
        }
        Ok(row)
    }

    pub fn flow<C: Cells>(
        &mut self,
        cells: &C,
        words: &mut Words,
        columns: &str,
    ) -> Result<FlowRow, StoreError> {
        let (row, damage) = read(cells, words, columns, |reader| reader.flow())?;
        self.damage.flows.extend(damage.map(|damage| (row.key, damage)));
        Ok(row)
    }

    pub fn lane<C: Cells>(
        &mut self,
        cells: &C,
        words: &mut Words,
        columns: &str,
    ) -> Result<LaneRow, StoreError> {
        let (row, damage) = read(cells, words, columns, |reader| reader.lane())?;
        self.damage.lanes.extend(damage.map(|damage| (row.lane.clone(), damage)));
        Ok(row)
    }
}

/// An event; what cannot be read of it is among its details, and what happened may be
/// `unreadable`. It keeps its place in the log.
pub fn event<C: Cells>(
    cells: &C,
    words: &mut Words,
    columns: &str,
) -> Result<EventRow, StoreError> {
    let (row, damage) = read(cells, words, columns, |reader| reader.event())?;
    Ok(match damage {
        Some(damage) => row.details(&json!({ "unreadable": damage })),
        None => row,
    })
}

/// A record; a column that cannot be read is empty, so that the record cannot be decoded unless it
/// may be.
pub fn record<C: Cells>(
    cells: &C,
    words: &mut Words,
    spec: &'static Spec,
) -> Result<AnyRow, StoreError> {
    read(cells, words, "", |reader| reader.record(spec)).map(|(row, _)| row)
}

fn read<C: Cells, T>(
    cells: &C,
    words: &mut Words,
    columns: &str,
    read: impl Fn(&mut Reader<'_, C>) -> Result<T, StoreError>,
) -> Result<(T, Option<String>), StoreError> {
    match read(&mut Reader::new(cells, words)) {
        Ok(row) => return Ok((row, None)),
        Err(StoreError::Corrupt(_)) => {}
        Err(error) => return Err(error),
    }
    let mut reader = Reader::new(cells, words);
    reader.damage = Some(Vec::new());
    let row = read(&mut reader)?;
    let damage = reader.damage.unwrap_or_default();
    let told: Vec<_> = damage.iter().map(|why| with_name(why, columns)).collect();
    Ok((row, Some(told.join("; "))))
}

/// The same words with the name of the column instead of its place.
fn with_name(why: &str, columns: &str) -> String {
    let told = why.strip_prefix("column ").and_then(|rest| {
        let (at, rest) = rest.split_once(' ')?;
        let name = columns.split(", ").nth(at.parse().ok()?)?.trim();
        Some(format!("{} {rest}", name.split("::").next().unwrap_or(name)))
    });
    told.unwrap_or_else(|| why.to_owned())
}
