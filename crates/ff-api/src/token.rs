//! API tokens: who may do what, and where.

use std::fmt;

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
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedToken {
    /// `ff_` and 256 random bits. It is stored as a hash and cannot be shown again.
    pub token: String,
    #[serde(flatten)]
    pub snapshot: TokenSnapshot,
}

impl fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = &self.snapshot;
        f.debug_struct("CreatedToken").field("snapshot", snapshot).finish_non_exhaustive()
    }
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
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{CreatedWebhook, TokenSignalRequest, WaitpointTokenAnswer};

    /// What is read from JSON, as a log would show it.
    fn logged<T: serde::de::DeserializeOwned + fmt::Debug>(json: Value) -> String {
        let read: T = serde_json::from_value(json).unwrap();
        format!("{read:?}")
    }

    #[test]
    fn secrets_are_not_logged() {
        let token = json!({
            "token": "whisper", "token_id": Uuid::nil(), "name": "ci", "scopes": [],
            "namespaces": [], "created_by": "me", "created_at": 0,
        });
        let webhook = json!({
            "secret": "whisper", "webhook_id": Uuid::nil(), "namespace": "", "name": "ci",
            "url": "https://a.example/", "event_types": [], "state": "active", "created_by": "me",
            "created_at": 0, "cursor": "", "delivered": 0, "failures": 0,
        });
        let signal = json!({ "token": "whisper", "signal": { "signal_name": "go" } });
        for shown in [
            logged::<CreatedToken>(token),
            logged::<CreatedWebhook>(webhook),
            logged::<TokenSignalRequest>(signal),
            logged::<WaitpointTokenAnswer>(json!({ "token": "whisper" })),
        ] {
            assert!(!shown.contains("whisper"), "{shown}");
        }
    }
}
