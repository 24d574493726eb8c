//! Opens the connection that writes: settings, schema, and what the last process left.

use std::sync::Arc;

use rusqlite::{Connection as Sqlite, DatabaseName, ErrorCode, OpenFlags, OptionalExtension};

use crate::config::{BUSY_TIMEOUT, Location, Synchronous};
use crate::error::is_busy;
use crate::files::{Files, warn_of_permissions};
use crate::write::Log;
use crate::{SqliteError, migrate};

/// The write-ahead log is cut back to this size after it has grown for want of a checkpoint.
const LOG_BYTES: u32 = 64 * 1024 * 1024;
/// Each commit walks over the whole cache, so a larger one is not a faster one.
const CACHE_KIB: u32 = 8 * 1024;

pub(crate) struct Opened {
    pub sqlite: Sqlite,
    pub log: Log,
    /// Absent for a database in memory.
    pub files: Option<Arc<Files>>,
}

pub(crate) fn open(
    location: &Location,
    synchronous: Synchronous,
    migrate: bool,
) -> Result<Opened, SqliteError> {
    let base = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let shared = OpenFlags::SQLITE_OPEN_MEMORY | OpenFlags::SQLITE_OPEN_SHARED_CACHE;
    if let Location::File(path) = location {
        warn_of_permissions(path);
    }
    let sqlite = match location {
        Location::File(path) => Sqlite::open_with_flags(path, base),
        Location::Memory(name) => Sqlite::open_with_flags(name, base | shared),
    };
    let sqlite = sqlite.map_err(|error| open_error(location, &error))?;
    // SQLite opens a file that it may not write without a word.
    if sqlite.is_readonly(DatabaseName::Main).unwrap_or(false) {
        return Err(SqliteError::ReadOnly(location.to_string()));
    }
    if !migrate {
        migrate::check(&sqlite)?;
    }
    configure(&sqlite, location, synchronous).map_err(|error| open_error(location, &error))?;
    migrate::apply(&sqlite)?;
    let log = read_log(&sqlite).map_err(|error| open_error(location, &error))?;
    let files = watch(&sqlite, location)?;
    Ok(Opened { sqlite, log, files })
}

fn configure(
    sqlite: &Sqlite,
    location: &Location,
    synchronous: Synchronous,
) -> Result<(), rusqlite::Error> {
    sqlite.busy_timeout(BUSY_TIMEOUT)?;
    sqlite.set_prepared_statement_cache_capacity(128);
    if !location.is_memory() {
        let mode: String = sqlite.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            let why = format!("the journal stays in mode {mode}; write-ahead logging is needed");
            return Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY),
                Some(why),
            ));
        }
    }
    let synchronous = match synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    sqlite.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -{CACHE_KIB}; \
         PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = {LOG_BYTES}; \
         PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY;"
    ))
}

pub(crate) fn read_log(sqlite: &Sqlite) -> Result<Log, rusqlite::Error> {
    let mut floor = sqlite.prepare_cached("SELECT value FROM ff_meta WHERE name = 'log_floor'")?;
    let floor = floor.query_row([], |row| row.get(0)).optional()?.unwrap_or(1);
    let mut last = sqlite.prepare_cached("SELECT max(seq) FROM ff_event")?;
    let last: Option<i64> = last.query_row([], |row| row.get(0))?;
    Ok(Log { head: last.unwrap_or(0).max(floor - 1), floor })
}

/// Checkpoints what the last process left, before anything is written behind it: a flush that
/// failed there would not be noticed by a flush now, and new pages would be lost with the old ones.
fn watch(sqlite: &Sqlite, location: &Location) -> Result<Option<Arc<Files>>, SqliteError> {
    let Location::File(path) = location else { return Ok(None) };
    let failed = |error: &rusqlite::Error| open_error(location, error);
    let checkpoint = sqlite.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    checkpoint.map_err(|error| failed(&error))?;
    let page_bytes = sqlite.query_row("PRAGMA page_size", [], |row| row.get(0));
    let page_bytes = page_bytes.map_err(|error| failed(&error))?;
    let files = Files::watch(path, page_bytes);
    let told = |error| SqliteError::Open(format!("{}: {error}", path.display()));
    Ok(Some(Arc::new(files.map_err(told)?)))
}

fn open_error(location: &Location, error: &rusqlite::Error) -> SqliteError {
    let place = location.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            SqliteError::Corrupt(place, error.to_string())
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            SqliteError::ReadOnly(format!("{place}: {error}"))
        }
        _ if is_busy(error) => SqliteError::InUse(place),
        _ => SqliteError::Open(format!("{place}: {error}")),
    }
}
