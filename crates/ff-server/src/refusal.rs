//! Every way of saying no, as a problem with a stable code.

use std::time::Duration;

use axum::http::StatusCode;
use ff_api::Problem;
use ff_core::engine_error::{ContentionKind, EngineError, ValidationKind};

/// A problem and what goes with it in the head of the answer.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub code: &'static str,
    pub detail: String,
    pub retryable: bool,
    pub retry_after: Option<Duration>,
    /// The execution that stands in the way.
    pub execution_id: Option<String>,
}

pub type Answered<T> = Result<T, Refusal>;

const SOON: Duration = Duration::from_secs(1);

/// The codes that the server adds to those of the engine: status, retry, meaning.
pub const CODES: &[(&str, u16, bool, &str)] = &[
    ("unexpected_body", 400, false, "The route takes no body."),
    ("invalid_host", 400, false, "The request has no Host header, or more than one."),
    ("unauthorized", 401, false, "No valid token was sent."),
    ("forbidden", 403, false, "The token has not the scope or the namespace that this needs."),
    ("host_not_allowed", 403, false, "Without tokens the server answers to its own names alone."),
    ("no_such_route", 404, false, "No route has this path."),
    ("method_not_allowed", 405, false, "The route does not know this method."),
    ("request_timeout", 408, true, "The body did not arrive in time."),
    ("idempotency_in_progress", 409, true, "A request with the same key is being worked on."),
    ("body_too_large", 413, false, "The body is larger than the route allows."),
    ("uri_too_long", 414, false, "The address is longer than 8 KiB."),
    ("unsupported_media_type", 415, false, "The body is not sent as application/json."),
    ("idempotency_key_reused", 422, false, "The key was used for another request."),
    ("headers_too_large", 431, false, "The headers are larger than 16 KiB."),
    ("too_many_streams", 429, true, "The token has as many streams open as it may."),
    ("too_many_requests", 429, true, "The token has as many requests in hand as it may."),
    ("rate_limit_exceeded", 429, true, "The token sends more requests per second than it may."),
    ("internal", 500, false, "A bug in the server; nothing is known of the outcome."),
    ("overloaded", 503, true, "The server has as many requests in hand as it may."),
    ("closing", 503, true, "The server is about to stop."),
    ("not_ready", 503, true, "The store cannot be used."),
];

impl Refusal {
    /// A refusal of the server's own, by a code of [`CODES`].
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        let row = CODES.iter().find(|row| row.0 == code);
        let (status, retryable) = row.map_or((500, false), |row| (row.1, row.2));
        Self {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code,
            detail: detail.into(),
            retryable,
            retry_after: (retryable && status >= 429).then_some(SOON),
            execution_id: None,
        }
    }

    pub fn invalid(detail: impl Into<String>) -> Self {
        EngineError::invalid(detail).into()
    }

    /// No token, or one that is not good or not good any more: told in the same words.
    pub fn unauthorized() -> Self {
        Self::new("unauthorized", "send a valid token: Authorization: Bearer …")
    }

    /// What is absent and what belongs to others is told in the same words.
    pub fn not_found(entity: &'static str) -> Self {
        EngineError::NotFound { entity }.into()
    }

    pub fn problem(&self, request_id: Option<String>) -> Problem {
        Problem {
            type_uri: format!("urn:flowfabric:error:{}", self.code),
            title: self.code.replace('_', " "),
            status: self.status.as_u16(),
            code: self.code.to_owned(),
            detail: self.detail.clone(),
            retryable: self.retryable,
            execution_id: self.execution_id.clone(),
            request_id,
        }
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        let status = status(&error);
        let retry_after = match &error {
            EngineError::ResourceExhausted { retry_after_ms, .. } => {
                Some(retry_after_ms.map_or(SOON, Duration::from_millis))
            }
            _ if status == StatusCode::SERVICE_UNAVAILABLE => Some(SOON),
            _ => None,
        };
        let detail = match &error {
            EngineError::Validation { detail, .. } => detail.clone(),
            EngineError::Contention(kind) => kind.meaning().to_owned(),
            EngineError::Conflict(kind) => kind.meaning().to_owned(),
            EngineError::State(kind) => kind.meaning().to_owned(),
            EngineError::UniqueKeyHeld { holder } => {
                format!("execution {holder} holds the unique key until it ends")
            }
            // What a database says may hold statements and addresses: it goes into the log alone.
            EngineError::Transport { backend, source } => {
                tracing::warn!(backend, error = %source, "the store could not be used");
                "the store could not be used; nothing was changed".to_owned()
            }
            EngineError::OutcomeUnknown { backend, detail } => {
                tracing::warn!(backend, error = %detail, "the outcome of a commit is unknown");
                "the outcome is unknown; ask again with the same ids or key".to_owned()
            }
            other => other.to_string(),
        };
        let (code, retryable) = (error.code(), error.retryable());
        let execution_id = match error {
            EngineError::UniqueKeyHeld { holder } => Some(holder.to_string()),
            _ => None,
        };
        Self { status, code, detail, retryable, retry_after, execution_id }
    }
}

fn status(error: &EngineError) -> StatusCode {
    match error {
        EngineError::NotFound { .. } => StatusCode::NOT_FOUND,
        EngineError::Validation { kind, .. } => match kind {
            ValidationKind::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ValidationKind::CursorBelowRetention => StatusCode::GONE,
            ValidationKind::InvalidToken => StatusCode::UNAUTHORIZED,
            ValidationKind::Corruption => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        },
        EngineError::Contention(ContentionKind::RetryExhausted) => StatusCode::SERVICE_UNAVAILABLE,
        EngineError::Conflict(kind) if kind.code() == "idempotency_key_reused" => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        EngineError::Contention(_)
        | EngineError::Conflict(_)
        | EngineError::State(_)
        | EngineError::UniqueKeyHeld { .. } => StatusCode::CONFLICT,
        EngineError::Unavailable { .. } => StatusCode::FORBIDDEN,
        EngineError::Transport { .. }
        | EngineError::OutcomeUnknown { .. }
        | EngineError::ResourceExhausted { .. }
        | EngineError::Timeout { .. } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retryable_answers_say_when() {
        for (code, status, retryable, _) in CODES {
            let refusal = Refusal::new(code, "");
            assert_eq!(refusal.status.as_u16(), *status, "{code}");
            assert_eq!(refusal.retryable, *retryable, "{code}");
            let must_say = matches!(*status, 429 | 503);
            assert!(!must_say || refusal.retry_after.is_some(), "{code}");
        }
    }

    #[test]
    fn a_database_is_not_quoted() {
        let source = "SELECT secret FROM t".into();
        let refusal = Refusal::from(EngineError::Transport { backend: "sqlite", source });
        assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(!refusal.detail.contains("secret"));
    }
}
