//! What can go wrong when a database is opened, and how Postgres's errors are understood.

use ff_core::engine_error::StoreError;
use thiserror::Error;

use crate::MigrationError;

#[derive(Debug, Error)]
pub enum PostgresError {
    #[error("cannot use the URL: {0}")]
    Url(String),
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    #[error("PostgreSQL {found} is too old; version {needed} or newer is needed")]
    OldServer { found: i32, needed: i32 },
    #[error(
        "the server runs with {setting} = off, so that acknowledged work could be lost in a crash; \
         turn it on, or open the database with `PostgresOptions::durable = false`"
    )]
    NotDurable { setting: &'static str },
    #[error("{0}")]
    Partitions(String),
    #[error(transparent)]
    Migration(#[from] MigrationError),
}

/// Before the commit was sent, every error means that nothing was written.
pub(crate) fn store_error(error: &sqlx::Error) -> StoreError {
    let sqlx::Error::Database(database) = error else {
        return match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::WorkerCrashed => StoreError::Unavailable(error.to_string()),
            sqlx::Error::PoolClosed => StoreError::Closed,
            other => StoreError::Failed(other.to_string()),
        };
    };
    let code = database.code().unwrap_or_default();
    match &*code {
        UNIQUE_VIOLATION | DIVISION_BY_ZERO => StoreError::Conflict(error.to_string()),
        SERIALIZATION_FAILURE | DEADLOCK_DETECTED | LOCK_NOT_AVAILABLE => {
            StoreError::Retry(error.to_string())
        }
        // Every text is checked for it before; one that was forgotten is still the caller's.
        NUL_IN_TEXT | NUL_IN_JSON => {
            StoreError::Refused("a text contains a character that cannot be stored".to_owned())
        }
        DISK_FULL => StoreError::Failed("the disk is full; nothing was written".to_owned()),
        // The class of connection errors, and the ways in which a server says that it stops.
        away if away.starts_with("08") || away.starts_with("57P") || away == TOO_MANY => {
            StoreError::Unavailable(error.to_string())
        }
        _ => StoreError::Failed(error.to_string()),
    }
}

const UNIQUE_VIOLATION: &str = "23505";
/// How a statement fails that has not found its rows as they were left.
const DIVISION_BY_ZERO: &str = "22012";
const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK_DETECTED: &str = "40P01";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const NUL_IN_TEXT: &str = "22021";
const NUL_IN_JSON: &str = "22P05";
const DISK_FULL: &str = "53100";
const TOO_MANY: &str = "53300";
