//! Submits work, waits for it and follows what happens to it.

mod frames;
#[cfg(feature = "http")]
mod http;
mod run;
mod signal;
mod start;

pub use frames::Frames;
pub use run::Run;
pub use start::Start;

use std::fmt;
use std::sync::Arc;

use ff_core::backend::CancelFlowPolicy;
use ff_core::contracts::{
    Event, EventFilter, ExecutionSnapshot, FlowSnapshot, Submission, SubmitOutcome,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{EngineBackend, Namespaced};
use ff_core::types::{ExecutionId, FlowId, Namespace};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::task::Task;
use crate::transport::{Embedded, EventStream, Transport};

/// The way to an engine. Cheap to clone; every clone uses the same engine.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    namespace: Namespace,
}

impl Client {
    /// A client of an engine in this process.
    pub fn embedded(backend: Arc<dyn EngineBackend>) -> Self {
        let scope = backend.scope().cloned();
        let namespace = scope.unwrap_or_else(|| Namespace::new("default"));
        Self::with_transport(Arc::new(Embedded::new(backend)), namespace)
    }

    /// A client of an engine in this process that sees one namespace only.
    pub fn embedded_in(backend: Arc<dyn EngineBackend>, namespace: impl Into<String>) -> Self {
        let namespace = Namespace::new(namespace);
        Self::embedded(Arc::new(Namespaced::new(backend, namespace)))
    }

    /// A client that reaches its engine in a way of its own.
    pub fn with_transport(transport: Arc<dyn Transport>, namespace: Namespace) -> Self {
        Self { transport, namespace }
    }

    pub(crate) fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// The namespace that [`Client::start`] submits to.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Submits one task. Await it for the [`Run`] that stands for it.
    pub fn start<I: Serialize, O>(&self, task: Task<I, O>, input: &I) -> Start<O> {
        Start::new(self.clone(), task, input)
    }

    /// Submits up to 10,000 pieces of work in one transaction, each with its own outcome. They say
    /// themselves which namespace they belong to.
    pub async fn submit(&self, items: Vec<Submission>) -> Result<Vec<SubmitOutcome>, Error> {
        Ok(self.transport.submit(items).await?)
    }

    /// An execution that was started before, here or elsewhere.
    pub fn run<O: DeserializeOwned>(&self, id: ExecutionId) -> Run<O> {
        Run::new(self.clone(), id, false)
    }

    /// Everything about one execution except its bytes.
    pub async fn describe(&self, id: &ExecutionId) -> Result<Option<ExecutionSnapshot>, Error> {
        Ok(self.transport.describe(id).await?)
    }

    /// Ends an execution as cancelled, whatever it is doing. Its worker is told with its next
    /// renewal.
    pub async fn cancel(&self, id: &ExecutionId, reason: &str) -> Result<(), Error> {
        Ok(self.transport.cancel_execution(id, reason).await?)
    }

    /// Everything about a flow except its graph.
    pub async fn describe_flow(&self, id: &FlowId) -> Result<Option<FlowSnapshot>, Error> {
        Ok(self.transport.describe_flow(id).await?)
    }

    /// Ends a flow as cancelled, and the members that the policy names.
    pub async fn cancel_flow(&self, id: &FlowId, policy: CancelFlowPolicy) -> Result<(), Error> {
        Ok(self.transport.cancel_flow(id, policy).await?)
    }

    /// Follows the log. Keep the cursor of the last event to go on after a restart.
    pub async fn events(&self, filter: EventFilter, start: StartAt) -> Result<Events, Error> {
        Ok(Events { stream: self.transport.events(filter, start).await? })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// The log as a client follows it.
pub struct Events {
    stream: Box<dyn EventStream>,
}

impl Events {
    /// The next event that passes the filter; waits for it.
    pub async fn next(&mut self) -> Result<Event, Error> {
        Ok(self.stream.next().await?)
    }
}
