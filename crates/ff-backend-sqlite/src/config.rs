//! Where the database is and how it is used.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ff_core::engine::EngineConfig;
use ff_core::engine::clock::{Clock, SystemClock};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use uuid::Uuid;

use crate::SqliteError;

/// How a database is opened. `SqliteOptions::new(uri)` gives the defaults.
#[derive(Clone)]
pub struct SqliteOptions {
    /// A path, a `sqlite:` or `file:` URI, or `:memory:`.
    pub uri: String,
    pub synchronous: Synchronous,
    /// How many connections serve reads.
    pub readers: u32,
    /// Whether the file is created, and its schema brought up to date, when it is opened. A file
    /// that would need either is refused otherwise.
    pub migrate: bool,
    pub clock: Arc<dyn Clock>,
    pub engine: EngineConfig,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// The disk: an acknowledged write survives a power cut.
    #[default]
    Full,
    /// The operating system: faster, but a power cut may take the last acknowledged writes.
    Normal,
}

/// How long a connection waits for a lock that somebody else holds.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

impl SqliteOptions {
    pub fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            synchronous: Synchronous::default(),
            readers: 4,
            migrate: true,
            clock: Arc::new(SystemClock),
            engine: EngineConfig::default(),
        }
    }

    /// The folder that the file is in; absent for a database in memory.
    pub fn folder(&self) -> Option<PathBuf> {
        match Location::parse(&self.uri) {
            Ok(Location::File(path)) => path.parent().map(PathBuf::from),
            _ => None,
        }
    }
}

/// A parsed URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    File(PathBuf),
    /// A named database in shared memory, which lives as long as a connection to it.
    Memory(String),
}

impl Location {
    pub fn parse(uri: &str) -> Result<Self, SqliteError> {
        let refuse = |why: &str| Err(SqliteError::Uri { uri: uri.to_owned(), why: why.to_owned() });
        let rest = uri.strip_prefix("sqlite:").unwrap_or(uri);
        if rest == ":memory:" {
            return Ok(Self::Memory(format!("file:flowfabric-{}", Uuid::new_v4().simple())));
        }
        let is_uri = rest.len() < uri.len() || rest.starts_with("file:");
        let rest = rest.strip_prefix("file:").unwrap_or(rest);
        let rest = if is_uri { rest.strip_prefix("//").unwrap_or(rest) } else { rest };
        let (path, parameters) = match rest.split_once('?') {
            Some((path, parameters)) if is_uri => (path, parameters),
            _ => (rest, ""),
        };
        if path.is_empty() || path.contains('\0') {
            return refuse("it names no file");
        }
        let mut memory = false;
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter {
                "mode=memory" => memory = true,
                "mode=rwc" | "cache=shared" | "cache=private" => {}
                "mode=ro" | "immutable=1" => return refuse("the engine must be able to write"),
                _ => return refuse(&format!("it does not know the parameter {parameter:?}")),
            }
        }
        Ok(match memory {
            true => Self::Memory(format!("file:{path}")),
            false => Self::File(PathBuf::from(path)),
        })
    }

    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// The pool for reads: nothing that runs on it can write.
    pub fn readers(&self, count: u32) -> SqlitePool {
        let options = self.connect_options().pragma("query_only", "ON");
        SqlitePoolOptions::new()
            .max_connections(count.max(1))
            // A connection to a file does not go away, and asking takes as long as a short read.
            .test_before_acquire(false)
            .connect_lazy_with(options)
    }

    pub fn writable_pool(&self) -> SqlitePool {
        SqlitePoolOptions::new().max_connections(4).connect_lazy_with(self.connect_options())
    }

    fn connect_options(&self) -> SqliteConnectOptions {
        let options = SqliteConnectOptions::new()
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("trusted_schema", "OFF")
            .pragma("cell_size_check", "ON")
            // Only the writer folds the log back: two connections doing it at once is what
            // corrupts files with this version of SQLite.
            .pragma("wal_autocheckpoint", "0")
            .statement_cache_capacity(64);
        match self {
            Self::File(path) => options.filename(path),
            Self::Memory(name) => options.filename(name).in_memory(true).shared_cache(true),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Memory(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris() {
        let file = |uri: &str| match Location::parse(uri) {
            Ok(Location::File(path)) => path.display().to_string(),
            other => panic!("{uri}: {other:?}"),
        };
        assert_eq!(file("a/b.db"), "a/b.db");
        assert_eq!(file("what?.db"), "what?.db");
        assert_eq!(file("sqlite:a.db"), "a.db");
        assert_eq!(file("sqlite:///tmp/a.db"), "/tmp/a.db");
        assert_eq!(file("file:///tmp/a.db?mode=rwc"), "/tmp/a.db");
        let shared = "file:x-ThreadId(3)?mode=memory&cache=shared";
        let memory = Location::Memory("file:x-ThreadId(3)".into());
        assert_eq!(Location::parse(shared).unwrap(), memory);
        assert!(Location::parse(":memory:").unwrap().is_memory());
        for bad in ["", "sqlite:", "file:?mode=memory", "file:a?mode=ro", "file:a?vfs=x"] {
            assert!(Location::parse(bad).is_err(), "{bad}");
        }
    }
}
