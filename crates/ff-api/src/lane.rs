//! Lanes and counts.

use ff_core::contracts::{LaneCounts, LaneSnapshot};
use serde::{Deserialize, Serialize};

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
