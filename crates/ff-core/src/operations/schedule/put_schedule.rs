//! Makes a schedule, or gives the one of this name another definition.

use std::sync::Arc;

use serde_json::json;

use super::{arm, calendar, event, existing, key_of};
use crate::contracts::{EventType, PutScheduleArgs, PutScheduleOutcome};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{Json, LimitKey, LimitKind, LimitRow, Runs, ScheduleRow, limit_id};
use crate::store::{Change, Needs, World};
use crate::types::TimestampMs;

#[derive(Debug)]
pub struct PutSchedule {
    /// The payload apart.
    pub definition: PutScheduleArgs,
    pub payload: Arc<[u8]>,
    /// Where its runs live.
    pub partition: u16,
}

impl Operation for PutSchedule {
    type Reply = PutScheduleOutcome;

    const NAME: &'static str = "put_schedule";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<ScheduleRow>(&key_of(&self.definition.schedule_id));
        self.budgets().for_each(|budget| needs.record::<LimitRow>(&budget));
    }

    fn decide(&self, world: &World) -> Result<(PutScheduleOutcome, Change), EngineError> {
        let known = existing(world, &key_of(&self.definition.schedule_id)).ok();
        let mut change = Change::default();
        let (mut row, outcome) = match known {
            None => (self.created(world.now), PutScheduleOutcome::Created),
            Some(known) if self.is_same(&known) => {
                return Ok((PutScheduleOutcome::Unchanged, change));
            }
            Some(known) => (self.updated(known, world.now), PutScheduleOutcome::Updated),
        };
        if self.budgets().any(|budget| world.record::<LimitRow>(&budget).is_none()) {
            return Err(EngineError::NotFound { entity: "budget" });
        }
        let calendar = calendar(&row)?;
        arm(&mut change, &mut row, &calendar, world.now);
        match outcome {
            PutScheduleOutcome::Created => change.insert(&row),
            _ => change.update(&row),
        }
        let details = json!({ "generation": row.generation });
        change.events.push(event(&row, EventType::SchedulePut, world.now, details));
        Ok((outcome, change))
    }
}

impl PutSchedule {
    /// The budgets that every run will name; without them none is accepted.
    fn budgets(&self) -> impl Iterator<Item = LimitKey> {
        let namespace = self.definition.schedule_id.namespace.as_str();
        let policy = self.definition.template.policy.iter();
        let names = policy.flat_map(|policy| &policy.budget_ids);
        names.map(move |name| LimitKey { id: limit_id(LimitKind::Budget, namespace, name) })
    }

    fn created(&self, now: TimestampMs) -> ScheduleRow {
        let id = &self.definition.schedule_id;
        ScheduleRow {
            key: key_of(id),
            namespace: id.namespace.as_str().into(),
            name: id.name.as_str().into(),
            definition: Json(self.definition.clone()),
            payload: self.payload.clone(),
            partition: self.partition,
            generation: 1,
            created_at: now,
            updated_at: now,
            paused_at: None,
            paused_reason: None,
            paused_by: None,
            looked_until: now,
            next_start: None,
            last_due: None,
            last_execution: None,
            runs: Json(Runs::default()),
            started: 0,
            overlapped: 0,
        }
    }

    fn is_same(&self, known: &ScheduleRow) -> bool {
        known.definition.0 == self.definition && known.payload == self.payload
    }

    /// A schedule with other times begins anew; otherwise what has come due and was not looked at
    /// yet still counts.
    fn updated(&self, known: ScheduleRow, now: TimestampMs) -> ScheduleRow {
        let before = &known.definition.0;
        let same_times = before.timing == self.definition.timing
            && before.jitter_ms == self.definition.jitter_ms
            && before.starts_at == self.definition.starts_at
            && before.ends_at == self.definition.ends_at;
        ScheduleRow {
            generation: known.generation + 1,
            updated_at: now,
            looked_until: if same_times { known.looked_until } else { now },
            definition: Json(self.definition.clone()),
            payload: self.payload.clone(),
            partition: self.partition,
            ..known
        }
    }
}
