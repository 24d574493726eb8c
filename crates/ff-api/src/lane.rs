//! Lanes, counts and the cancelling of flows.

use ff_core::backend::CancelFlowPolicy;
use ff_core::contracts::{LaneCounts, LaneSnapshot};
use serde::{Deserialize, Serialize};

use crate::Span;

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PauseLaneRequest {
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LanesAnswer {
    pub lanes: Vec<LaneSnapshot>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CountsAnswer {
    pub counts: Vec<LaneCounts>,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelFlowRequest {
    pub policy: CancelFlowPolicy,
    /// How long to wait until no member runs any more; at most 60 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CancelFlowAnswer {
    pub cancellation_policy: String,
    pub member_execution_ids: Vec<String>,
}
