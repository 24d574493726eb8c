//! Says which key waitpoint tokens are made with, if nobody has said so yet.

use std::sync::Arc;

use serde_json::json;

use super::keys::{active_key, all_keys_held};
use crate::contracts::{EventType, SeedWaitpointSecretResult};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{EventRow, WaitpointKeyRow};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct SeedWaitpointSecret {
    pub kid: Arc<str>,
    pub check: Arc<str>,
}

impl Operation for SeedWaitpointSecret {
    type Reply = SeedWaitpointSecretResult;

    const NAME: &'static str = "seed_waitpoint_secret";

    fn needs(&self, needs: &mut Needs) {
        needs.scan(&all_keys_held());
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        let stored = world.scan::<WaitpointKeyRow>(&all_keys_held());
        if let Some(active) = stored.into_iter().find(|key| key.active) {
            let same_secret = active.key.kid == self.kid && active.secret_check == self.check;
            let kid = active.key.kid.to_string();
            return Ok((SeedWaitpointSecretResult::AlreadySeeded { kid, same_secret }, change));
        }
        change.insert(&active_key(world, &self.kid, &self.check));
        let event = EventRow::bare(EventType::WaitpointKeySeeded, "".into(), world.now);
        change.events.push(event.details(&json!({ "kid": &*self.kid })));
        Ok((SeedWaitpointSecretResult::Seeded { kid: self.kid.to_string() }, change))
    }
}
