//! What can go wrong for a client.

use ff_core::engine_error::EngineError;
use ff_core::state::PublicState;
use ff_core::types::ExecutionId;

/// The one error of the SDK.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The execution has ended, and not with a result.
    #[error("execution {execution_id} is {}{}", state.as_str(), because(reason.as_deref()))]
    NotCompleted {
        execution_id: ExecutionId,
        state: PublicState,
        category: Option<String>,
        reason: Option<String>,
    },
    /// A value does not fit its type, or cannot be written as JSON.
    #[error("the {what} does not fit its type: {source}")]
    Json { what: &'static str, source: serde_json::Error },
    /// The program is set up wrong.
    #[error("{0}")]
    Config(String),
}

fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

impl Error {
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config(message.into())
    }

    pub(crate) fn not_found() -> Self {
        Self::Engine(EngineError::NotFound { entity: "execution" })
    }

    /// The stable word for this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Engine(error) => error.code(),
            Self::NotCompleted { .. } => "not_completed",
            Self::Json { .. } => "invalid_json",
            Self::Config(_) => "invalid_config",
        }
    }

    /// Whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Engine(error) if error.retryable())
    }
}
