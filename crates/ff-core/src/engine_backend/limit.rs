//! Budgets and quotas, for callers.

use async_trait::async_trait;

use super::scan::Found;
use super::{EngineBackend, check_unscoped, flow_key};
use crate::backend::Handle;
use crate::contracts::{
    Amounts, ApproveBudgetArgs, BudgetScope, BudgetSnapshot, Explanation, Listed, PutBudgetArgs,
    PutQuotaArgs, QuotaSnapshot, ReportUsageArgs, UsageOutcome,
};
use crate::engine::{
    Engine, check_amounts, check_budget, check_count, check_quota, check_report, check_text,
    limit_namespace,
};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::limit::{
    ApproveBudget, DeleteLimit, PutBudget, PutQuota, ReleaseBudget, ReportUsage, ResetBudget,
};
use crate::rows::{
    ExecutionRow, LimitKey, LimitKind, LimitRow, LimitStateKey, LimitStateRow, LimitWait, Record,
    Word, limit_id, values,
};
use crate::store::{Query, Scan};
use crate::types::{BudgetId, ExecutionId, Namespace, QuotaId, TimestampMs};
use crate::views;

/// How many keys of a quota are shown that wait, and how many that do not.
const USAGE_SHOWN: usize = limits::PAGE / 2;

#[async_trait]
pub trait LimitOperations: EngineBackend {
    /// Declares a budget, or declares it anew; what has been used stays used.
    async fn put_budget(&self, mut args: PutBudgetArgs) -> Result<(), EngineError> {
        args.namespace = limit_namespace(self.scope(), &args.namespace)?;
        check_budget(&args)?;
        let flow = match &args.scope {
            BudgetScope::Flow(id) => Some(flow_key(self.engine(), id)),
            _ => None,
        };
        self.engine().run_as(self.caller(), PutBudget { args, flow }).await
    }

    /// The budget as it stands.
    async fn get_budget(
        &self,
        namespace: &Namespace,
        id: &BudgetId,
    ) -> Result<BudgetSnapshot, EngineError> {
        let limit = self.budget_key(namespace, id)?;
        let state = LimitStateKey { id: limit.id };
        let keys = vec![LimitRow::erase_key(&limit), LimitStateRow::erase_key(&state)];
        let rows = self.engine().query(Query::Records { keys, scans: Vec::new() }).await?;
        let limits = rows.records::<LimitRow>().map_err(|e| self.engine().store_error(e))?;
        let states = rows.records::<LimitStateRow>().map_err(|e| self.engine().store_error(e))?;
        let view = limits.first().and_then(|limit| views::budget(limit, states.first(), rows.now));
        view.ok_or(EngineError::NotFound { entity: "budget" })
    }

    /// Budgets of a namespace by name, after one of them.
    async fn list_budgets(
        &self,
        namespace: &Namespace,
        after: Option<&BudgetId>,
        limit: usize,
    ) -> Result<Listed<BudgetSnapshot>, EngineError> {
        let after = after.map(BudgetId::as_str);
        let place = (self.engine(), self.scope());
        let found = limits_of(place, LimitKind::Budget, namespace, after, limit).await?;
        let keys = found
            .records
            .iter()
            .map(|limit| LimitStateRow::erase_key(&LimitStateKey { id: limit.key.id }));
        let query = Query::Records { keys: keys.collect(), scans: Vec::new() };
        let rows = self.engine().query(query).await?;
        let states = Found::<LimitStateRow>::of(self.engine(), &rows)?;
        // A budget whose state cannot be read is named as such, not shown as one without usage.
        let damaged = |limit: &LimitRow| {
            let key = limit.key.id.to_string();
            states.unreadable.iter().any(|record| record.key == key)
        };
        let views = found.records.iter().filter(|limit| !damaged(limit)).filter_map(|limit| {
            let state = states.records.iter().find(|state| state.key.id == limit.key.id);
            views::budget(limit, state, rows.now)
        });
        let items = views.collect();
        let unreadable = found.unreadable.into_iter().chain(states.unreadable.clone()).collect();
        Ok(Listed { items, unreadable })
    }

    /// Forgets a budget: nothing is measured by it any more, and whoever waits for it is let go.
    async fn delete_budget(&self, namespace: &Namespace, id: &BudgetId) -> Result<(), EngineError> {
        let limit = self.budget_key(namespace, id)?;
        self.engine().run_as(self.caller(), DeleteLimit { kind: LimitKind::Budget, limit }).await
    }

    /// Begins the budget's period anew; answers when the next one begins by itself.
    async fn reset_budget(
        &self,
        namespace: &Namespace,
        id: &BudgetId,
    ) -> Result<Option<TimestampMs>, EngineError> {
        let budget = self.budget_key(namespace, id)?;
        self.engine().run_as(self.caller(), ResetBudget { budget }).await
    }

    /// Takes back what an execution has spent of a budget in its present period.
    async fn release_budget(
        &self,
        namespace: &Namespace,
        id: &BudgetId,
        execution_id: &ExecutionId,
    ) -> Result<Amounts, EngineError> {
        let budget = self.budget_key(namespace, id)?;
        let execution = execution_id.key();
        self.engine().run_as(self.caller(), ReleaseBudget { budget, execution }).await
    }

    /// Lets an execution go on that its budget had suspended.
    async fn approve_budget(&self, args: ApproveBudgetArgs) -> Result<(), EngineError> {
        check_amounts(&args.raise)?;
        check_text("by", &args.by, 0, limits::NAME_BYTES)?;
        self.engine().run_as(self.caller(), ApproveBudget { args }).await
    }

    /// The holder says what it has used. Nothing is applied that would exceed a hard limit.
    async fn report_usage(
        &self,
        handle: &Handle,
        args: ReportUsageArgs,
    ) -> Result<UsageOutcome, EngineError> {
        check_report(&args)?;
        let handle = handle.clone();
        self.engine().run_as(self.caller(), ReportUsage { handle, args }).await
    }

    /// Declares a quota, or declares it anew.
    async fn put_quota(&self, mut args: PutQuotaArgs) -> Result<(), EngineError> {
        args.namespace = limit_namespace(self.scope(), &args.namespace)?;
        check_quota(&args)?;
        if args.namespace.as_str().is_empty() {
            check_unscoped(self.scope(), "put_quota")?;
        }
        self.engine().run_as(self.caller(), PutQuota { args }).await
    }

    /// The quota, with the keys that are in use.
    async fn get_quota(
        &self,
        namespace: &Namespace,
        id: &QuotaId,
    ) -> Result<QuotaSnapshot, EngineError> {
        let namespace = limit_namespace(self.scope(), namespace)?;
        let id = limit_id(LimitKind::Quota, namespace.as_str(), id.as_str());
        let keys = vec![LimitRow::erase_key(&LimitKey { id })];
        let of = |waiting: bool| {
            let scan = Scan::of::<LimitStateRow>(values![id, waiting]);
            scan.by(&LimitStateRow::BY_LIMIT).limit(USAGE_SHOWN)
        };
        let query = Query::Records { keys, scans: vec![of(true), of(false)] };
        let rows = self.engine().query(query).await?;
        let limits = rows.records::<LimitRow>().map_err(|e| self.engine().store_error(e))?;
        let states = rows.records::<LimitStateRow>().map_err(|e| self.engine().store_error(e))?;
        let of_kind = |waiting| states.iter().filter(|state| state.is_waiting == waiting).count();
        let truncated = of_kind(true) >= USAGE_SHOWN || of_kind(false) >= USAGE_SHOWN;
        let view =
            limits.first().and_then(|limit| views::quota(limit, &states, truncated, rows.now));
        view.ok_or(EngineError::NotFound { entity: "quota" })
    }

    /// Quotas of a namespace by name, after one of them.
    async fn list_quotas(
        &self,
        namespace: &Namespace,
        after: Option<&QuotaId>,
        limit: usize,
    ) -> Result<Listed<PutQuotaArgs>, EngineError> {
        let after = after.map(QuotaId::as_str);
        let place = (self.engine(), self.scope());
        let found = limits_of(place, LimitKind::Quota, namespace, after, limit).await?;
        let items = found.records.iter().filter_map(|limit| limit.quota().cloned()).collect();
        Ok(Listed { items, unreadable: found.unreadable })
    }

    /// Forgets a quota: nothing is measured by it any more, and whoever waits for it is let go.
    async fn delete_quota(&self, namespace: &Namespace, id: &QuotaId) -> Result<(), EngineError> {
        let namespace = limit_namespace(self.scope(), namespace)?;
        let id = limit_id(LimitKind::Quota, namespace.as_str(), id.as_str());
        let operation = DeleteLimit { kind: LimitKind::Quota, limit: LimitKey { id } };
        self.engine().run_as(self.caller(), operation).await
    }

    #[doc(hidden)]
    fn budget_key(&self, namespace: &Namespace, id: &BudgetId) -> Result<LimitKey, EngineError> {
        let namespace = limit_namespace(self.scope(), namespace)?;
        Ok(LimitKey { id: limit_id(LimitKind::Budget, namespace.as_str(), id.as_str()) })
    }
}

/// Limits of a kind and a namespace by name, after one of them.
async fn limits_of(
    (engine, scope): (&Engine, Option<&Namespace>),
    kind: LimitKind,
    namespace: &Namespace,
    after: Option<&str>,
    limit: usize,
) -> Result<Found<LimitRow>, EngineError> {
    check_count("limits", limit, limits::PAGE)?;
    let namespace = limit_namespace(scope, namespace)?;
    let namespace: std::sync::Arc<str> = namespace.as_str().into();
    let scan = Scan::of::<LimitRow>(values![Word(kind), namespace]);
    let scan = scan.by(&LimitRow::BY_NAME).limit(limit);
    let scan = match after {
        Some(after) => scan.after(values![std::sync::Arc::<str>::from(after)]),
        None => scan,
    };
    super::scan::find(engine, scan).await
}

/// Why an execution waits for a limit.
pub(super) async fn explain(
    engine: &Engine,
    row: &ExecutionRow,
    wait: LimitWait,
) -> Result<Explanation, EngineError> {
    let (limit, state) = (LimitKey { id: wait.limit }, LimitStateKey { id: wait.state });
    let keys = vec![LimitRow::erase_key(&limit), LimitStateRow::erase_key(&state)];
    let rows = engine.query(Query::Records { keys, scans: Vec::new() }).await?;
    let limits = rows.records::<LimitRow>().map_err(|error| engine.store_error(error))?;
    let states = rows.records::<LimitStateRow>().map_err(|error| engine.store_error(error))?;
    Ok(views::explain_limit(row, limits.first(), states.first(), rows.now))
}

impl<B: EngineBackend + ?Sized> LimitOperations for B {}
