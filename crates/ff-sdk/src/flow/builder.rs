//! A graph on its way to the engine.

use std::collections::BTreeMap;

use ff_core::contracts::SubmitFlowArgs;
use ff_core::types::FlowId;

use super::{FlowRun, Graph, Needs, Node};
use crate::client::{Client, Start};
use crate::error::Error;

/// A graph that is accepted or refused as a whole by [`Flow::submit`].
#[derive(Debug)]
#[must_use = "nothing is submitted until `submit` is called"]
pub struct Flow {
    client: Client,
    kind: String,
    id: Option<FlowId>,
    idempotency_key: Option<String>,
    tags: BTreeMap<String, String>,
    graph: Graph,
}

impl Client {
    /// Begins a graph of tasks. The kind is a word for operators.
    pub fn flow(&self, kind: impl Into<String>) -> Flow {
        Flow {
            client: self.clone(),
            kind: kind.into(),
            id: None,
            idempotency_key: None,
            tags: BTreeMap::new(),
            graph: Graph::default(),
        }
    }
}

impl Flow {
    /// Under an identity of the caller's choice.
    pub fn id(mut self, id: FlowId) -> Self {
        self.id = Some(id);
        self
    }

    /// The same graph under the same key is accepted once.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(key.into(), value.into());
        self
    }

    /// A node that waits for nothing. Its name is its own within the flow.
    pub fn node<O>(&mut self, name: impl AsRef<str>, start: Start<O>) -> Node<O> {
        self.graph.node(Needs::default(), name.as_ref(), start)
    }

    /// A node that waits for others.
    pub fn node_after<O>(
        &mut self,
        needs: Needs,
        name: impl AsRef<str>,
        start: Start<O>,
    ) -> Node<O> {
        self.graph.node(needs, name.as_ref(), start)
    }

    /// Submits the whole graph in one transaction. A graph that is refused is so with every reason.
    pub async fn submit(self) -> Result<FlowRun, Error> {
        let namespace = self.client.namespace().clone();
        let (nodes, edges) = self.graph.parts(&namespace)?;
        let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
        let args = SubmitFlowArgs {
            flow_id: self.id,
            namespace,
            flow_kind: self.kind,
            idempotency_key: self.idempotency_key,
            tags: self.tags,
            nodes,
            edges,
        };
        let accepted = self.client.transport().submit_flow(args).await?;
        Ok(FlowRun::new(self.client, names, &accepted))
    }
}
