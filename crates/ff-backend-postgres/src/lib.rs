//! FlowFabric on PostgreSQL: the same engine for several servers and many workers at once.

#![forbid(unsafe_code)]

mod config;

pub use config::PostgresOptions;

use std::sync::Arc;

use ff_core::engine::Engine;
use ff_core::engine_backend::EngineBackend;
use ff_core::partition::PartitionConfig;
use sqlx::PgPool;

#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    #[error("{0}")]
    Open(String),
}

#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    #[error("{0}")]
    Failed(String),
}

pub struct PostgresBackend {
    engine: Arc<Engine>,
}

impl PostgresBackend {
    pub fn from_pool(_pool: PgPool, _partitions: PartitionConfig) -> Arc<Self> {
        unreachable!()
    }

    pub async fn connect(url: &str) -> Result<Arc<Self>, PostgresError> {
        Self::open(PostgresOptions::new(url)).await
    }

    pub async fn open(_options: PostgresOptions) -> Result<Arc<Self>, PostgresError> {
        unreachable!()
    }

    pub async fn close(&self) {}
}

impl EngineBackend for PostgresBackend {
    fn engine(&self) -> &Engine {
        &self.engine
    }
}

pub async fn apply_migrations(_pool: &PgPool) -> Result<(), MigrationError> {
    unreachable!()
}
