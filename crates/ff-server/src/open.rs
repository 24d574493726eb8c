//! The engine behind a URL.

use std::sync::Arc;

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_core::engine::EngineConfig;
use ff_core::engine_backend::EngineBackend;
use ff_core::token::WaitpointSecrets;

use crate::config::Config;
use crate::{private, secrets};

/// An open store with its engine.
#[derive(Clone)]
pub enum Backend {
    Sqlite(Arc<SqliteBackend>),
    Postgres(Arc<PostgresBackend>),
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0} is no backend: say sqlite:PATH or postgres://…")]
    Scheme(String),
    #[error("waitpoint secrets: {0}")]
    Secrets(String),
    #[error("{path} cannot be created: {source}")]
    Folder { path: String, source: std::io::Error },
    #[error(transparent)]
    Sqlite(#[from] ff_backend_sqlite::SqliteError),
    #[error(transparent)]
    Postgres(#[from] ff_backend_postgres::PostgresError),
}

impl OpenError {
    /// Whether there is nothing where a store was looked for.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Sqlite(ff_backend_sqlite::SqliteError::Missing(_)))
    }
}

/// Opens what the configuration names; without a name, a file in the data folder. What is missing
/// is created.
pub async fn open(config: &Config) -> Result<Backend, OpenError> {
    open_as(config, true).await
}

/// The same for a look: what is not there or would have to be brought up to date is refused, no
/// file, folder, table or secret is created, and no timer fires unless the caller sweeps.
pub async fn open_existing(config: &Config) -> Result<Backend, OpenError> {
    open_as(config, false).await
}

async fn open_as(config: &Config, migrate: bool) -> Result<Backend, OpenError> {
    let own = || format!("sqlite:{}", config.data.join("flowfabric.db").display());
    let url = config.backend.clone().unwrap_or_else(own);
    let shared = !url.starts_with("sqlite:");
    let waitpoint_secrets = match migrate || secrets::are_there(config) {
        true => secrets::load(config, shared).map_err(OpenError::Secrets)?,
        false => WaitpointSecrets::default(),
    };
    // Looking at a store must not fire what is overdue in it.
    let manual_sweeps = !migrate;
    let mut engine = EngineConfig { waitpoint_secrets, manual_sweeps, ..EngineConfig::default() };
    engine.limits.payload_bytes = config.payload_bytes;
    match url.split_once(':') {
        Some(("sqlite", _)) => {
            let options = SqliteOptions { engine, migrate, ..SqliteOptions::new(url.clone()) };
            if let Some(folder) = options.folder().filter(|_| migrate) {
                let failed =
                    |source| OpenError::Folder { path: folder.display().to_string(), source };
                private::create_folder(&folder).map_err(failed)?;
            }
            private::warn_of_access(&config.data);
            Ok(Backend::Sqlite(SqliteBackend::open(options).await?))
        }
        Some(("postgres" | "postgresql", _)) => {
            let options = PostgresOptions { engine, migrate, ..PostgresOptions::new(url.clone()) };
            Ok(Backend::Postgres(PostgresBackend::open(options).await?))
        }
        // Anything else might be part of a password.
        _ => Err(OpenError::Scheme(url.chars().take_while(char::is_ascii_alphanumeric).collect())),
    }
}

impl Backend {
    pub fn engine(&self) -> Arc<dyn EngineBackend> {
        match self {
            Self::Sqlite(backend) => backend.clone(),
            Self::Postgres(backend) => backend.clone(),
        }
    }

    /// Ends the writer after what is queued.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(backend) => backend.close().await,
            Self::Postgres(backend) => backend.close().await,
        }
    }
}
