//! Graphs of tasks: a node is a task under a name, and an edge says that one waits for another.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use ff_sdk::testing::TestKit;
//! use ff_sdk::{Ctx, Input, Needs, Outcome, Task, Worker};
//!
//! const COUNT: Task<String, usize> = Task::new("count");
//! const SUM: Task<(), usize> = Task::new("sum");
//!
//! async fn count(Input(text): Input<String>) -> Outcome<usize> {
//!     Ok(text.len())
//! }
//!
//! async fn sum(ctx: Ctx, Input(()): Input<()>) -> Outcome<usize> {
//!     Ok(ctx.parent_results::<usize>().await?.into_iter().map(|(_, count)| count).sum())
//! }
//!
//! let kit = TestKit::new(|client| Worker::new(client).task(COUNT, count).task(SUM, sum))?;
//! let client = kit.client();
//! let mut flow = client.flow("word-count");
//! let counted = ["one", "three"].map(|word| {
//!     flow.node(word, client.start(COUNT, &word.to_owned()))
//! });
//! let sum = flow.node_after(Needs::all_of(&counted), "sum", client.start(SUM, &()));
//! let flow = flow.submit().await?;
//! kit.run_until_idle().await?;
//! assert_eq!(flow.run(&sum)?.result().await?, 8);
//! # Ok::<(), ff_sdk::Error>(())
//! # }).unwrap();
//! ```

mod builder;
mod run;

pub use builder::Flow;
pub use run::FlowRun;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ff_core::contracts::{EdgePolicy, FlowEdge, FlowNode, OnSatisfied};
use ff_core::types::{ExecutionId, Namespace};

use crate::client::Start;
use crate::error::Error;

/// A node of a graph, whose result has the type `O`.
pub struct Node<O> {
    name: Arc<str>,
    output: PhantomData<fn() -> O>,
}

impl<O> Node<O> {
    fn new(name: &str) -> Self {
        Self { name: name.into(), output: PhantomData }
    }

    /// A member that is in the flow already, for a handler that adds to its own.
    pub fn member(id: &ExecutionId) -> Self {
        Self::new(id.as_str())
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

// Derives would ask the same of the type of the result.
impl<O> Clone for Node<O> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), output: PhantomData }
    }
}

impl<O> fmt::Debug for Node<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.name)
    }
}

/// What a node waits for: some other nodes, and how many of them.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Needs {
    parents: Vec<Arc<str>>,
    policy: EdgePolicy,
    merge_results: bool,
}

impl Needs {
    /// Every one of these completes. If one does not, the node is skipped.
    pub fn all_of<'n, O: 'n>(parents: impl IntoIterator<Item = &'n Node<O>>) -> Self {
        let parents = parents.into_iter().map(|node| node.name.clone()).collect();
        Self { parents, ..Self::default() }
    }

    /// One of these completes; the first good answer wins.
    pub fn any_of<'n, O: 'n>(parents: impl IntoIterator<Item = &'n Node<O>>) -> Self {
        let policy = EdgePolicy::AnyOf { on_satisfied: OnSatisfied::LetRun };
        Self { policy, ..Self::all_of(parents) }
    }

    /// So many of these complete.
    pub fn quorum<'n, O: 'n>(k: u32, parents: impl IntoIterator<Item = &'n Node<O>>) -> Self {
        let policy = EdgePolicy::Quorum { k, on_satisfied: OnSatisfied::LetRun };
        Self { policy, ..Self::all_of(parents) }
    }

    /// One more, whose result may have another type.
    pub fn and<O>(mut self, parent: &Node<O>) -> Self {
        self.parents.push(parent.name.clone());
        self
    }

    /// Once enough have completed the others are cancelled, whatever else depends on them. Without
    /// it they go on. If every one is needed there are no others.
    pub fn cancel_remaining(mut self) -> Self {
        if let EdgePolicy::AnyOf { on_satisfied } | EdgePolicy::Quorum { on_satisfied, .. } =
            &mut self.policy
        {
            *on_satisfied = OnSatisfied::CancelRemaining;
        }
        self
    }

    /// Hands the node its parents' results together with its input, as one JSON object with the
    /// field `parents`. Handlers in Rust have [`Ctx::parent_results`](crate::Ctx::parent_results).
    pub fn merge_results(mut self) -> Self {
        self.merge_results = true;
        self
    }
}

/// Nodes and edges that are being put together.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<FlowNode>,
    edges: Vec<FlowEdge>,
    invalid: Option<Error>,
}

impl Graph {
    pub fn node<O>(&mut self, needs: Needs, name: &str, start: Start<O>) -> Node<O> {
        match start.into_submission() {
            Ok(work) => self.nodes.push(FlowNode {
                name: name.to_owned(),
                work,
                policy: needs.policy,
                merge_results: needs.merge_results,
            }),
            Err(error) => self.invalid = self.invalid.take().or(Some(error)),
        }
        self.edges.extend(needs.parents.into_iter().map(|parent| FlowEdge::new(&*parent, name)));
        Node::new(name)
    }

    /// What goes to the engine, all of it in one namespace.
    pub fn parts(self, namespace: &Namespace) -> Result<(Vec<FlowNode>, Vec<FlowEdge>), Error> {
        let Self { mut nodes, edges, invalid } = self;
        if let Some(error) = invalid {
            return Err(error);
        }
        for node in &mut nodes {
            node.work.namespace = namespace.clone();
        }
        Ok((nodes, edges))
    }
}
