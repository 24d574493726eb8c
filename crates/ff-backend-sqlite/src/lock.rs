//! One process per file. A second writer would not corrupt anything by itself, but it would see
//! neither the first one's wake-ups nor its timers, and both would checkpoint.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::PathBuf;

use crate::SqliteError;
use crate::config::Location;

/// Held while the database is open; the operating system gives it back when the process dies.
pub(crate) struct FileLock(#[allow(dead_code)] Option<File>);

pub(crate) fn take(location: &Location) -> Result<FileLock, SqliteError> {
    let Location::File(path) = location else {
        return Ok(FileLock(None));
    };
    // Two names of one file must meet at one lock.
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    let mut name = real.into_os_string();
    name.push(".lock");
    let name = PathBuf::from(name);
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&name);
    let file = open.map_err(|error| SqliteError::Open(format!("{}: {error}", name.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(FileLock(Some(file))),
        Err(TryLockError::WouldBlock) => Err(SqliteError::InUse(path.display().to_string())),
        Err(TryLockError::Error(error)) => {
            Err(SqliteError::Open(format!("cannot lock {}: {error}", name.display())))
        }
    }
}
