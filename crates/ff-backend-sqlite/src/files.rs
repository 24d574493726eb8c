//! Whether the files of the database are still the ones that were opened, and whether the disk has
//! flushed what it was told to. SQLite goes on writing into a file that was deleted or moved away.
//!
//! The files are checked before each commit. A caller that comes after a file has gone is in a
//! batch whose check is later still, so it is never told that its write is stored.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ff_core::engine_error::StoreError;

/// The write-ahead log begins with a header, and so does each page in it. Both have the salts of
/// the log's present use at these places: pages from before it was last begun anew have others.
const LOG_HEADER: u64 = 32;
const LOG_SALTS: u64 = 16;
const FRAME_HEADER: u64 = 24;
const FRAME_SALTS: u64 = 8;

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

impl Identity {
    pub fn at(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|found| Self::new(&found))
    }

    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|found| Self::new(&found))
    }

    #[cfg(unix)]
    fn new(found: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self(found.dev(), found.ino())
    }

    /// The nearest thing where files have no number: when the file was created.
    #[cfg(not(unix))]
    fn new(found: &Metadata) -> Self {
        let created = found.created().unwrap_or(std::time::UNIX_EPOCH);
        let since = created.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(since.as_secs(), u64::from(since.subsec_nanos()))
    }

    #[cfg(unix)]
    pub fn is_deleted(file: &File) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        file.metadata().is_ok_and(|found| found.nlink() == 0)
    }

    #[cfg(not(unix))]
    pub fn is_deleted(_: &File) -> bool {
        false
    }
}

/// Why nothing more is written. There is no way back but to open the database again.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A file is not where it was.
    Lost(String),
    /// A flush failed. The kernel may have dropped what it could not write, and a later flush that
    /// succeeds does not say so.
    Flush(String),
}

/// The database and its write-ahead log, while they are open.
pub(crate) struct Files {
    watched: [(PathBuf, Identity); 2],
    /// SQLite has no locks on this file, so a descriptor of our own does no harm.
    log: File,
    page_bytes: u64,
    fault: OnceLock<Fault>,
}

impl Files {
    /// Both files must be there: SQLite makes the log when it reads for the first time.
    pub fn watch(database: &Path, page_bytes: u64) -> io::Result<Self> {
        let log = beside(database, "-wal");
        Ok(Self {
            watched: [
                (database.to_owned(), Identity::at(database)?),
                (log.clone(), Identity::at(&log)?),
            ],
            log: File::open(log)?,
            page_bytes,
            fault: OnceLock::new(),
        })
    }

    pub fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }

    /// Refuses if a fault is known.
    pub fn healthy(&self) -> Result<(), StoreError> {
        match self.fault.get() {
            None => Ok(()),
            Some(Fault::Lost(why) | Fault::Flush(why)) => Err(StoreError::Unavailable(why.clone())),
        }
    }

    /// Looks whether the files are where they were.
    pub fn check(&self) -> Result<(), StoreError> {
        self.healthy()?;
        for (path, identity) in &self.watched {
            let told = path.display();
            match Identity::at(path) {
                Ok(found) if found == *identity => {}
                Ok(_) => self.give_up(Fault::Lost(format!(
                    "{told} was replaced by another file while it was open; nothing more is \
                     written until the process is started again"
                ))),
                Err(error) if is_gone(&error) => self.give_up(Fault::Lost(format!(
                    "{told} was removed or moved away while it was open; nothing more is written \
                     until it is back and the process is started again"
                ))),
                Err(error) => return Err(StoreError::Unavailable(format!("{told}: {error}"))),
            }
        }
        self.healthy()
    }

    /// The first fault stays.
    pub fn give_up(&self, fault: Fault) {
        let (Fault::Lost(why) | Fault::Flush(why)) = &fault;
        let why = why.clone();
        if self.fault.set(fault).is_ok() {
            tracing::error!(why, "the database is written no more");
        }
    }

    /// Whether so many pages are in the log since it was last begun anew. Its length does not tell:
    /// it is written over from the beginning once all of it has been checkpointed.
    pub fn log_has(&self, pages: u64) -> io::Result<bool> {
        let page = FRAME_HEADER + self.page_bytes;
        if self.log.metadata()?.len() < LOG_HEADER + pages * page {
            return Ok(false);
        }
        let last = LOG_HEADER + (pages - 1) * page;
        Ok(self.salts(LOG_SALTS)? == self.salts(last + FRAME_SALTS)?)
    }

    fn salts(&self, at: u64) -> io::Result<[u8; 8]> {
        let (mut log, mut salts) = (&self.log, [0; 8]);
        log.seek(SeekFrom::Start(at))?;
        log.read_exact(&mut salts)?;
        Ok(salts)
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Tells if others than the owner may read or write a file that was there before. It is left as it
/// is, because its permissions may have been widened on purpose, for a backup say.
#[cfg(unix)]
pub(crate) fn warn_of_permissions(database: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    for path in ["", "-wal", "-shm"].map(|suffix| beside(database, suffix)) {
        let Ok(found) = std::fs::metadata(&path) else { continue };
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            tracing::warn!(
                path = %path.display(), mode = format!("{mode:o}"),
                "others than the owner have access to this file; `chmod 600` ends that"
            );
        }
    }
}

#[cfg(not(unix))]
pub(crate) fn warn_of_permissions(_: &Path) {}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_log_that_was_begun_anew_is_not_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let sqlite = Connection::open(&path).unwrap();
        let set = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x)";
        sqlite.execute_batch(set).unwrap();
        let files = Files::watch(&path, 4096).unwrap();
        let write = || sqlite.execute("INSERT INTO t VALUES (zeroblob(40000))", []).unwrap();
        let mut rounds = Vec::new();
        for _ in 0..3 {
            let mut commits = 0;
            while !files.log_has(100).unwrap() {
                write();
                commits += 1;
            }
            rounds.push(commits);
            let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
            sqlite.query_row(checkpoint, [], |_| Ok(())).unwrap();
            write();
            assert!(!files.log_has(100).unwrap(), "begun anew, though the file is as long");
        }
        assert!(rounds.iter().all(|commits| (5..20).contains(commits)), "{rounds:?}");
    }
}
