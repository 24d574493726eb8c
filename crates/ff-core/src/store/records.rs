//! How operations look at records: typed, and under the changes of their batch.

use super::{Scan, World};
use crate::rows::{AnyRow, Record, Row};

impl World {
    /// The record with this key, if there is one and it was asked for.
    pub fn record<R: Record>(&self, key: &R::Key) -> Option<R> {
        self.records.get(&R::erase_key(key)).and_then(decoded)
    }

    /// What a scan finds at this moment, in its order.
    pub fn scan<R: Record>(&self, scan: &Scan) -> Vec<R> {
        self.scan_rows(scan).into_iter().filter_map(decoded).collect()
    }

    /// Whether the scan was asked for, so that what it finds is all there is.
    pub fn has_scanned(&self, scan: &Scan) -> bool {
        self.scans.contains_key(scan)
    }

    /// Whether the scan stopped at its limit, so that there may be more.
    pub fn scan_is_cut(&self, scan: &Scan) -> bool {
        self.scans.get(scan).is_none_or(|scanned| scanned.cut.is_some())
    }

    fn scan_rows(&self, scan: &Scan) -> Vec<&AnyRow> {
        let Some(scanned) = self.scans.get(scan) else { return Vec::new() };
        let stored = scanned.keys.iter().filter_map(|key| self.records.get(key));
        let mut found: Vec<&AnyRow> = stored.filter(|row| scan.covers(row)).collect();
        // Behind the place where the scan stopped nobody knows what else there is.
        let known = |row: &&AnyRow| match &scanned.cut {
            Some(last) => scan.values_of(row) <= *last,
            None => true,
        };
        let written = self.records.changed().filter(|key| key.spec == scan.spec);
        let written = written.filter_map(|key| self.records.get(key));
        let stored = found.len();
        found.extend(written.filter(|row| scan.covers(row)).filter(known));
        if found.len() == stored {
            return found;
        }
        found.sort_by_cached_key(|row| scan.values_of(row));
        found.dedup_by_key(|row| row.key());
        found.truncate(scan.limit);
        found
    }
}

/// A record that nobody can read counts as absent, loudly.
fn decoded<R: Record>(row: &AnyRow) -> Option<R> {
    row.decode().unwrap_or_else(|error| {
        tracing::error!(%error, table = row.spec.table, "a record is passed over");
        None
    })
}
