//! The holder of an execution says what it has used of a budget.

use serde_json::json;
use uuid::Uuid;

use super::drafts::{Drafts, put};
use super::{budget_event, gate};
use crate::backend::Handle;
use crate::contracts::{EventType, ReportUsageArgs, UsageOutcome};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::fence;
use crate::rows::{
    ExecutionRow, Json, LimitKey, LimitKind, LimitRow, LimitStateKey, LimitStateRow, LimitUsageKey,
    LimitUsageRow, Share, limit_id,
};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct ReportUsage {
    pub handle: Handle,
    pub args: ReportUsageArgs,
}

impl Operation for ReportUsage {
    type Reply = UsageOutcome;

    const NAME: &'static str = "report_usage";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        fence::needs_unwritten(needs, &self.handle);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        let Some(row) = world.execution(self.handle.key()) else { return };
        let [own, shared] = self.limits(row);
        needs.record::<LimitRow>(&own);
        needs.record::<LimitRow>(&shared);
        let id = self.limit(world, row).map_or(own.id, |limit| limit.key.id);
        needs.record::<LimitStateRow>(&LimitStateKey { id });
        needs.record::<LimitUsageRow>(&LimitUsageKey::sum(row.key, id));
        if let Some(key) = self.dedup_key(row, id) {
            needs.record::<LimitUsageRow>(&key);
        }
    }

    fn decide(&self, world: &World) -> Result<(UsageOutcome, Change), EngineError> {
        let mut change = Change::default();
        let held = fence::held(world, &self.handle)?;
        let limit =
            self.limit(world, held.row).ok_or(EngineError::NotFound { entity: "budget" })?;
        let budget = limit.budget().ok_or(EngineError::NotFound { entity: "budget" })?;
        let dedup_key = self.dedup_key(held.row, limit.key.id);
        if dedup_key.as_ref().is_some_and(|key| world.record::<LimitUsageRow>(key).is_some()) {
            return Ok((UsageOutcome::AlreadyApplied, change));
        }
        let id = limit.key.id;
        let key = LimitUsageKey::sum(held.row.key, id);
        let known = world.record::<LimitUsageRow>(&key);
        let mut share = known.as_ref().map_or_else(Share::default, |known| known.share.0.clone());
        let mut drafts = Drafts::new(world);
        let account = drafts.account(id).ok_or(EngineError::NotFound { entity: "budget" })?;
        account.roll(budget.reset_period_ms, world.now);
        let before = account.used.clone();
        let dimensions = &budget.dimensions;
        let outcome = account.report(dimensions, &self.args.amounts, &mut share, world.now);
        let used_before = |dimension: &str| before.get(dimension).copied().unwrap_or(0);
        match &outcome {
            UsageOutcome::HardBreach { dimension, used, hard } => {
                let details = json!({ "dimension": dimension, "used": used, "hard": hard });
                let event = budget_event(&limit, EventType::BudgetBreached, world.now, details);
                change.events.push(event);
            }
            // Told once, when the limit is crossed.
            UsageOutcome::SoftBreach { dimension, used, soft }
                if used_before(dimension) <= *soft =>
            {
                let details = json!({ "dimension": dimension, "used": used, "soft": soft });
                let kind = EventType::BudgetSoftBreached;
                change.events.push(budget_event(&limit, kind, world.now, details));
            }
            _ => {}
        }
        if !matches!(outcome, UsageOutcome::HardBreach { .. }) {
            let usage = LimitUsageRow { key, share: Json(share) };
            put(&mut change, known.is_some(), &usage);
            if let Some(key) = dedup_key {
                change.insert(&LimitUsageRow { key, share: Json(Share::default()) });
            }
        }
        drafts.write(&mut change);
        Ok((outcome, change))
    }
}

impl ReportUsage {
    /// What the budget can be: one of the execution's namespace, or one over all of them.
    fn limits(&self, row: &ExecutionRow) -> [LimitKey; 2] {
        [&*row.namespace, ""].map(|namespace| {
            let id = limit_id(LimitKind::Budget, namespace, self.args.budget_id.as_str());
            LimitKey { id }
        })
    }

    /// Nobody spends what all namespaces share unless he is measured by it.
    fn limit(&self, world: &World, row: &ExecutionRow) -> Option<LimitRow> {
        let [own, shared] = self.limits(row);
        let is_measured = |limit: &LimitRow| {
            gate::applies(limit, row)
                || row.limit_holds().is_some_and(|holds| holds.budgets.contains(&limit.key.id))
        };
        let shared = || world.record::<LimitRow>(&shared).filter(is_measured);
        world.record::<LimitRow>(&own).or_else(shared)
    }

    fn dedup_key(&self, row: &ExecutionRow, limit: Uuid) -> Option<LimitUsageKey> {
        let dedup_key = self.args.dedup_key.as_deref()?.into();
        Some(LimitUsageKey { execution: row.key, limit, dedup_key })
    }
}
