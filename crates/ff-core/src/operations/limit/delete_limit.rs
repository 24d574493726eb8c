//! Forgets a budget or a quota: nothing is measured by it any more, and whoever waits for it is let
//! go. Where it stood is kept for as long as leases hold something of it.

use serde_json::json;

use super::drafts::Drafts;
use crate::contracts::EventType;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{EventRow, LimitKey, LimitKind, LimitRow, LimitStateKey, LimitStateRow, Word};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct DeleteLimit {
    pub kind: LimitKind,
    pub limit: LimitKey,
}

impl Operation for DeleteLimit {
    type Reply = ();

    const NAME: &'static str = "delete_limit";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<LimitRow>(&self.limit);
        needs.record::<LimitStateRow>(&LimitStateKey { id: self.limit.id });
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        let (entity, field) = match self.kind {
            LimitKind::Budget => ("budget", "budget_id"),
            LimitKind::Quota => ("quota", "quota_id"),
        };
        let row = world.record::<LimitRow>(&self.limit);
        let row = row.filter(|row| row.kind == Word(self.kind));
        let row = row.ok_or(EngineError::NotFound { entity })?;
        change.delete::<LimitRow>(&self.limit);
        let mut drafts = Drafts::new(world);
        if let Some(account) = drafts.account(self.limit.id) {
            account.reset(world.now);
        }
        drafts.look_at_all_keys(&mut change, self.limit.id);
        drafts.write(&mut change);
        let event = EventRow::bare(EventType::LimitDeleted, row.namespace.clone(), world.now);
        let details = json!({ "limit": entity, field: &*row.name });
        change.events.push(event.details(&details));
        Ok(((), change))
    }
}
