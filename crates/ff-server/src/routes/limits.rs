//! Budgets and quotas. With `namespace=*` those are meant that hold for all namespaces.

use axum::http::Method;
use ff_api::{
    ApproveBudgetRequest, BudgetRequest, BudgetsAnswer, QuotaRequest, QuotasAnswer,
    ReleaseBudgetAnswer, ReleaseBudgetRequest, ReportUsageRequest, ResetBudgetAnswer, Scope,
};
use ff_core::contracts::{
    ApproveBudgetArgs, BudgetSnapshot, Listed, PutBudgetArgs, QuotaSnapshot, ReportUsageArgs,
    UsageOutcome,
};
use ff_core::engine_backend::LimitOperations;
use ff_core::types::{BudgetId, Namespace, QuotaId};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{KIB, Nothing, Route};
use crate::wire;

pub fn routes() -> Vec<Route> {
    let mut routes = budget_routes();
    routes.extend(spending_routes());
    routes.extend(quota_routes());
    routes
}

fn budget_routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::PUT, "/v1/budgets/{budget_id}"),
            ("put_budget", "Declares a budget, or declares it anew; what is used stays used."),
            Scope::Operate,
            put_budget,
        ),
        Route::new(
            (Method::GET, "/v1/budgets"),
            ("list_budgets", "The budgets of the namespace by name, as they stand."),
            Scope::Read,
            list_budgets,
        ),
        Route::new(
            (Method::GET, "/v1/budgets/{budget_id}"),
            ("get_budget", "The budget as it stands."),
            Scope::Read,
            get_budget,
        ),
        Route::new(
            (Method::DELETE, "/v1/budgets/{budget_id}"),
            ("delete_budget", "Forgets a budget; whoever waits for it goes on."),
            Scope::Operate,
            delete_budget,
        ),
    ]
}

fn spending_routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/budgets/{budget_id}/reset"),
            ("reset_budget", "Begins the budget's period anew."),
            Scope::Operate,
            reset_budget,
        ),
        Route::new(
            (Method::POST, "/v1/budgets/{budget_id}/release"),
            ("release_budget", "Takes back what an execution has spent in the present period."),
            Scope::Operate,
            release_budget,
        ),
        Route::new(
            (Method::POST, "/v1/executions/{execution_id}/approve-budget"),
            ("approve_budget", "Lets an execution go on that its budget had suspended."),
            Scope::Operate,
            approve_budget,
        ),
        Route::new(
            (Method::POST, "/v1/leases/usage"),
            ("report_usage", "The holder says what it has used of a budget."),
            Scope::Work,
            report_usage,
        )
        .remembered_by_engine(),
    ]
}

fn quota_routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::PUT, "/v1/quotas/{quota_id}"),
            ("put_quota", "Declares a quota with its weights, or declares it anew."),
            Scope::Operate,
            put_quota,
        )
        .body(512 * KIB),
        Route::new(
            (Method::GET, "/v1/quotas"),
            ("list_quotas", "The quotas of the namespace by name, as they were declared."),
            Scope::Read,
            list_quotas,
        ),
        Route::new(
            (Method::GET, "/v1/quotas/{quota_id}"),
            ("get_quota", "The quota, with the keys that are in use."),
            Scope::Read,
            get_quota,
        ),
        Route::new(
            (Method::DELETE, "/v1/quotas/{quota_id}"),
            ("delete_quota", "Forgets a quota; whoever waits for it goes on."),
            Scope::Operate,
            delete_quota,
        ),
    ]
}

/// The namespace whose limits are meant; the engine writes "all of them" as an empty name.
fn namespace<Q, B>(call: &Call<Q, B>) -> Namespace {
    call.door.namespace().ok().cloned().unwrap_or_default()
}

fn budget_id<Q, B>(call: &Call<Q, B>) -> Answered<BudgetId> {
    let checked = BudgetId::try_new(call.param("budget_id"));
    checked.map_err(|error| Refusal::invalid(error.to_string()))
}

fn quota_id<Q, B>(call: &Call<Q, B>) -> Answered<QuotaId> {
    let checked = QuotaId::try_new(call.param("quota_id"));
    checked.map_err(|error| Refusal::invalid(error.to_string()))
}

async fn put_budget(call: Call<Nothing, BudgetRequest>) -> Answered<Answer<BudgetSnapshot>> {
    let (namespace, budget_id) = (namespace(&call), budget_id(&call)?);
    let BudgetRequest { scope, dimensions, estimate, reset_period_ms, on_breach } = call.body;
    let args = PutBudgetArgs {
        namespace: namespace.clone(),
        budget_id: budget_id.clone(),
        scope,
        dimensions,
        estimate,
        reset_period_ms,
        on_breach,
    };
    call.door.backend().put_budget(args).await?;
    Ok(Answer::json(call.door.backend().get_budget(&namespace, &budget_id).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct LimitQuery {
    /// `next_after` of the page before.
    after: Option<String>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list_budgets(call: Call<LimitQuery, Nothing>) -> Answered<Answer<BudgetsAnswer>> {
    let limit = wire::limit(call.query.limit, 100)?;
    let after = call.query.after.clone().map(BudgetId::new);
    let backend = call.door.backend();
    let found = backend.list_budgets(&namespace(&call), after.as_ref(), limit).await?;
    let Listed { items: budgets, unreadable } = found;
    let last = budgets.last().filter(|_| budgets.len() == limit);
    let next_after = last.map(|budget| budget.budget_id.clone());
    Ok(Answer::json(BudgetsAnswer { budgets, next_after, unreadable }))
}

async fn get_budget(call: Call<Nothing, Nothing>) -> Answered<Answer<BudgetSnapshot>> {
    let budget_id = budget_id(&call)?;
    Ok(Answer::json(call.door.backend().get_budget(&namespace(&call), &budget_id).await?))
}

async fn delete_budget(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    let budget_id = budget_id(&call)?;
    call.door.backend().delete_budget(&namespace(&call), &budget_id).await?;
    Ok(Answer::nothing())
}

async fn reset_budget(call: Call<Nothing, Nothing>) -> Answered<Answer<ResetBudgetAnswer>> {
    let budget_id = budget_id(&call)?;
    let next_reset_at = call.door.backend().reset_budget(&namespace(&call), &budget_id).await?;
    Ok(Answer::json(ResetBudgetAnswer { next_reset_at }))
}

async fn release_budget(
    call: Call<Nothing, ReleaseBudgetRequest>,
) -> Answered<Answer<ReleaseBudgetAnswer>> {
    let (budget_id, execution_id) = (budget_id(&call)?, &call.body.execution_id);
    let backend = call.door.backend();
    let released = backend.release_budget(&namespace(&call), &budget_id, execution_id).await?;
    Ok(Answer::json(ReleaseBudgetAnswer { released }))
}

async fn approve_budget(call: Call<Nothing, ApproveBudgetRequest>) -> Answered<Answer<Nothing>> {
    let args = ApproveBudgetArgs {
        execution_id: call.execution_id()?,
        raise: call.body.raise.clone(),
        by: call.door.principal().name.clone(),
    };
    call.door.backend().approve_budget(args).await?;
    Ok(Answer::nothing())
}

async fn report_usage(call: Call<Nothing, ReportUsageRequest>) -> Answered<Answer<UsageOutcome>> {
    let handle = wire::handle(&call.body.handle)?;
    let args = ReportUsageArgs {
        budget_id: call.body.budget_id,
        amounts: call.body.amounts,
        dedup_key: call.body.dedup_key.or(call.idempotency_key),
    };
    Ok(Answer::json(call.door.backend().report_usage(&handle, args).await?))
}

async fn put_quota(call: Call<Nothing, QuotaRequest>) -> Answered<Answer<QuotaSnapshot>> {
    let (namespace, quota_id) = (namespace(&call), quota_id(&call)?);
    let args = call.body.args(namespace.clone(), quota_id.clone());
    call.door.backend().put_quota(args).await?;
    Ok(Answer::json(call.door.backend().get_quota(&namespace, &quota_id).await?))
}

async fn list_quotas(call: Call<LimitQuery, Nothing>) -> Answered<Answer<QuotasAnswer>> {
    let limit = wire::limit(call.query.limit, 100)?;
    let after = call.query.after.clone().map(QuotaId::new);
    let backend = call.door.backend();
    let found = backend.list_quotas(&namespace(&call), after.as_ref(), limit).await?;
    let Listed { items: quotas, unreadable } = found;
    let last = quotas.last().filter(|_| quotas.len() == limit);
    let next_after = last.map(|quota| quota.quota_id.clone());
    Ok(Answer::json(QuotasAnswer { quotas, next_after, unreadable }))
}

async fn get_quota(call: Call<Nothing, Nothing>) -> Answered<Answer<QuotaSnapshot>> {
    let quota_id = quota_id(&call)?;
    Ok(Answer::json(call.door.backend().get_quota(&namespace(&call), &quota_id).await?))
}

async fn delete_quota(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    let quota_id = quota_id(&call)?;
    call.door.backend().delete_quota(&namespace(&call), &quota_id).await?;
    Ok(Answer::nothing())
}
