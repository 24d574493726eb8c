//! A revoked token opens nothing any more; it stays on record.

use std::sync::Arc;

use super::{belongs_to, token_event};
use crate::contracts::{EventType, StoredToken};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{TokenKey, TokenRow};
use crate::store::{Change, Needs, World};
use crate::types::Namespace;
use crate::views;

#[derive(Debug)]
pub struct RevokeToken {
    pub key: TokenKey,
    pub by: Arc<str>,
    /// Only a token of this namespace alone, if there is one.
    pub within: Option<Namespace>,
}

impl Operation for RevokeToken {
    type Reply = StoredToken;

    const NAME: &'static str = "revoke_token";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<TokenRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(StoredToken, Change), EngineError> {
        let row = world.record::<TokenRow>(&self.key);
        let row = row.filter(|row| belongs_to(&row.namespaces.0, self.within.as_ref()));
        let row = row.ok_or(EngineError::NotFound { entity: "token" })?;
        if row.revoked_at.is_some() {
            return Ok((views::token(&row), Change::default()));
        }
        let after = TokenRow { revoked_at: Some(world.now), ..row };
        let event = token_event(&after, EventType::TokenRevoked, world.now, &self.by);
        let mut change = Change { events: vec![event], ..Change::default() };
        let stored = views::token(&after);
        change.update(&after);
        Ok((stored, change))
    }
}
