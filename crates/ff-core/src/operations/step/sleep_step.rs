//! A sleep that outlives its sleeper: its end is recorded as a step, and until then nobody holds
//! the execution.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::one_more;
use crate::backend::Handle;
use crate::contracts::SleepOutcome;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::{already_put_down, ending, fence, put_down};
use crate::rows::{StepKey, StepRow};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct SleepStep {
    pub handle: Handle,
    pub name: Arc<str>,
    pub duration: Duration,
}

impl SleepStep {
    fn key(&self) -> StepKey {
        StepKey { execution: self.handle.key(), name: self.name.clone() }
    }
}

impl Operation for SleepStep {
    type Reply = SleepOutcome;

    const NAME: &'static str = "sleep_step";

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
        needs.record::<StepRow>(&self.key());
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        ending::more(world, needs, self.handle.key());
    }

    fn decide(&self, world: &World) -> Result<(SleepOutcome, Change), EngineError> {
        let mut change = Change::default();
        let known = world.record::<StepRow>(&self.key());
        let asleep = known.as_ref().and_then(|step| step.due_at);
        if let Some(until) = asleep.filter(|_| already_put_down(world, &self.handle).is_some()) {
            return Ok((SleepOutcome::PutDown { until }, change));
        }
        let held = fence::held(world, &self.handle)?;
        let mut after = held.row.clone();
        let due_at = match known {
            Some(step) => step.due_at.ok_or_else(|| {
                EngineError::invalid(format!("step {:?} has a result and is no sleep", self.name))
            })?,
            None => {
                let steps = one_more(held.row, &self.name, &[])?;
                after.set_step_count(steps);
                let due_at = world.now.after(self.duration);
                change.insert(&StepRow {
                    key: self.key(),
                    sequence: steps.count,
                    result: Arc::from([]),
                    attempt_index: held.row.attempt_index,
                    recorded_at: world.now,
                    due_at: Some(due_at),
                });
                due_at
            }
        };
        if due_at <= world.now {
            let lease_expires_at = held.keep(&mut change, &self.handle, after, world.now);
            return Ok((SleepOutcome::Over { due_at, lease_expires_at }, change));
        }
        let details = json!({ "delay_until": due_at.0, "step": &*self.name });
        put_down(&mut change, &held, after, due_at, world.now, &details);
        Ok((SleepOutcome::PutDown { until: due_at }, change))
    }
}
