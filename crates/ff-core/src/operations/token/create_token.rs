//! Keeps a token by its hash.

use std::sync::Arc;
use std::time::Duration;

use super::token_event;
use crate::contracts::{EventType, StoredToken};
use crate::engine_error::{ConflictKind, EngineError};
use crate::operations::Operation;
use crate::rows::{Json, TokenKey, TokenRow, values};
use crate::store::{Change, Needs, Scan, World};
use crate::types::TimestampMs;
use crate::views;

#[derive(Debug)]
pub struct CreateToken {
    pub key: TokenKey,
    pub hash: Arc<[u8]>,
    pub name: Arc<str>,
    pub scopes: Vec<String>,
    pub namespaces: Vec<String>,
    pub created_by: Arc<str>,
    pub expires_in: Option<Duration>,
}

/// Tokens are made rarely, and their uses are noted meanwhile.
fn all_tokens() -> Scan {
    Scan::of::<TokenRow>(values![]).unlocked()
}

/// Stands for all namespaces.
const EVERYWHERE: &str = "*";

impl CreateToken {
    /// Whether events of one namespace could name either of them by one name.
    fn would_be_mistaken_for(&self, other: &TokenRow, now: TimestampMs) -> bool {
        let is_valid = other.revoked_at.is_none() && other.expires_at.is_none_or(|end| now < end);
        let everywhere = |names: &[String]| names.iter().any(|name| name == EVERYWHERE);
        let (own, others) = (&self.namespaces, &other.namespaces.0);
        let shared =
            everywhere(own) || everywhere(others) || own.iter().any(|n| others.contains(n));
        is_valid && shared && other.name == self.name
    }
}

impl Operation for CreateToken {
    type Reply = StoredToken;

    const NAME: &'static str = "create_token";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<TokenRow>(&self.key);
        needs.scan(&all_tokens());
    }

    fn decide(&self, world: &World) -> Result<(StoredToken, Change), EngineError> {
        if world.record::<TokenRow>(&self.key).is_some() {
            return Err(EngineError::Conflict(ConflictKind::TokenReused));
        }
        let tokens = world.scan::<TokenRow>(&all_tokens());
        if tokens.iter().any(|token| self.would_be_mistaken_for(token, world.now)) {
            return Err(EngineError::Conflict(ConflictKind::TokenNameTaken));
        }
        let row = TokenRow {
            key: self.key.clone(),
            hash: self.hash.clone(),
            name: self.name.clone(),
            scopes: Json(self.scopes.clone()),
            namespaces: Json(self.namespaces.clone()),
            created_by: self.created_by.clone(),
            created_at: world.now,
            expires_at: self.expires_in.map(|span| world.now.after(span)),
            last_used_at: None,
            revoked_at: None,
        };
        let event = token_event(&row, EventType::TokenCreated, world.now, &self.created_by);
        let mut change = Change { events: vec![event], ..Change::default() };
        let stored = views::token(&row);
        change.insert(&row);
        Ok((stored, change))
    }
}
