//! The holder records what it has done. What is recorded first stands; the lease is kept with it.

use std::sync::Arc;

use super::one_more;
use crate::backend::Handle;
use crate::contracts::RecordStepOutcome;
use crate::engine_error::EngineError;
use crate::mutants::{self, Mutant};
use crate::operations::Operation;
use crate::operations::execution::fence;
use crate::rows::{StepKey, StepRow};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct RecordStep {
    pub handle: Handle,
    pub name: Arc<str>,
    pub result: Arc<[u8]>,
}

impl RecordStep {
    fn key(&self) -> StepKey {
        StepKey { execution: self.handle.key(), name: self.name.clone() }
    }
}

impl Operation for RecordStep {
    type Reply = RecordStepOutcome;

    const NAME: &'static str = "record_step";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
        needs.record::<StepRow>(&self.key());
    }

    fn decide(&self, world: &World) -> Result<(RecordStepOutcome, Change), EngineError> {
        let mut change = Change::default();
        let held = fence::held(world, &self.handle)?;
        let mut after = held.row.clone();
        if let Some(known) = world.record::<StepRow>(&self.key()) {
            if known.due_at.is_some() {
                let detail = format!("step {:?} is a sleep and has no result", self.name);
                return Err(EngineError::invalid(detail));
            }
            let sequence = known.sequence;
            let lease_expires_at = held.keep(&mut change, &self.handle, after, world.now);
            if mutants::active(Mutant::StepTwice) {
                change.update(&StepRow { result: self.result.clone(), ..known.clone() });
            }
            let outcome = if known.result == self.result || mutants::active(Mutant::StepTwice) {
                RecordStepOutcome::Recorded { sequence, lease_expires_at }
            } else {
                RecordStepOutcome::Kept { sequence, result: known.result, lease_expires_at }
            };
            return Ok((outcome, change));
        }
        let steps = one_more(held.row, &self.name, &self.result)?;
        after.set_step_count(steps);
        change.insert(&StepRow {
            key: self.key(),
            sequence: steps.count,
            result: self.result.clone(),
            attempt_index: held.row.attempt_index,
            recorded_at: world.now,
            due_at: None,
        });
        let lease_expires_at = held.keep(&mut change, &self.handle, after, world.now);
        Ok((RecordStepOutcome::Recorded { sequence: steps.count, lease_expires_at }, change))
    }
}
