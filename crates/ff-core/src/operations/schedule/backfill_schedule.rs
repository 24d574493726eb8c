//! Makes up for a range of due times, whatever became of them. The sweeper starts the runs, some at
//! a time; those that the schedule's present definition has made before are not made again.

use serde_json::json;

use super::{arm, calendar, event, existing};
use crate::contracts::{Backfill, EventType};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::Operation;
use crate::rows::{ScheduleKey, ScheduleRow};
use crate::store::{Change, Needs, World};
use crate::types::TimestampMs;

#[derive(Debug)]
pub struct BackfillSchedule {
    pub key: ScheduleKey,
    pub from: TimestampMs,
    pub until: TimestampMs,
}

impl Operation for BackfillSchedule {
    /// How many due times lie in the range.
    type Reply = usize;

    const NAME: &'static str = "backfill_schedule";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<ScheduleRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(usize, Change), EngineError> {
        let mut row = existing(world, &self.key)?;
        let mut change = Change::default();
        if self.until > world.now.after_ms(1) {
            return Err(EngineError::invalid("a backfill must end in the past"));
        }
        if row.runs.0.backfills.len() >= limits::BACKFILLS {
            let detail =
                format!("{} backfills are under way, which is the limit", limits::BACKFILLS);
            return Err(EngineError::invalid(detail));
        }
        let calendar = calendar(&row)?;
        let after = TimestampMs(self.from.0.saturating_sub(1));
        let count = calendar.count(after, self.until, limits::BACKFILL_RUNS + 1);
        if count > limits::BACKFILL_RUNS {
            let detail = format!(
                "the range has more than {} due times, which is the limit",
                limits::BACKFILL_RUNS
            );
            return Err(EngineError::invalid(detail));
        }
        if count == 0 {
            return Ok((0, change));
        }
        row.runs.0.backfills.push(Backfill { after, until: self.until });
        arm(&mut change, &mut row, &calendar, world.now);
        change.update(&row);
        let details = json!({ "from": self.from.0, "until": self.until.0, "runs": count });
        change.events.push(event(&row, EventType::ScheduleBackfill, world.now, details));
        Ok((count, change))
    }
}
