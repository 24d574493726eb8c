//! What a handler has used of a budget.

use ff_core::contracts::{ReportUsageArgs, UsageOutcome};
use ff_core::types::BudgetId;

use super::Ctx;
use crate::failure::{BUDGET_EXCEEDED, Failure, Outcome};

impl Ctx {
    /// Says what was used of a budget, once under a name: whoever says it again, in this attempt or
    /// a later one, is not charged again. Amounts are by dimension, such as `tokens`.
    ///
    /// What would exceed a hard limit is not applied and fails for good, with the category
    /// [`BUDGET_EXCEEDED`]; a handler that wants to wrap up looks for it.
    pub async fn usage<D: Into<String>>(
        &self,
        budget: impl Into<String>,
        name: impl Into<String>,
        amounts: impl IntoIterator<Item = (D, u64)>,
    ) -> Outcome<UsageOutcome> {
        let args = ReportUsageArgs {
            budget_id: BudgetId::new(budget),
            amounts: amounts.into_iter().map(|(name, amount)| (name.into(), amount)).collect(),
            dedup_key: Some(name.into()),
        };
        let transport = self.inner.client.transport();
        let said = self.insist(|| transport.report_usage(self.handle(), args.clone())).await?;
        match said {
            UsageOutcome::HardBreach { dimension, used, hard } => {
                let budget = args.budget_id.as_str();
                let reason =
                    format!("the budget {budget:?} has {used} of {hard} {dimension} used up");
                Err(Failure::fatal(BUDGET_EXCEEDED, reason))
            }
            said => Ok(said),
        }
    }
}
