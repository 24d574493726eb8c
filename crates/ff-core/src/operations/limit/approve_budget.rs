//! Somebody lets an execution go on that its budget had suspended, with more room if he says so.

use serde_json::json;

use super::drafts::Drafts;
use crate::contracts::{ApproveBudgetArgs, EventType};
use crate::engine_error::{EngineError, StateKind};
use crate::limits;
use crate::operations::Operation;
use crate::operations::execution::requeue::make_ready;
use crate::operations::execution::transition;
use crate::rows::{LimitKey, LimitRow, LimitStateKey, LimitStateRow, Rule};
use crate::state::LifecyclePhase;
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct ApproveBudget {
    pub args: ApproveBudgetArgs,
}

impl Operation for ApproveBudget {
    type Reply = ();

    const NAME: &'static str = "approve_budget";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(self.args.execution_id.key());
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        let row = world.execution(self.args.execution_id.key());
        if let Some(wait) = row.and_then(|row| row.limit_wait()) {
            needs.record::<LimitRow>(&LimitKey { id: wait.limit });
            needs.record::<LimitStateRow>(&LimitStateKey { id: wait.limit });
        }
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        let args = &self.args;
        let row = world.existing(args.execution_id.key())?;
        let wait = row.limit_wait().filter(|_| row.phase == LifecyclePhase::Suspended);
        let wait = wait.ok_or(EngineError::State(StateKind::NotRunnable))?;
        let limit = world.record::<LimitRow>(&LimitKey { id: wait.limit });
        if !args.raise.is_empty() {
            // Who is confined to a namespace does not decide for the others.
            let own = |limit: &LimitRow| {
                world.scope().is_none_or(|scope| scope.as_str() == &*limit.namespace)
            };
            let limit = limit.filter(own);
            let mut limit = limit.ok_or(EngineError::NotFound { entity: "budget" })?;
            if let Rule::Budget(budget) = &mut limit.rule.0 {
                for (dimension, more) in &args.raise {
                    let hard = budget.dimensions.get_mut(dimension).and_then(|d| d.hard.as_mut());
                    let hard = hard.ok_or_else(|| {
                        EngineError::invalid(format!("dimension {dimension:?} has no hard limit"))
                    })?;
                    *hard = hard.saturating_add(*more).min(limits::AMOUNT_MAX);
                }
            }
            change.update(&limit);
            let mut drafts = Drafts::new(world);
            drafts.arm_if_waited_for(&mut change, wait.limit);
            drafts.write(&mut change);
        }
        let mut after = row.clone();
        make_ready(&mut after);
        after.set_limit_wait(None);
        let by = Some(args.by.as_str()).filter(|by| !by.is_empty()).map(Into::into);
        let details = json!({ "raise": args.raise });
        transition(&mut change, row, after, EventType::Approved, world.now, |event| {
            event.by(by).details(&details)
        });
        Ok(((), change))
    }
}
