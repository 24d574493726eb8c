//! What a handler knows of the graph that it is a node of, and adds to it.

use ff_core::contracts::{ExtendFlowArgs, ParentResult, ParentResultsArgs, WaitChildrenResult};
use ff_core::limits::PAGE;
use ff_core::state::PublicState;
use serde::de::DeserializeOwned;

use super::Ctx;
use crate::client::Start;
use crate::error::Error;
use crate::failure::{Failure, Outcome};
use crate::flow::{FlowRun, Graph, Needs, Node};

/// The category of parents whose result is not what the handler takes.
const INVALID_PARENT: &str = "invalid_parent";

/// Nodes that a handler adds to its own flow. The same nodes again, from a handler that begins
/// again, are the first ones.
#[must_use = "nothing is added until `add` is called"]
pub struct Growth {
    ctx: Ctx,
    graph: Graph,
}

impl Ctx {
    /// Begins to add nodes to the flow that this execution belongs to. They are cancelled with it,
    /// and [`Ctx::wait_children`] waits for them.
    pub fn grow(&self) -> Growth {
        Growth { ctx: self.clone(), graph: Graph::default() }
    }

    /// Waits without holding anything until every node that this execution has added has ended,
    /// however. The handler is dropped, and begins again when they have.
    pub async fn wait_children(&self) -> Outcome<()> {
        let transport = self.inner.client.transport();
        match self.insist(|| transport.wait_children(self.handle())).await? {
            WaitChildrenResult::Ended => Ok(()),
            WaitChildrenResult::Waiting { .. } => self.give_way().await,
        }
    }

    /// The nodes that this one waited for, and how each of them ended.
    pub async fn parents(&self) -> Result<Vec<ParentResult>, Error> {
        let transport = self.inner.client.transport();
        let mut args =
            ParentResultsArgs { limit: PAGE, ..ParentResultsArgs::new(self.id().clone()) };
        let mut parents = Vec::new();
        loop {
            let page = self.insist(|| transport.parent_results(args.clone())).await?;
            parents.extend(page.parents);
            args.after = page.next_after;
            if args.after.is_none() {
                return Ok(parents);
            }
        }
    }

    /// The results of the parents that have completed, by name, in the order of the edges.
    pub async fn parent_results<T: DeserializeOwned>(&self) -> Outcome<Vec<(String, T)>> {
        let parents = self.parents().await?;
        let completed =
            parents.into_iter().filter(|parent| parent.public_state == PublicState::Completed);
        completed.map(|parent| Ok((parent.name.clone(), read(&parent)?))).collect()
    }

    /// The result of one parent; `None` if it has not completed.
    pub async fn parent_result<T: DeserializeOwned>(&self, name: &str) -> Outcome<Option<T>> {
        let parents = self.parents().await?;
        let Some(parent) = parents.iter().find(|parent| parent.name == name) else {
            let reason = format!("{name:?} is not a parent of this node");
            return Err(Failure::fatal(INVALID_PARENT, reason));
        };
        match parent.public_state {
            PublicState::Completed => read(parent).map(Some),
            _ => Ok(None),
        }
    }
}

impl Growth {
    /// A node that waits for nothing. Its name is its own within the flow.
    pub fn node<O>(&mut self, name: impl AsRef<str>, start: Start<O>) -> Node<O> {
        self.graph.node(Needs::default(), name.as_ref(), start)
    }

    /// A node that waits for others, of this call or [members](Node::member) of the flow.
    pub fn node_after<O>(
        &mut self,
        needs: Needs,
        name: impl AsRef<str>,
        start: Start<O>,
    ) -> Node<O> {
        self.graph.node(needs, name.as_ref(), start)
    }

    /// Adds all of them in one transaction.
    pub async fn add(self) -> Outcome<FlowRun> {
        let Self { ctx, graph } = self;
        let (nodes, edges) = graph.parts(ctx.namespace())?;
        let names = nodes.iter().map(|node| node.name.clone()).collect();
        let args = ExtendFlowArgs { nodes, edges };
        let transport = ctx.inner.client.transport();
        let added = ctx.insist(|| transport.extend_flow(ctx.handle(), args.clone())).await?;
        Ok(FlowRun::new(ctx.client().clone(), names, &added))
    }
}

fn read<T: DeserializeOwned>(parent: &ParentResult) -> Outcome<T> {
    let bytes = parent.result.as_deref().unwrap_or(b"null");
    serde_json::from_slice(bytes).map_err(|error| {
        let (name, expected) = (&parent.name, std::any::type_name::<T>());
        let reason = format!("the result of {name:?} is not a {expected}: {error}");
        Failure::fatal(INVALID_PARENT, reason)
    })
}
