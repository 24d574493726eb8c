//! One engine per database file, whatever the file is called. A second writer would see neither the
//! first one's wake-ups nor its timers, and both would checkpoint.
//!
//! On Linux the lock is on the database file itself (`flock`, which is independent of the `fcntl`
//! locks of SQLite), so neither another name of the file nor removing a lock file gets around it.
//! On other systems the two kinds of locks exclude each other, so a file beside the database is
//! locked there.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::SqliteError;
use crate::config::Location;
use crate::files::Identity;

/// The files that engines of this process have locked. Closing any descriptor of a file drops every
/// `fcntl` lock that the process has on it, those of SQLite's connections among them. So a
/// descriptor stays here after its engine has closed, for the next one or until its file is
/// deleted.
static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

struct Opened {
    identity: Identity,
    file: File,
    locked: bool,
}

fn opened() -> MutexGuard<'static, Vec<Opened>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while the database is open; the operating system releases it when the process dies.
pub(crate) struct FileLock(Option<Identity>);

impl Drop for FileLock {
    fn drop(&mut self) {
        let Some(identity) = self.0 else { return };
        for one in opened().iter_mut().filter(|one| one.locked && one.identity == identity) {
            one.locked = false;
            if let Err(error) = one.file.unlock() {
                tracing::warn!(%error, "the database file could not be unlocked");
            }
        }
    }
}

impl FileLock {
    /// Refuses if the file was replaced between being locked and being opened.
    pub fn verify(&self, location: &Location) -> Result<(), SqliteError> {
        let Location::File(path) = location else { return Ok(()) };
        let target = lock_target(path);
        match Identity::at(&target) {
            Ok(found) if Some(found) == self.0 => Ok(()),
            Ok(_) => Err(SqliteError::Open(format!("{} has just been replaced", path.display()))),
            Err(error) => Err(open_error(&target, &error)),
        }
    }
}

/// Locks the database, which may be created if there is none, and tells where it really is: links
/// are resolved, also those whose target did not exist yet.
pub(crate) fn take(
    location: &Location,
    may_create: bool,
) -> Result<(Location, FileLock), SqliteError> {
    let Location::File(path) = location else {
        return Ok((location.clone(), FileLock(None)));
    };
    let mut opened = opened();
    if !path.exists() {
        if !may_create {
            return Err(SqliteError::Missing(path.display().to_string()));
        }
        create(path).map_err(|error| open_error(path, &error))?;
    }
    let real = path.canonicalize().map_err(|error| open_error(path, &error))?;
    let target = lock_target(&real);
    // A deleted file cannot be opened again, so no lock on it matters any more.
    opened.retain(|one| one.locked || !Identity::is_deleted(&one.file));
    // A file that is known must not be opened again, because that descriptor had to be closed.
    let known = Identity::at(&target).ok();
    let known = known.and_then(|known| opened.iter().position(|one| one.identity == known));
    let index = match known {
        Some(index) => index,
        None => {
            let file = create(&target).map_err(|error| open_error(&target, &error))?;
            let identity = Identity::of(&file).map_err(|error| open_error(&target, &error))?;
            opened.push(Opened { identity, file, locked: false });
            opened.len() - 1
        }
    };
    let one = &mut opened[index];
    if one.locked {
        return Err(SqliteError::InUse(path.display().to_string()));
    }
    match one.file.try_lock() {
        Ok(()) => one.locked = true,
        Err(TryLockError::WouldBlock) => {
            return Err(SqliteError::InUse(path.display().to_string()));
        }
        Err(TryLockError::Error(error)) => {
            return Err(SqliteError::Open(format!("cannot lock {}: {error}", target.display())));
        }
    }
    Ok((Location::File(real), FileLock(Some(one.identity))))
}

fn lock_target(database: &Path) -> PathBuf {
    let mut name = database.to_owned().into_os_string();
    if !cfg!(target_os = "linux") {
        name.push(".lock");
    }
    PathBuf::from(name)
}

/// Opens a file, or creates one that only its owner may read. SQLite gives the files beside the
/// database the same permissions.
fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn open_error(path: &Path, error: &std::io::Error) -> SqliteError {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let told = format!("{}: {error}", path.display());
    match error.kind() {
        PermissionDenied | ReadOnlyFilesystem if path.exists() => SqliteError::ReadOnly(told),
        _ => SqliteError::Open(told),
    }
}
