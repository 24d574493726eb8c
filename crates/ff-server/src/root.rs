//! The first token: a store that has none would let nobody in who could make one.

use std::fs;
use std::path::PathBuf;

use ff_core::engine_backend::{EngineBackend, TokenOperations};
use ff_core::engine_error::EngineError;

use crate::config::{Auth, Config};
use crate::gate::mint_token;
use crate::private;

const FILE: &str = "root-token";

#[derive(Debug, thiserror::Error)]
pub enum RootTokenError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("no random bits: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The token of the configuration, or the one in the data folder. If there is neither and the store
/// has no tokens, one is made and written where only the owner of the process can read it.
pub async fn root_token(
    config: &Config,
    backend: &dyn EngineBackend,
) -> Result<Option<String>, RootTokenError> {
    if config.auth == Auth::None || config.root_token.is_some() {
        return Ok(config.root_token.clone());
    }
    let path = config.data.join(FILE);
    let failed = |source| RootTokenError::File { path: path.clone(), source };
    private::warn_of_access(&path);
    match fs::read_to_string(&path) {
        Ok(token) => return Ok(Some(token.trim_end().to_owned()).filter(|token| !token.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let tokens = backend.list_tokens(None, 1).await?;
    // One that cannot be read is a token too: a server with tokens mints none by itself.
    if !tokens.items.is_empty() || !tokens.unreadable.is_empty() {
        return Ok(None);
    }
    let token = mint_token().map_err(RootTokenError::Random)?;
    private::create_folder(&config.data).map_err(failed)?;
    private::write_file(&path, &token).map_err(failed)?;
    tracing::info!(path = %path.display(), "the first token was written");
    Ok(Some(token))
}
