//! A graph that was accepted, as the program that submitted it sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ff_core::backend::CancelFlowPolicy;
use ff_core::contracts::{FlowSnapshot, SubmitFlowResult};
use ff_core::engine_error::EngineError;
use ff_core::types::{ExecutionId, FlowId};
use serde::de::DeserializeOwned;

use super::Node;
use crate::client::{Client, Run};
use crate::error::Error;

/// How long one request waits for the end before it is asked again.
const WAIT: Duration = Duration::from_secs(20);

/// A flow and its nodes. Dropping it stops nothing.
pub struct FlowRun {
    client: Client,
    id: FlowId,
    created: bool,
    members: BTreeMap<String, ExecutionId>,
}

impl FlowRun {
    pub(crate) fn new(client: Client, names: Vec<String>, accepted: &SubmitFlowResult) -> Self {
        let created = matches!(accepted, SubmitFlowResult::Created { .. });
        let members = names.into_iter().zip(accepted.execution_ids().iter().cloned()).collect();
        Self { client, id: accepted.flow_id(), created, members }
    }

    pub fn id(&self) -> FlowId {
        self.id
    }

    /// Whether this call brought it into being; if not, the same graph was there before.
    pub fn created(&self) -> bool {
        self.created
    }

    /// The execution of a node of this graph.
    pub fn run<O: DeserializeOwned>(&self, node: &Node<O>) -> Result<Run<O>, Error> {
        let id = self.members.get(node.name());
        let id = id.ok_or(EngineError::NotFound { entity: "node" })?;
        Ok(self.client.run(id.clone()))
    }

    /// Waits for the end of every member.
    pub async fn finished(&self) -> Result<FlowSnapshot, Error> {
        loop {
            if let Some(flow) = self.client.transport().wait_flow(&self.id, WAIT).await? {
                return Ok(flow);
            }
        }
    }

    pub async fn describe(&self) -> Result<FlowSnapshot, Error> {
        let flow = self.client.describe_flow(&self.id).await?;
        Ok(flow.ok_or(EngineError::NotFound { entity: "flow" })?)
    }

    pub async fn cancel(&self, policy: CancelFlowPolicy) -> Result<(), Error> {
        self.client.cancel_flow(&self.id, policy).await
    }
}

impl fmt::Debug for FlowRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowRun({})", self.id.0)
    }
}
