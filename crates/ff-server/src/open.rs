//! The engine behind a URL.

use std::path::Path;
use std::sync::Arc;

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_core::engine::EngineConfig;
use ff_core::engine_backend::EngineBackend;

use crate::config::Config;
use crate::secrets;

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

/// Opens what the configuration names; without a name, a file in the data folder.
pub async fn open(config: &Config) -> Result<Backend, OpenError> {
    let own = || format!("sqlite:{}", config.data.join("flowfabric.db").display());
    let url = config.backend.clone().unwrap_or_else(own);
    let shared = !url.starts_with("sqlite:");
    let waitpoint_secrets = secrets::load(config, shared).map_err(OpenError::Secrets)?;
    let mut engine = EngineConfig { waitpoint_secrets, ..EngineConfig::default() };
    engine.limits.payload_bytes = config.payload_bytes;
    match url.split_once(':') {
        Some(("sqlite", path)) => {
            let path = Path::new(path.trim_start_matches("//"));
            if let Some(folder) = path.parent().filter(|_| !url.contains("memory")) {
                create_folder(folder)?;
            }
            let options = SqliteOptions { engine, ..SqliteOptions::new(url.clone()) };
            Ok(Backend::Sqlite(SqliteBackend::open(options).await?))
        }
        Some(("postgres" | "postgresql", _)) => {
            let options = PostgresOptions { engine, ..PostgresOptions::new(url.clone()) };
            Ok(Backend::Postgres(PostgresBackend::open(options).await?))
        }
        // Anything else might be part of a password.
        _ => Err(OpenError::Scheme(url.chars().take_while(char::is_ascii_alphanumeric).collect())),
    }
}

/// A folder that only its owner can look into.
fn create_folder(path: &Path) -> Result<(), OpenError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let failed = |source| OpenError::Folder { path: path.display().to_string(), source };
    if path.as_os_str().is_empty() { Ok(()) } else { builder.create(path).map_err(failed) }
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
