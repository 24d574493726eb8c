//! Lists of records. One that cannot be read is told beside the others and hides none of them.

use crate::contracts::{Listed, UnreadableRecord};
use crate::engine::Engine;
use crate::engine_error::{EngineError, StoreError};
use crate::rows::{AnyRow, Record};
use crate::store::{Query, Rows, Scan};
use crate::types::TimestampMs;

/// What a scan has found.
pub(super) struct Found<R> {
    pub records: Vec<R>,
    pub unreadable: Vec<UnreadableRecord>,
    pub now: TimestampMs,
}

/// As many records as the scan's limit allows, those that cannot be read apart.
pub(super) async fn find<R: Record>(engine: &Engine, scan: Scan) -> Result<Found<R>, EngineError> {
    find_visible(engine, scan, |_| true).await
}

/// The same, but of those that cannot be read only the visible ones are named.
pub(super) async fn find_visible<R: Record>(
    engine: &Engine,
    mut scan: Scan,
    is_visible: impl Fn(&AnyRow) -> bool + Send + Sync,
) -> Result<Found<R>, EngineError> {
    let limit = scan.limit;
    let mut found =
        Found { records: Vec::new(), unreadable: Vec::new(), now: TimestampMs::default() };
    loop {
        scan.limit = limit - found.records.len();
        let query = Query::Records { keys: Vec::new(), scans: vec![scan.clone()] };
        let rows = engine.query(query).await?;
        found.now = rows.now;
        found.sort(engine, &rows.records, &is_visible)?;
        let last = rows.records.last().filter(|_| rows.records.len() >= scan.limit);
        let Some(last) = last.filter(|_| found.records.len() < limit) else { return Ok(found) };
        scan.after = scan.values_of(last).split_off(scan.prefix.len());
    }
}

impl<R: Record> Found<R> {
    /// The records of one type among rows.
    pub fn of(engine: &Engine, rows: &Rows) -> Result<Self, EngineError> {
        let mut found = Self { records: Vec::new(), unreadable: Vec::new(), now: rows.now };
        found.sort(engine, &rows.records, &|_| true)?;
        Ok(found)
    }

    fn sort(
        &mut self,
        engine: &Engine,
        rows: &[AnyRow],
        is_visible: &dyn Fn(&AnyRow) -> bool,
    ) -> Result<(), EngineError> {
        for row in rows {
            match row.decode_or_damage::<R>() {
                Ok(record) => self.records.extend(record),
                Err(StoreError::Corrupt(why)) => {
                    let unreadable = unreadable(row, why);
                    self.unreadable.extend(Some(unreadable).filter(|_| is_visible(row)));
                }
                Err(error) => return Err(engine.store_error(error)),
            }
        }
        Ok(())
    }

    /// As a list shows them.
    pub fn list<T>(self, show: impl Fn(&R) -> T) -> Listed<T> {
        Listed { items: self.records.iter().map(show).collect(), unreadable: self.unreadable }
    }
}

fn unreadable(row: &AnyRow, detail: String) -> UnreadableRecord {
    let (table, key) = (row.spec.table, row.key_text());
    tracing::error!(table, key, detail, "a record cannot be read; lists go on without it");
    UnreadableRecord { table: table.to_owned(), key, detail }
}
