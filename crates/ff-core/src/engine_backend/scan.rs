//! Lists of records. One that cannot be read is told beside the others and hides none of them.

use crate::contracts::UnreadableRecord;
use crate::engine::Engine;
use crate::engine_error::{EngineError, StoreError};
use crate::rows::{AnyRow, Record, Value};
use crate::store::{Query, Scan};
use crate::types::TimestampMs;

/// What a scan has found.
pub(super) struct Found<R> {
    pub records: Vec<R>,
    pub unreadable: Vec<UnreadableRecord>,
    pub now: TimestampMs,
}

/// As many records as the scan's limit allows, those that cannot be read apart.
pub(super) async fn find<R: Record>(
    engine: &Engine,
    mut scan: Scan,
) -> Result<Found<R>, EngineError> {
    let limit = scan.limit;
    let mut found =
        Found { records: Vec::new(), unreadable: Vec::new(), now: TimestampMs::default() };
    loop {
        scan.limit = limit - found.records.len();
        let query = Query::Records { keys: Vec::new(), scans: vec![scan.clone()] };
        let rows = engine.query(query).await?;
        found.now = rows.now;
        for row in &rows.records {
            match row.decode::<R>() {
                Ok(record) => found.records.extend(record),
                Err(StoreError::Corrupt(why)) => found.unreadable.push(unreadable(row, why)),
                Err(error) => return Err(engine.store_error(error)),
            }
        }
        let last = rows.records.last().filter(|_| rows.records.len() >= scan.limit);
        let Some(last) = last.filter(|_| found.records.len() < limit) else { return Ok(found) };
        scan.after = scan.values_of(last).split_off(scan.prefix.len());
    }
}

fn unreadable(row: &AnyRow, detail: String) -> UnreadableRecord {
    let key = row.values[..row.spec.key].iter().map(|value| match value {
        Value::Null => "?".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => text.to_string(),
        Value::Uuid(id) => id.to_string(),
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
    });
    let key = key.collect::<Vec<_>>().join("/");
    let table = row.spec.table;
    tracing::error!(table, key, detail, "a record cannot be read; lists go on without it");
    UnreadableRecord { table: table.to_owned(), key, detail }
}
