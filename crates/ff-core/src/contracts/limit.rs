//! Budgets and quotas: what is declared, what is reported, and what callers are told of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::{BudgetId, ExecutionId, FlowId, LaneId, Namespace, QuotaId, TimestampMs};

/// Amounts by dimension, such as `tokens` or `cents`.
pub type Amounts = BTreeMap<String, u64>;

/// What a budget applies to besides the executions whose policy names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// Nothing else: it must be named in `policy.budget_ids`.
    #[default]
    Named,
    /// One execution.
    Execution(ExecutionId),
    /// Every member of one flow.
    Flow(FlowId),
    Lane(LaneId),
    /// Every execution that carries this tag with this value.
    Tag {
        name: String,
        value: String,
    },
    /// Every execution of the budget's namespace.
    Namespace,
}

/// What becomes of an execution that its budget has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BreachAction {
    /// It waits until there is room: a reset, a refund or a higher limit.
    #[default]
    Refuse,
    /// It is suspended until somebody approves it.
    Suspend,
    /// It is cancelled.
    CancelPending,
}

/// The bounds of one dimension; an absent bound does not limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DimensionLimits {
    /// What is used and what is reserved never exceed this together.
    pub hard: Option<u64>,
    /// Using more than this is told with an event.
    pub soft: Option<u64>,
}

/// Declares a budget, or declares it anew; what has been used stays used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PutBudgetArgs {
    pub namespace: Namespace,
    pub budget_id: BudgetId,
    pub scope: BudgetScope,
    pub dimensions: BTreeMap<String, DimensionLimits>,
    /// Reserved by every claim, unless the execution's policy has an estimate of its own.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u64>))]
    pub estimate: Amounts,
    /// What is used goes back to zero so often; absent means never.
    pub reset_period_ms: Option<u64>,
    pub on_breach: BreachAction,
}

/// One dimension of a budget as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DimensionUsage {
    pub used: u64,
    /// Held for executions that are running.
    pub reserved: u64,
    pub hard: Option<u64>,
    pub soft: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BudgetSnapshot {
    pub namespace: Namespace,
    pub budget_id: BudgetId,
    pub scope: BudgetScope,
    pub dimensions: BTreeMap<String, DimensionUsage>,
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u64>))]
    pub estimate: Amounts,
    pub reset_period_ms: Option<u64>,
    pub next_reset_at: Option<TimestampMs>,
    pub on_breach: BreachAction,
    /// How often a hard limit has stood in the way.
    pub hard_breaches: u64,
    pub soft_breaches: u64,
    pub last_breach_at: Option<TimestampMs>,
    pub last_breach_dimension: Option<String>,
}

/// Usage that the holder of an execution reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReportUsageArgs {
    pub budget_id: BudgetId,
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u64>))]
    pub amounts: Amounts,
    /// Within one execution and budget a key counts once; a repeat is told so.
    pub dedup_key: Option<String>,
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum UsageOutcome {
    Applied,
    /// Applied, and a dimension is above its soft limit.
    SoftBreach {
        dimension: String,
        used: u64,
        soft: u64,
    },
    /// Nothing of the report was applied, because a dimension would exceed its hard limit.
    HardBreach {
        dimension: String,
        used: u64,
        hard: u64,
    },
    /// The key was seen before; nothing was applied again.
    AlreadyApplied,
}

/// Lets a suspended execution ask its budget again, with more room if that is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApproveBudgetArgs {
    pub execution_id: ExecutionId,
    /// Added to the hard limits of the budget that it waits for.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u64>))]
    pub raise: Amounts,
    #[serde(default)]
    pub by: String,
}

/// What a quota counts apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum QuotaKey {
    /// Everything that the quota applies to is counted together.
    #[default]
    All,
    Lane,
    Kind,
    Namespace,
    /// Each value of this tag. Executions without the tag share a count of their own.
    Tag(String),
}

/// At most `limit` claims within any `window_ms` milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub limit: u32,
    pub window_ms: u64,
}

/// Declares a quota, or declares it anew. One without any limit does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PutQuotaArgs {
    /// Only executions of this namespace; empty means of all of them.
    pub namespace: Namespace,
    pub quota_id: QuotaId,
    /// Only executions of this lane.
    pub lane_id: Option<LaneId>,
    /// Only executions of this kind.
    pub execution_kind: Option<String>,
    pub key: QuotaKey,
    pub rate: Option<RateLimit>,
    /// At most so many executions of one key run at once.
    pub concurrency: Option<u32>,
    /// Keys of one lane take turns, as their weights say, whoever queued first.
    pub fair: bool,
    /// By key value; a key without a weight has 1.
    pub weights: BTreeMap<String, u32>,
}

/// One key of a quota as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaUsage {
    pub key: String,
    /// Leases that hold a permit.
    pub in_use: u64,
    /// Claims that the window still counts.
    pub in_window: u64,
    /// When the rate lets the next claim through; absent if it does now.
    pub next_at: Option<TimestampMs>,
    /// Whether executions wait for room.
    pub waiting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaSnapshot {
    #[serde(flatten)]
    pub quota: PutQuotaArgs,
    /// The keys that are in use or have been lately, up to 1,000 of them.
    pub usage: Vec<QuotaUsage>,
    /// Whether there are more keys than `usage` shows.
    #[serde(default)]
    pub usage_truncated: bool,
}
