//! An operator begins a budget's period anew, or takes back what one execution has spent.

use serde_json::json;

use super::{budget_event, drafts::Drafts};
use crate::contracts::{Amounts, EventType};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{LimitKey, LimitRow, LimitStateKey, LimitStateRow, LimitUsageKey, LimitUsageRow};
use crate::store::{Change, Needs, World};
use crate::types::{ExecutionKey, TimestampMs};

#[derive(Debug)]
pub struct ResetBudget {
    pub budget: LimitKey,
}

#[derive(Debug)]
pub struct ReleaseBudget {
    pub budget: LimitKey,
    pub execution: ExecutionKey,
}

impl Operation for ResetBudget {
    /// When it is reset by itself.
    type Reply = Option<TimestampMs>;

    const NAME: &'static str = "reset_budget";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<LimitRow>(&self.budget);
        needs.record::<LimitStateRow>(&LimitStateKey { id: self.budget.id });
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        let limit = existing(world, &self.budget)?;
        let period = limit.budget().and_then(|budget| budget.reset_period_ms);
        let mut drafts = Drafts::new(world);
        let account = drafts.account(self.budget.id);
        let account = account.ok_or(EngineError::NotFound { entity: "budget" })?;
        let used = account.used.clone();
        account.reset(world.now);
        account.last_breach_at = None;
        account.last_breach_dimension = None;
        let next = account.next_reset(period);
        drafts.arm_if_waited_for(&mut change, self.budget.id);
        drafts.write(&mut change);
        let details = json!({ "used": used });
        change.events.push(budget_event(&limit, EventType::BudgetReset, world.now, details));
        Ok((next, change))
    }
}

impl Operation for ReleaseBudget {
    /// What was taken back; nothing if there was nothing.
    type Reply = Amounts;

    const NAME: &'static str = "release_budget";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<LimitRow>(&self.budget);
        needs.record::<LimitStateRow>(&LimitStateKey { id: self.budget.id });
        needs.record::<LimitUsageRow>(&LimitUsageKey::sum(self.execution, self.budget.id));
    }

    fn decide(&self, world: &World) -> Result<(Amounts, Change), EngineError> {
        let mut change = Change::default();
        let limit = existing(world, &self.budget)?;
        let period = limit.budget().and_then(|budget| budget.reset_period_ms);
        let key = LimitUsageKey::sum(self.execution, self.budget.id);
        let Some(mut usage) = world.record::<LimitUsageRow>(&key) else {
            return Ok((Amounts::new(), change));
        };
        let mut drafts = Drafts::new(world);
        let account = drafts.account(self.budget.id);
        let account = account.ok_or(EngineError::NotFound { entity: "budget" })?;
        account.roll(period, world.now);
        let released = account.release(&mut usage.share.0);
        if released.is_empty() {
            return Ok((released, change));
        }
        change.update(&usage);
        drafts.arm_if_waited_for(&mut change, self.budget.id);
        drafts.write(&mut change);
        let execution_id = self.execution.execution_id();
        let details = json!({ "execution_id": execution_id, "released": released });
        change.events.push(budget_event(&limit, EventType::BudgetReleased, world.now, details));
        Ok((released, change))
    }
}

fn existing(world: &World, key: &LimitKey) -> Result<LimitRow, EngineError> {
    let limit = world.record::<LimitRow>(key).filter(|limit| limit.budget().is_some());
    limit.ok_or(EngineError::NotFound { entity: "budget" })
}
