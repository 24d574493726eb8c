//! Two flows far larger than usual, one wide and one deep, worked off by a process that is killed
//! again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use ff_core::backend::CapabilitySet;
use ff_core::contracts::{
    ClaimArgs, EventFilter, FlowEdge, FlowNode, FlowStatus, Submission, SubmitFlowArgs,
};
use ff_core::engine::{EngineConfig, StartAt};
use ff_core::engine_backend::{EngineBackend, FlowOperations};
use ff_core::limits::Limits;
use ff_core::types::{ExecutionId, FlowId, LaneId, Namespace, WorkerId, WorkerInstanceId};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::evidence::LogEvent;

const LANE: &str = "large";
const WORKERS: usize = 4;
const CLAIM_AT_ONCE: usize = 64;
const CLAIM_WAIT: Duration = Duration::from_millis(200);
/// Short, so that the work of a killed process soon comes back; whoever finishes has more time.
const LEASE_MS: u32 = 1_000;
const PATIENT_LEASE_MS: u32 = 30_000;
const PAUSE: Duration = Duration::from_millis(20);

/// How large they are: nodes side by side between two others, and nodes behind each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub depth: usize,
}

/// One of the two flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Large {
    pub flow: Uuid,
    /// The ids of the nodes in the order of the graph.
    pub nodes: Vec<String>,
    /// Each edge by the places of its ends.
    pub edges: Vec<(usize, usize)>,
}

impl Large {
    fn new(number: u128, partition: u16, nodes: usize, edges: Vec<(usize, usize)>) -> Self {
        let id = |at: usize| {
            let id = Uuid::from_u128(number << 64 | at as u128);
            ExecutionId::from_parts(partition, id).as_str().to_owned()
        };
        let flow = Uuid::from_u128(number);
        Self { flow, nodes: (0..nodes).map(id).collect(), edges }
    }

    /// The first node, so many behind it, and one behind all of them.
    pub fn wide(width: usize, partition: impl Fn(Uuid) -> u16) -> Self {
        let last = width + 1;
        let out = (1..last).map(|at| (0, at));
        let edges = out.chain((1..last).map(|at| (at, last))).collect();
        Self::new(1, partition(Uuid::from_u128(1)), width + 2, edges)
    }

    /// Each node behind the one before it.
    pub fn deep(depth: usize, partition: impl Fn(Uuid) -> u16) -> Self {
        let edges = (1..depth).map(|at| (at - 1, at)).collect();
        Self::new(2, partition(Uuid::from_u128(2)), depth, edges)
    }

    fn args(&self) -> anyhow::Result<SubmitFlowArgs> {
        let name = |at: usize| format!("n{at}");
        let mut args = SubmitFlowArgs {
            flow_id: Some(FlowId(self.flow)),
            namespace: Namespace::new("default"),
            flow_kind: "large".into(),
            ..SubmitFlowArgs::default()
        };
        for (at, id) in self.nodes.iter().enumerate() {
            let work = Submission::new(LANE, "large").id(ExecutionId::parse(id)?);
            args.nodes.push(FlowNode::new(name(at), work));
        }
        args.edges
            .extend(self.edges.iter().map(|(from, to)| FlowEdge::new(name(*from), name(*to))));
        Ok(args)
    }
}

impl Size {
    /// What an engine must allow to accept such flows in one call.
    pub fn config(self) -> EngineConfig {
        let most = self.width.max(self.depth) + 2;
        let limits = Limits::default();
        let (nodes, edges) = (limits.flow_nodes.max(most), limits.flow_edges.max(2 * most));
        let limits = Limits { flow_nodes: nodes, flow_edges: edges, ..limits };
        EngineConfig { limits, ..EngineConfig::default() }
    }

    pub fn flows(self, backend: &dyn EngineBackend) -> [Large; 2] {
        let partition = |flow| backend.engine().store().flow_partition(&FlowId(flow));
        [Large::wide(self.width, partition), Large::deep(self.depth, partition)]
    }
}

/// Works until the process is killed.
pub async fn work_until_killed(backend: Arc<dyn EngineBackend>) -> anyhow::Result<()> {
    let mut workers = workers(&backend, LEASE_MS);
    match workers.join_next().await {
        Some(ended) => ended?,
        None => Ok(()),
    }
}

/// Submits the flows unless they are there.
pub async fn plant(backend: &dyn EngineBackend, size: Size) -> anyhow::Result<()> {
    for large in size.flows(backend) {
        if backend.describe_flow(&FlowId(large.flow)).await?.is_none() {
            backend.submit_flow(large.args()?).await?;
        }
    }
    Ok(())
}

fn workers(backend: &Arc<dyn EngineBackend>, lease_ms: u32) -> JoinSet<anyhow::Result<()>> {
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        workers.spawn(work(backend.clone(), format!("worker-{worker}"), lease_ms));
    }
    workers
}

/// Completes whatever comes. What it is too late for somebody else will complete.
async fn work(
    backend: Arc<dyn EngineBackend>,
    name: String,
    lease_ttl_ms: u32,
) -> anyhow::Result<()> {
    loop {
        let claimed = backend.claim_many(ClaimArgs {
            lanes: vec![LaneId::new(LANE)],
            capabilities: CapabilitySet::default(),
            worker_id: WorkerId::new("large"),
            worker_instance_id: WorkerInstanceId::new(name.clone()),
            lease_ttl_ms,
            max: CLAIM_AT_ONCE,
            wait: CLAIM_WAIT,
        });
        let mut completing = JoinSet::new();
        for one in claimed.await? {
            let backend = backend.clone();
            completing.spawn(async move { backend.complete(&one.handle, None).await.is_ok() });
        }
        completing.join_all().await;
    }
}

/// Works until both flows have ended, and tells what the log says of them.
pub async fn finish(
    backend: Arc<dyn EngineBackend>,
    size: Size,
    patience: Duration,
) -> anyhow::Result<(Vec<Large>, Vec<LogEvent>)> {
    plant(&*backend, size).await?;
    let mut workers = workers(&backend, PATIENT_LEASE_MS);
    let started = Instant::now();
    let flows = size.flows(&*backend).to_vec();
    for large in &flows {
        loop {
            let seen = backend.describe_flow(&FlowId(large.flow)).await?.map(|flow| flow.status);
            if seen == Some(FlowStatus::Completed) {
                break;
            }
            ensure!(started.elapsed() < patience, "flow {} is {seen:?}", large.flow);
            tokio::time::sleep(PAUSE).await;
        }
    }
    workers.shutdown().await;
    let mut log = Vec::new();
    let mut subscription = backend.subscribe(EventFilter::default(), StartAt::Oldest).await?;
    while let Some(event) = subscription.try_next().await? {
        log.extend(LogEvent::of(&event));
    }
    Ok((flows, log))
}
