//! Graphs of executions: submitting, growing and reading them.

use std::collections::BTreeMap;

use ff_core::backend::CancelFlowPolicy;
use ff_core::contracts::{EdgePolicy, FlowEdge};
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, FlowId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{BytesError, Span, SubmitRequest, bounded, bytes};

/// One node of a graph.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowNodeRequest {
    /// Its name in the flow, by which edges find it; absent for a node that only has an id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What is to be done. A node has no idempotency key of its own: the flow has one.
    pub work: SubmitRequest,
    /// How many of its parents it needs; all of them if it is absent.
    #[serde(default)]
    pub policy: EdgePolicy,
    /// Hands the node its parents' results together with its input, as one JSON object.
    #[serde(default)]
    pub merge_results: bool,
}

/// A whole graph, accepted or refused as one.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitFlowRequest {
    /// Chosen by the caller, or made by the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_id: Option<FlowId>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub flow_kind: String,
    /// The same graph under the same key is accepted once, while the flow is kept. It names the
    /// flow, so no `flow_id` may stand beside it. `Idempotency-Key` says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(default, deserialize_with = "bounded::map::<_, { bounded::TAGS }>")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(deserialize_with = "bounded::list::<_, _, { bounded::NODES }>")]
    pub nodes: Vec<FlowNodeRequest>,
    /// `to` depends on `from`; each end is a node's name or an execution id.
    #[serde(default, deserialize_with = "bounded::list::<_, _, { bounded::EDGES }>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<FlowEdge>,
}

/// A running member adds nodes and edges to its own flow.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendFlowRequest {
    pub handle: String,
    #[serde(default, deserialize_with = "bounded::list::<_, _, { bounded::NODES }>")]
    pub nodes: Vec<FlowNodeRequest>,
    /// Between these nodes, from members to them, and into members that have not started.
    #[serde(default, deserialize_with = "bounded::list::<_, _, { bounded::EDGES }>")]
    pub edges: Vec<FlowEdge>,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitChildrenRequest {
    pub handle: String,
}

/// What the first node of a fork begins with instead of its own input and nothing done, if any.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkFlowRequest {
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Any bytes, instead of `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// It begins with the steps that the old node had recorded, up to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps_up_to: Option<String>,
}

impl ForkFlowRequest {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.payload.as_deref(), self.payload_base64.as_deref())
    }
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

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ParentsAnswer {
    /// In the order of the edges.
    pub parents: Vec<Parent>,
    /// Where the next page begins; absent behind the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<Uuid>,
}

/// A parent of a node, and what it ended with.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Parent {
    pub execution_id: ExecutionId,
    pub name: String,
    pub public_state: PublicState,
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Instead of `result` when the bytes are not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
}

impl Parent {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.result.as_deref(), self.result_base64.as_deref())
    }
}
