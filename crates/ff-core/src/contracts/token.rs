//! API tokens as the engine keeps them.

use std::time::Duration;

use uuid::Uuid;

use crate::types::TimestampMs;

/// A token to keep. The engine is given its hash and never sees the token itself.
#[derive(Clone, Debug)]
pub struct CreateTokenArgs {
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    pub name: String,
    pub scopes: Vec<String>,
    /// `*` stands for all.
    pub namespaces: Vec<String>,
    pub created_by: String,
    /// Without it the token is good until it is revoked.
    pub expires_in: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    pub token_id: Uuid,
    pub name: String,
    pub scopes: Vec<String>,
    pub namespaces: Vec<String>,
    pub created_by: String,
    pub created_at: TimestampMs,
    pub expires_at: Option<TimestampMs>,
    /// To the minute.
    pub last_used_at: Option<TimestampMs>,
    pub revoked_at: Option<TimestampMs>,
}

impl StoredToken {
    pub fn is_good_at(&self, now: TimestampMs) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}
