//! Budgets and quotas. Their names stand in the address, their namespace in the request.

use std::collections::BTreeMap;

use ff_core::contracts::{
    BreachAction, BudgetScope, BudgetSnapshot, DimensionLimits, PutQuotaArgs, QuotaKey, RateLimit,
};
use ff_core::types::{BudgetId, ExecutionId, LaneId, Namespace, QuotaId, TimestampMs};
use serde::{Deserialize, Serialize};

/// Declares a budget, or declares it anew; what has been used stays used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetRequest {
    /// What it applies to besides the executions whose policy names it.
    pub scope: BudgetScope,
    pub dimensions: BTreeMap<String, DimensionLimits>,
    /// Reserved by every claim, unless the execution's policy has an estimate of its own.
    pub estimate: BTreeMap<String, u64>,
    /// What is used goes back to zero so often; absent means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_period_ms: Option<u64>,
    pub on_breach: BreachAction,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BudgetsAnswer {
    pub budgets: Vec<BudgetSnapshot>,
    /// Pass it as `after` for what follows; present when there is more.
    pub next_after: Option<BudgetId>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ResetBudgetAnswer {
    /// When the next period begins by itself.
    pub next_reset_at: Option<TimestampMs>,
}

/// Takes back what an execution has spent of a budget in its present period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseBudgetRequest {
    pub execution_id: ExecutionId,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ReleaseBudgetAnswer {
    /// Empty if there was nothing to take back.
    pub released: BTreeMap<String, u64>,
}

/// Lets a suspended execution ask its budget again, with more room if that is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApproveBudgetRequest {
    /// Added to the hard limits of the budget that it waits for.
    pub raise: BTreeMap<String, u64>,
}

/// The holder says what it has used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportUsageRequest {
    pub handle: String,
    pub budget_id: BudgetId,
    pub amounts: BTreeMap<String, u64>,
    /// Within one execution and budget a key counts once; a repeat is told so. `Idempotency-Key`
    /// says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<String>,
}

/// Declares a quota, or declares it anew. One without any limit does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaRequest {
    /// Only executions of this lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane_id: Option<LaneId>,
    /// Only executions of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_kind: Option<String>,
    /// What is counted apart.
    pub key: QuotaKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateLimit>,
    /// At most so many executions of one key run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Keys of one lane take turns, as their weights say, whoever queued first.
    pub fair: bool,
    /// By key value; a key without a weight has 1.
    pub weights: BTreeMap<String, u32>,
}

impl QuotaRequest {
    pub fn args(self, namespace: Namespace, quota_id: QuotaId) -> PutQuotaArgs {
        let Self { lane_id, execution_kind, key, rate, concurrency, fair, weights } = self;
        PutQuotaArgs {
            namespace,
            quota_id,
            lane_id,
            execution_kind,
            key,
            rate,
            concurrency,
            fair,
            weights,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QuotasAnswer {
    /// As they were declared.
    pub quotas: Vec<PutQuotaArgs>,
    /// Pass it as `after` for what follows; present when there is more.
    pub next_after: Option<QuotaId>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}
