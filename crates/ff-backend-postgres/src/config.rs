//! Where the database is and how it is used.

use std::sync::Arc;

use ff_core::engine::EngineConfig;
use ff_core::engine::clock::Clock;
use ff_core::partition::PartitionConfig;

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
    /// Stands in for the database's clock, in tests.
    pub clock: Option<Arc<dyn Clock>>,
    pub engine: EngineConfig,
}

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
            clock: None,
            engine: EngineConfig::default(),
        }
    }
}
