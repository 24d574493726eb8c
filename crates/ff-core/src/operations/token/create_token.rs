//! Keeps a token by its hash.

use std::sync::Arc;
use std::time::Duration;

use super::token_event;
use crate::contracts::{EventType, StoredToken};
use crate::engine_error::{ConflictKind, EngineError};
use crate::operations::Operation;
use crate::rows::{Json, TokenKey, TokenRow};
use crate::store::{Change, Needs, World};
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

impl Operation for CreateToken {
    type Reply = StoredToken;

    const NAME: &'static str = "create_token";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<TokenRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(StoredToken, Change), EngineError> {
        if world.record::<TokenRow>(&self.key).is_some() {
            return Err(EngineError::Conflict(ConflictKind::TokenReused));
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
