//! What a server refuses, as the error that the engine gave it.

use std::error::Error as StdError;
use std::fmt;

use ff_api::Problem;
use ff_core::engine_error::{ConflictKind, ContentionKind, EngineError, StateKind, ValidationKind};
use ff_core::types::ExecutionId;
use reqwest::StatusCode;

const HTTP: &str = "http";

/// The engine's own error where it has a code of the engine. What only a server says is retryable
/// or a fault of the request.
pub(super) fn engine_error(problem: Problem) -> EngineError {
    let code = problem.code.as_str();
    if let Some(kind) = ValidationKind::ALL.iter().find(|kind| kind.code() == code) {
        return EngineError::validation(*kind, problem.detail);
    }
    if let Some(kind) = ContentionKind::ALL.iter().find(|kind| kind.code() == code) {
        return EngineError::Contention(*kind);
    }
    if let Some(kind) = ConflictKind::ALL.iter().find(|kind| kind.code() == code) {
        return EngineError::Conflict(*kind);
    }
    if let Some(kind) = StateKind::ALL.iter().find(|kind| kind.code() == code) {
        return EngineError::State(*kind);
    }
    let named = problem.execution_id.as_deref().and_then(|id| ExecutionId::parse(id).ok());
    if let Some(holder) = named.filter(|_| code == "unique_key_held") {
        return EngineError::UniqueKeyHeld { holder };
    }
    match code {
        "not_found" => EngineError::NotFound { entity: entity(&problem.detail) },
        "outcome_unknown" => EngineError::OutcomeUnknown { backend: HTTP, detail: problem.detail },
        _ if problem.retryable => {
            EngineError::Transport { backend: HTTP, source: Box::new(problem) }
        }
        _ => EngineError::invalid(problem.to_string()),
    }
}

/// The words of the engine are known to this program only as constants.
fn entity(detail: &str) -> &'static str {
    let known = ["execution", "flow", "lane", "waitpoint", "budget", "quota", "schedule"];
    known.into_iter().find(|entity| detail.ends_with(entity)).unwrap_or("object")
}

/// An answer that is not a success.
pub(super) fn refused(status: StatusCode, body: &[u8]) -> EngineError {
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        return engine_error(problem);
    }
    let detail = format!("the server answered {status}");
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        return EngineError::validation(ValidationKind::PayloadTooLarge, detail);
    }
    // A proxy in between may say so while the server restarts.
    match status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        true => EngineError::Transport { backend: HTTP, source: detail.into() },
        false => EngineError::invalid(detail),
    }
}

/// No answer. Unless no connection was made, the request may have been carried out.
pub(super) fn unreachable(error: &reqwest::Error) -> EngineError {
    let detail = chain(error);
    match error.is_connect() || error.is_builder() {
        true => EngineError::Transport { backend: HTTP, source: detail.into() },
        false => EngineError::OutcomeUnknown { backend: HTTP, detail },
    }
}

/// An answer that says something else than it should.
pub(super) fn unreadable(error: &dyn fmt::Display) -> EngineError {
    let detail = format!("the server's answer cannot be read: {error}");
    EngineError::OutcomeUnknown { backend: HTTP, detail }
}

pub(super) fn missing() -> EngineError {
    unreadable(&"an outcome is missing")
}

/// What a refused request means for a report that was in it. Only its size is a fault of its own,
/// and only if nothing else was in the request; all else may be mended while the lease stands.
pub(super) fn of_report(error: &EngineError, alone: bool) -> EngineError {
    match error {
        EngineError::OutcomeUnknown { detail, .. } => {
            EngineError::OutcomeUnknown { backend: HTTP, detail: detail.clone() }
        }
        EngineError::Validation { kind, detail } if alone && is_too_large(error) => {
            EngineError::Validation { kind: *kind, detail: detail.clone() }
        }
        error => EngineError::Transport { backend: HTTP, source: error.to_string().into() },
    }
}

/// Somebody on the way takes less in one request.
pub(super) fn is_too_large(error: &EngineError) -> bool {
    matches!(error, EngineError::Validation { kind: ValidationKind::PayloadTooLarge, .. })
}

fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use ff_core::engine_error::ErrorEntry;

    use super::*;

    fn problem(code: &str, retryable: bool) -> Problem {
        Problem {
            type_uri: String::new(),
            title: String::new(),
            status: 400,
            code: code.to_owned(),
            detail: "no such execution".to_owned(),
            retryable,
            execution_id: None,
            request_id: None,
        }
    }

    #[test]
    fn every_code_of_the_engine_keeps_its_class() {
        for ErrorEntry { code, class, .. } in EngineError::table() {
            let retryable = class == ff_core::engine_error::ErrorClass::Retryable;
            let error = engine_error(problem(code, retryable));
            assert_eq!(error.class(), class, "{code}");
        }
        assert_eq!(engine_error(problem("stale_lease", false)).code(), "stale_lease");
        assert!(engine_error(problem("overloaded", true)).retryable());
        assert!(!engine_error(problem("forbidden", false)).retryable());
    }

    #[test]
    fn a_refused_request_says_nothing_about_the_results_in_it() {
        for status in [StatusCode::UNAUTHORIZED, StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST] {
            assert!(of_report(&refused(status, b"<html>"), true).retryable(), "{status}");
        }
        let large = || refused(StatusCode::PAYLOAD_TOO_LARGE, b"<html>");
        assert!(of_report(&large(), false).retryable());
        assert_eq!(of_report(&large(), true).code(), "payload_too_large");
    }
}
