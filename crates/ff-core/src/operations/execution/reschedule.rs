//! An operator moves the moment at which waiting work may be handed out.

use super::finish::disarm_ready;
use super::requeue::wait_until;
use super::transition;
use crate::contracts::{EventType, RescheduleArgs};
use crate::engine_error::{EngineError, StateKind};
use crate::operations::Operation;
use crate::state::{BlockingReason, EligibilityState, LifecyclePhase, PublicState};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct Reschedule {
    pub args: RescheduleArgs,
}

impl Operation for Reschedule {
    type Reply = PublicState;

    const NAME: &'static str = "reschedule";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(self.args.execution_id.key());
    }

    fn decide(&self, world: &World) -> Result<(PublicState, Change), EngineError> {
        let mut change = Change::default();
        let row = world.existing(self.args.execution_id.key())?;
        let waiting = matches!(row.phase, LifecyclePhase::Submitted | LifecyclePhase::Runnable)
            && matches!(
                row.eligibility,
                EligibilityState::EligibleNow | EligibilityState::NotEligibleUntilTime
            );
        if !waiting {
            return Err(EngineError::State(StateKind::NotRunnable));
        }
        disarm_ready(&mut change, row);
        let until = world.now.after(self.args.delay);
        let mut after = row.clone();
        wait_until(&mut change, &mut after, until, world.now, BlockingReason::WaitingForDelay);
        let public_state = after.public_state;
        let details = serde_json::json!({ "not_before": until.0 });
        transition(&mut change, row, after, EventType::Rescheduled, world.now, |event| {
            event.details(&details)
        });
        Ok((public_state, change))
    }
}
