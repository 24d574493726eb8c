//! Makes another key the one for waitpoint tokens; those of the key before are taken for a while.

use std::sync::Arc;

use serde_json::json;

use super::keys::{active_key, all_keys_held};
use crate::contracts::{EventType, RotateWaitpointSecretResult};
use crate::engine_error::{ConflictKind, EngineError};
use crate::operations::Operation;
use crate::rows::{EventRow, WaitpointKeyRow};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct RotateWaitpointSecret {
    pub kid: Arc<str>,
    pub check: Arc<str>,
    pub grace_ms: u64,
}

impl Operation for RotateWaitpointSecret {
    type Reply = RotateWaitpointSecretResult;

    const NAME: &'static str = "rotate_waitpoint_secret";

    fn needs(&self, needs: &mut Needs) {
        needs.scan(&all_keys_held());
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        let stored = world.scan::<WaitpointKeyRow>(&all_keys_held());
        if let Some(known) = stored.iter().find(|key| key.key.kid == self.kid) {
            // A key that was retired stays so: its old tokens must not become good again.
            if !known.active || known.secret_check != self.check {
                return Err(EngineError::Conflict(ConflictKind::RotationConflict));
            }
            let kid = self.kid.to_string();
            return Ok((RotateWaitpointSecretResult::Noop { kid }, change));
        }
        let previous = stored.into_iter().find(|key| key.active);
        let previous_kid = previous.as_ref().map(|key| key.key.kid.to_string());
        let verifies_until = world.now.after_ms(self.grace_ms);
        if let Some(mut retired) = previous {
            retired.active = false;
            retired.verifies_until = Some(verifies_until);
            change.update(&retired);
        }
        change.insert(&active_key(world, &self.kid, &self.check));
        let details = json!({
            "kid": &*self.kid,
            "previous_kid": previous_kid,
            "verifies_until": verifies_until.0,
        });
        let event = EventRow::bare(EventType::WaitpointKeyRotated, "".into(), world.now);
        change.events.push(event.details(&details));
        let new_kid = self.kid.to_string();
        Ok((RotateWaitpointSecretResult::Rotated { previous_kid, new_kid }, change))
    }
}
