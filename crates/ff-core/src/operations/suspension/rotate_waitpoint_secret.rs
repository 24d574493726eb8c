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
        let (known, others): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|key| key.key.kid == self.kid);
        // A key that was retired stays so: its old tokens must not become good again.
        if known.iter().any(|key| !key.active || key.secret_check != self.check) {
            return Err(EngineError::Conflict(ConflictKind::RotationConflict));
        }
        // Two hosts that made the first token at once have each made a key of theirs active.
        let active: Vec<_> = others.into_iter().filter(|key| key.active).collect();
        if !known.is_empty() && active.is_empty() {
            let kid = self.kid.to_string();
            return Ok((RotateWaitpointSecretResult::Noop { kid }, change));
        }
        let previous_kid = active.first().map(|key| key.key.kid.to_string());
        let verifies_until = world.now.after_ms(self.grace_ms);
        for key in active {
            let verifies_until = Some(verifies_until);
            change.update(&WaitpointKeyRow { active: false, verifies_until, ..key });
        }
        if known.is_empty() {
            change.insert(&active_key(world, &self.kid, &self.check));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Kid, Record};
    use crate::store::Write;
    use crate::types::TimestampMs;

    fn active(kid: &str) -> WaitpointKeyRow {
        WaitpointKeyRow {
            key: Kid { kid: kid.into() },
            active: true,
            verifies_until: None,
            secret_check: "check".into(),
            created_at: TimestampMs(1),
        }
    }

    /// Two hosts may each have made the first token with a key of their own.
    #[test]
    fn every_key_before_it_is_retired() {
        let mut world = World::new(TimestampMs(1000), "test");
        let rows = [active("one").erase(), active("two").erase()];
        world.scans.insert(all_keys_held(), all_keys_held().found(&rows));
        rows.into_iter().for_each(|row| world.records.load(row));
        let rotate =
            RotateWaitpointSecret { kid: "three".into(), check: "other".into(), grace_ms: 50 };
        let (_, change) = rotate.decide(&world).expect("a new key");
        let mut left = Vec::new();
        for write in change.records.iter() {
            let (Write::Insert(row) | Write::Update(row)) = write else { continue };
            let key: WaitpointKeyRow = row.decode().expect("a key").expect("a key");
            left.push((key.key.kid.to_string(), key.active, key.verifies_until));
        }
        left.sort();
        let retired = Some(TimestampMs(1050));
        assert_eq!(
            left,
            [
                ("one".to_owned(), false, retired),
                ("three".to_owned(), true, None),
                ("two".to_owned(), false, retired),
            ]
        );
    }
}
