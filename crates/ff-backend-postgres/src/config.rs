//! Where the database is and how it is used.

use std::sync::Arc;
use std::time::Duration;

use ff_core::engine::EngineConfig;
use ff_core::engine::clock::Clock;
use ff_core::partition::PartitionConfig;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::PostgresError;

/// How a database is opened. `PostgresOptions::new(url)` gives the defaults.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database`, with the parameters that libpq knows.
    pub url: String,
    /// Only this schema is used, if it is given; it is created with the migrations.
    pub schema: Option<String>,
    pub partitions: PartitionConfig,
    /// How many transactions run at the same time.
    pub writers: usize,
    /// How many connections serve reads.
    pub readers: u32,
    /// Whether other servers on the database are heard by LISTEN. Without it they are polled.
    pub listen: bool,
    /// How many prepared statements a connection keeps; 0 for a transaction pooler.
    pub statement_cache: usize,
    /// Whether the schema is brought up to date when the database is opened.
    pub migrate: bool,
    /// Whether a server that may lose acknowledged commits in a crash is refused.
    pub durable: bool,
    /// Stands in for the database's clock, in tests.
    pub clock: Option<Arc<dyn Clock>>,
    pub engine: EngineConfig,
}

/// What every session of a writer is bound to. The plans are always the same: the few rows that
/// arrays name are looked up by their keys, so nothing is gained by planning anew.
macro_rules! session {
    ($set:literal) => {
        concat!(
            $set,
            " lock_timeout = '1s'; ",
            $set,
            " statement_timeout = '30s'; ",
            $set,
            " idle_in_transaction_session_timeout = '30s'; ",
            $set,
            " plan_cache_mode = force_generic_plan; ",
            $set,
            " enable_seqscan = off; ",
            $set,
            " enable_bitmapscan = off; ",
            $set,
            " enable_hashjoin = off; ",
            $set,
            " enable_mergejoin = off; ",
            $set,
            " jit = off; ",
        )
    };
}

macro_rules! clock {
    () => {
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}

macro_rules! server {
    () => {
        "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8"
    };
}

pub(crate) const CLOCK: &str = clock!();
/// The server's start time, as a part of a statement and as a statement.
pub(crate) const SERVER_START: &str = server!();
pub(crate) const SERVER: &str = concat!("SELECT ", server!());
pub(crate) const SESSION: &str = session!("SET");
/// Behind a transaction pooler a session is only as long as a transaction.
pub(crate) const BEGIN: &str = concat!("BEGIN; ", session!("SET LOCAL"), clock!(), ", ", server!());
pub(crate) const BEGIN_ALONE: &str = concat!("BEGIN; ", clock!(), ", ", server!());
/// Begins a transaction whose time is known already.
pub(crate) const BEGIN_LATE: &str = concat!("BEGIN; SELECT ", server!());

const ACQUIRE_PATIENCE: Duration = Duration::from_secs(5);

impl PostgresOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: None,
            partitions: PartitionConfig::default(),
            writers: 2,
            readers: 4,
            listen: true,
            statement_cache: 256,
            migrate: true,
            durable: true,
            clock: None,
            engine: EngineConfig::default(),
        }
    }

    pub(crate) fn connect_options(&self) -> Result<PgConnectOptions, PostgresError> {
        let options: PgConnectOptions =
            self.url.parse().map_err(|error: sqlx::Error| PostgresError::Url(error.to_string()))?;
        let options = options
            .application_name("flowfabric")
            .statement_cache_capacity(self.statement_cache)
            // No number here is a float, and poolers refuse settings that they do not know.
            .extra_float_digits(None);
        let Some(schema) = &self.schema else { return Ok(options) };
        // It becomes part of the session's settings, which have no quotes.
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty() || !schema.chars().all(plain) {
            let why = format!("the schema {schema:?} is not made of a-z, 0-9 and _");
            return Err(PostgresError::Url(why));
        }
        Ok(options.options([("search_path", schema)]))
    }

    pub(crate) fn readers(&self, connect: PgConnectOptions) -> PgPool {
        PgPoolOptions::new()
            .max_connections(self.readers.max(1))
            .acquire_timeout(ACQUIRE_PATIENCE)
            // A ping before each read would double its cost; a read that fails is told.
            .test_before_acquire(false)
            .connect_lazy_with(connect)
    }
}
