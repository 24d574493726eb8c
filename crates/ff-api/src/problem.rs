//! What went wrong, as RFC 9457 has it.

use serde::{Deserialize, Serialize};

/// An error as `application/problem+json`. Programs decide by `code` and `retryable`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Problem {
    /// `urn:flowfabric:error:` and the code.
    #[serde(rename = "type")]
    pub type_uri: String,
    pub title: String,
    pub status: u16,
    /// The stable word for the error; the list is in `docs/errors.md` and `docs/http.md`.
    pub code: String,
    /// What is wrong with this request, in a sentence.
    pub detail: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// The execution that stands in the way, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// Names the request in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.code, self.status, self.detail)
    }
}

impl std::error::Error for Problem {}
