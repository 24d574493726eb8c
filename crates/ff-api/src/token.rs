//! API tokens: who may do what, and where.

use ff_core::types::TimestampMs;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Span;

/// What a token may be used for. `admin` includes all the others.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Submit work.
    Submit,
    /// Read everything of the namespace, payloads and results included.
    Read,
    /// Claim work and report on it.
    Work,
    /// Deliver signals.
    Signal,
    /// Cancel, replay, reschedule, pause, and whatever else changes the course of work.
    Operate,
    /// Tokens and settings.
    Admin,
}

impl Scope {
    pub const ALL: [Self; 6] =
        [Self::Submit, Self::Read, Self::Work, Self::Signal, Self::Operate, Self::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Read => "read",
            Self::Work => "work",
            Self::Signal => "signal",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTokenRequest {
    /// What people call it.
    pub name: String,
    pub scopes: Vec<Scope>,
    /// The namespaces in which it is good; `["*"]` means all of them.
    pub namespaces: Vec<String>,
    /// How long it is good; without it, until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
}

/// The only answer that ever shows the token itself.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedToken {
    /// `ff_` and 256 random bits. It is stored as a hash and cannot be shown again.
    pub token: String,
    #[serde(flatten)]
    pub snapshot: TokenSnapshot,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TokenSnapshot {
    pub token_id: Uuid,
    pub name: String,
    pub scopes: Vec<Scope>,
    pub namespaces: Vec<String>,
    /// The name of the token that created it.
    pub created_by: String,
    pub created_at: TimestampMs,
    pub expires_at: Option<TimestampMs>,
    /// To the minute.
    pub last_used_at: Option<TimestampMs>,
    pub revoked_at: Option<TimestampMs>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TokenList {
    pub tokens: Vec<TokenSnapshot>,
    /// Pass it as `after` for what follows; present when there is more.
    pub next_after: Option<Uuid>,
}
