//! Bulk operations as users see them.

use crate::contracts::{BulkFailure, BulkFailurePage, BulkPage, BulkSnapshot, UnreadableRecord};
use crate::engine_error::{EngineError, ValidationKind};
use crate::rows::{BulkFailureRow, BulkRow};

pub fn bulk(row: &BulkRow) -> BulkSnapshot {
    let definition = row.definition.0.args.clone();
    BulkSnapshot {
        bulk_id: row.key.id,
        filter: definition.filter,
        action: definition.action,
        state: row.state.0,
        by: definition.by,
        created_at: row.created_at,
        finished_at: row.finished_at,
        matched: row.matched,
        done: row.done(),
        changed: row.changed,
        skipped: row.skipped,
        failed: row.failed,
    }
}

pub fn bulk_page(
    rows: &[BulkRow],
    next: Option<&BulkRow>,
    unreadable: Vec<UnreadableRecord>,
) -> BulkPage {
    let cursor = |row: &BulkRow| format!("ffb1.{}.{}", row.rank, row.key.id.simple());
    let operations = rows.iter().map(bulk).collect();
    BulkPage { operations, next_cursor: next.map(cursor), unreadable }
}

/// The place behind the last bulk operation of the page before.
pub fn parse_bulk_cursor(text: &str) -> Result<(i64, uuid::Uuid), EngineError> {
    let parse = || {
        let (rank, id) = text.strip_prefix("ffb1.")?.split_once('.')?;
        Some((rank.parse().ok()?, uuid::Uuid::try_parse(id).ok()?))
    };
    parse().ok_or_else(unreadable)
}

pub fn bulk_failures(
    rows: &[BulkFailureRow],
    more: bool,
    failed: u64,
    unreadable: Vec<UnreadableRecord>,
) -> BulkFailurePage {
    let failure = |row: &BulkFailureRow| BulkFailure {
        execution_id: row.execution.execution_id(),
        code: row.code.to_string(),
        reason: row.reason.to_string(),
    };
    BulkFailurePage {
        failures: rows.iter().map(failure).collect(),
        next_cursor: rows.last().filter(|_| more).map(|row| row.key.number.to_string()),
        failed,
        unreadable,
    }
}

/// The number of the last failure of the page before.
pub fn parse_failure_cursor(text: &str) -> Result<u64, EngineError> {
    text.parse().map_err(|_| unreadable())
}

fn unreadable() -> EngineError {
    EngineError::validation(ValidationKind::InvalidCursor, "the page cursor cannot be read")
}
