//! What can go wrong when a database is opened, and how SQLite's errors are understood.

use ff_core::engine_error::StoreError;
use rusqlite::ErrorCode;
use thiserror::Error;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SqliteError {
    #[error("cannot use {uri:?} as a database: {why}")]
    Uri { uri: String, why: String },
    #[error(
        "{0} is in use by another FlowFabric process; one file serves one process, so stop that \
         one first or open another file"
    )]
    InUse(String),
    #[error("there is no database at {0}")]
    Missing(String),
    #[error(
        "the database has schema version {found} and this program needs {known}; \
         `flowfabric migrate` brings it up to date"
    )]
    OlderSchema { found: i64, known: i64 },
    #[error("cannot open the database: {0}")]
    Open(String),
    #[error("{0} is not a database, or it is damaged: {1}")]
    Corrupt(String, String),
    #[error("the database cannot be written: {0}")]
    ReadOnly(String),
    #[error(
        "the database has schema version {found}, this program knows {known}; use a newer program"
    )]
    NewerSchema { found: i64, known: i64 },
    #[error("the tables in the database are not FlowFabric's: {0}")]
    ForeignTables(String),
}

/// A lock that somebody else holds for a moment.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Before the commit was sent, every error means that nothing was written.
pub(crate) fn store_error(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => StoreError::Conflict(error.to_string()),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Retry(error.to_string())
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt(error.to_string())
        }
        Some(ErrorCode::DiskFull) => {
            StoreError::Failed("the disk is full; nothing was written".to_owned())
        }
        _ => StoreError::Failed(error.to_string()),
    }
}

pub(crate) fn read_error(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::PoolClosed => StoreError::Closed,
        other => StoreError::Failed(other.to_string()),
    }
}
