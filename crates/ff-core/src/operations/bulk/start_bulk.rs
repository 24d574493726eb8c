//! Starts an action on every execution that a filter names.

use serde_json::json;
use uuid::Uuid;

use super::{event, timer_key};
use crate::contracts::{BulkState, EventType, Stamp, StartBulkArgs};
use crate::engine_error::{ConflictKind, EngineError};
use crate::operations::Operation;
use crate::rows::{BulkDefinition, BulkKey, BulkRow, Json, TimerRow, Word};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct StartBulk {
    /// The same for the same request.
    pub id: Uuid,
    /// The request apart.
    pub definition: StartBulkArgs,
    /// The caller, which what comes of it later names too.
    pub caller: Option<Stamp>,
    /// How many executions there were a moment ago.
    pub matched: u64,
}

impl Operation for StartBulk {
    type Reply = BulkRow;

    const NAME: &'static str = "start_bulk";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<BulkRow>(&BulkKey { id: self.id });
    }

    fn decide(&self, world: &World) -> Result<(BulkRow, Change), EngineError> {
        if let Some(known) = world.record::<BulkRow>(&BulkKey { id: self.id }) {
            return match known.definition.0.args == self.definition {
                true => Ok((known, Change::default())),
                false => Err(EngineError::Conflict(ConflictKind::IdempotencyKeyReused)),
            };
        }
        let namespace = self.definition.filter.namespace.as_ref();
        let (args, caller) = (self.definition.clone(), self.caller.clone());
        let row = BulkRow {
            key: BulkKey { id: self.id },
            rank: -world.now.0,
            namespace: namespace.map(|namespace| namespace.as_str().into()),
            definition: Json(BulkDefinition { args, caller }),
            state: Word(BulkState::Running),
            created_at: world.now,
            finished_at: None,
            looked_at: None,
            looked_id: None,
            matched: self.matched,
            changed: 0,
            skipped: 0,
            failed: 0,
        };
        let mut change = Change::default();
        change.insert(&row);
        let timer = TimerRow { key: timer_key(&row, world.now), members: Vec::new() };
        change.timers.push(Write::Insert(timer));
        let details = json!({ "matched": self.matched });
        change.events.push(event(&row, EventType::BulkStarted, world.now, details));
        Ok((row, change))
    }
}
