//! Graphs, waits, steps, cancellations and frames, each against the same run's plain drain rate or
//! a lone durable operation.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ff_core::backend::{CancelFlowPolicy, CancelFlowWait};
use ff_core::condition::{ResumeCondition, SignalMatcher};
use ff_core::contracts::{
    AppendFramesArgs, ClaimedExecution, DeliverSignalArgs, FlowEdge, FlowNode, FrameInput,
    ReadStreamArgs, SignalTarget, Submission, SubmitFlowArgs, SuspendArgs, SuspendOutcome,
};
use ff_core::engine_backend::{
    FlowOperations, StepOperations, StreamOperations, SuspensionOperations,
};
use ff_core::types::{FlowId, Namespace};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::measure::{median, micros, per_second};
use crate::report::{Bar, Line, Unit};
use crate::workload::{BATCH, Bed, Crew, KIND, LANE, MANY, Work, take};

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub drained: usize,
    pub rounds: usize,
    pub probes: usize,
    pub frames: usize,
}

pub(crate) const QUICK: Scale = Scale { drained: 10_000, rounds: 2, probes: 50, frames: 20_000 };
pub(crate) const FULL: Scale = Scale { drained: 20_000, rounds: 3, probes: 200, frames: 100_000 };

const FLOWS: usize = 500;
const CHAIN: usize = 10;
/// As many leases as there are flows.
const ALL_AT_ONCE: Crew = Crew { workers: 16, slots: FLOWS.div_ceil(16) };
const FAN: usize = 1000;
const STEPS: usize = 10;
const STEPPING: usize = 64;
const FRAMES_AT_ONCE: usize = 100;
const PATIENCE: Duration = Duration::from_secs(30);
const REST: Duration = Duration::from_millis(2);

/// All lines of this part.
pub(crate) fn measure(runtime: &Runtime, bed: &Bed, scale: Scale) -> Result<Vec<Line>> {
    runtime.block_on(async {
        let (mut drains, mut lones) = (Vec::new(), Vec::new());
        let mut kinds: [Vec<f64>; 5] = Default::default();
        for _ in 0..scale.rounds {
            drains.push(plain(bed, scale.drained).await?);
            lones.push(lone(bed, scale.probes).await?);
            kinds[0].push(chains(bed).await?);
            kinds[1].push(fan(bed).await?);
            kinds[2].push(steps(bed).await?);
            kinds[3].push(signals(bed, scale.probes).await?);
            kinds[4].push(cancel(bed).await?);
        }
        let frames = frames(bed, scale.frames).await?;
        let (drain, lone) = (median(&drains), median(&lones));
        let [chains, fan, steps, signals, cancel] = kinds.map(|values| median(&values));
        let per_execution = 1e6 / drain;
        Ok(vec![
            Line::new("flows: chains of 10, 500 in flight", Unit::PerSecond, chains)
                .floor("drain / 10", drain / CHAIN as f64)
                .bar(Bar::AtLeast(0.5)),
            Line::new("flow: fan-out and fan-in of 1,000", Unit::Micros, fan)
                .floor("1,000 executions drained", per_execution * FAN as f64)
                .bar(Bar::AtMost(3.0)),
            Line::new("steps: 10 each, 64 executions at once", Unit::PerSecond, steps)
                .floor("drain", drain)
                .bar(Bar::AtLeast(0.5)),
            Line::new("suspend, signal, resume: p50", Unit::Micros, signals)
                .floor("a lone submit", lone)
                .bar(Bar::AtMost(4.0)),
            Line::new("cancel a flow of 1,000 members", Unit::Micros, cancel)
                .floor("a lone submit", lone)
                .bar(Bar::AtMost(40.0)),
            Line::new("append and tail frames, 100 at once", Unit::PerSecond, frames),
        ])
    })
}

/// Executions per second, with nothing hanging on them.
async fn plain(bed: &Bed, count: usize) -> Result<f64> {
    bed.submit_batches(count, BATCH).await?;
    let work = Work { count, wait: PATIENCE, limit: PATIENCE };
    Ok(bed.drain(MANY, work).await?.rate)
}

/// How long one durable write takes at rest, in microseconds.
async fn lone(bed: &Bed, probes: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..probes {
        tokio::time::sleep(REST).await;
        let start = Instant::now();
        bed.submit(1).await?;
        times.push(micros(start.elapsed()));
    }
    let work = Work { count: probes, wait: PATIENCE, limit: PATIENCE };
    bed.drain(MANY, work).await?;
    Ok(median(&times))
}

async fn chains(bed: &Bed) -> Result<f64> {
    let mut planting = JoinSet::new();
    for _ in 0..FLOWS {
        let bed = bed.clone();
        planting.spawn(async move { plant_chain(&bed, CHAIN).await });
    }
    while let Some(planted) = planting.join_next().await {
        planted??;
    }
    let start = Instant::now();
    run(bed, ALL_AT_ONCE, FLOWS * CHAIN, PATIENCE).await?;
    Ok(per_second(FLOWS, start))
}

/// From the first claim to the completion of the last node.
async fn fan(bed: &Bed) -> Result<f64> {
    plant_fan(bed, FAN).await?;
    let start = Instant::now();
    run(bed, MANY, FAN + 2, PATIENCE).await?;
    Ok(micros(start.elapsed()))
}

/// One node, so many behind it, and one behind all of them.
pub(crate) async fn plant_fan(bed: &Bed, width: usize) -> Result<FlowId> {
    let name = |at: usize| format!("n{at}");
    let mut nodes = vec![node(bed, "root"), node(bed, "end")];
    let mut edges = Vec::new();
    for at in 0..width {
        nodes.push(node(bed, &name(at)));
        edges.push(FlowEdge::new("root", name(at)));
        edges.push(FlowEdge::new(name(at), "end"));
    }
    submit(bed, nodes, edges).await
}

/// Each node behind the one before it.
pub(crate) async fn plant_chain(bed: &Bed, length: usize) -> Result<FlowId> {
    let name = |at: usize| format!("n{at}");
    let nodes = (0..length).map(|at| node(bed, &name(at)));
    let edges = (1..length).map(|at| FlowEdge::new(name(at - 1), name(at)));
    submit(bed, nodes.collect(), edges.collect()).await
}

/// Runs so many nodes, all of them.
pub(crate) async fn run(bed: &Bed, crew: Crew, count: usize, limit: Duration) -> Result<()> {
    let work = Work { count, wait: limit, limit };
    let drained = bed.drain(crew, work).await?;
    ensure!(drained.count == count, "{} of {count} were run", drained.count);
    Ok(())
}

/// Steps per second.
async fn steps(bed: &Bed) -> Result<f64> {
    let count = STEPPING * 8;
    bed.submit_batches(count, BATCH).await?;
    let left = Arc::new(AtomicUsize::new(count));
    let start = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..STEPPING {
        let (bed, left) = (bed.clone(), left.clone());
        running.spawn(async move {
            while take(&left, 1).is_some() {
                let one = claim_one(&bed, number).await?;
                for step in 0..STEPS {
                    let name = format!("step-{step}");
                    bed.backend().record_step(&one.handle, &name, bed.payload.to_vec()).await?;
                }
                bed.backend().complete(&one.handle, None).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(per_second(count * STEPS, start))
}

/// Suspends, signals and claims again, one after the other.
async fn signals(bed: &Bed, probes: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..probes {
        bed.submit(1).await?;
        let one = claim_one(bed, 0).await?;
        tokio::time::sleep(REST).await;
        let condition =
            ResumeCondition::Single { waitpoint_key: "go".to_owned(), matcher: SignalMatcher::Any };
        let start = Instant::now();
        let args = SuspendArgs::new(condition).without_tokens();
        let suspended = bed.backend().suspend(&one.handle, args).await?;
        let SuspendOutcome::Suspended(details) = suspended else {
            bail!("nobody has signalled yet")
        };
        let waitpoint_id = details.waitpoints.first().context("no waitpoint")?.waitpoint_id;
        let execution_id = one.execution_id.clone();
        let target = SignalTarget::Waitpoint { execution_id, waitpoint_id };
        bed.backend().deliver_signal(DeliverSignalArgs::new(target, "go")).await?;
        let resumed = claim_one(bed, 0).await?;
        times.push(micros(start.elapsed()));
        bed.backend().complete(&resumed.handle, None).await?;
    }
    Ok(median(&times))
}

async fn cancel(bed: &Bed) -> Result<f64> {
    let name = |at: usize| format!("n{at}");
    let nodes = (0..FAN).map(|at| node(bed, &name(at))).collect();
    let flow = submit(bed, nodes, Vec::new()).await?;
    tokio::time::sleep(REST).await;
    let start = Instant::now();
    let wait = CancelFlowWait::WaitTimeout(PATIENCE);
    bed.backend().cancel_flow(&flow, CancelFlowPolicy::CancelAll, wait).await?;
    Ok(micros(start.elapsed()))
}

/// Frames per second that are appended by one and read by another at the same time.
async fn frames(bed: &Bed, count: usize) -> Result<f64> {
    bed.submit(1).await?;
    let one = claim_one(bed, 0).await?;
    let start = Instant::now();
    let (reader, id) = (bed.clone(), one.execution_id.clone());
    let tail = tokio::spawn(async move {
        let mut args = ReadStreamArgs::new(id);
        args.wait_ms = PATIENCE.as_millis() as u64;
        args.limit = 1000;
        let mut seen = 0;
        while seen < count {
            let page = reader.backend().read_stream(args.clone()).await?;
            seen += page.frames.len();
            args.from = page.next;
        }
        anyhow::Ok(())
    });
    for _ in 0..count / FRAMES_AT_ONCE {
        let frame = || FrameInput::new("bench", bed.payload.to_vec());
        let frames = (0..FRAMES_AT_ONCE).map(|_| frame()).collect();
        let args = AppendFramesArgs { frames, append_id: None };
        bed.backend().append_frames(&one.handle, args).await?;
    }
    tail.await??;
    let rate = per_second(count, start);
    bed.backend().complete(&one.handle, None).await?;
    Ok(rate)
}

pub(crate) fn node(bed: &Bed, name: &str) -> FlowNode {
    FlowNode::new(name, Submission::new(LANE, KIND).payload(&*bed.payload))
}

pub(crate) async fn submit(
    bed: &Bed,
    nodes: Vec<FlowNode>,
    edges: Vec<FlowEdge>,
) -> Result<FlowId> {
    let namespace = Namespace::new("default");
    let args = SubmitFlowArgs { namespace, nodes, edges, ..SubmitFlowArgs::default() };
    Ok(bed.backend().submit_flow(args).await?.flow_id())
}

async fn claim_one(bed: &Bed, worker: usize) -> Result<ClaimedExecution> {
    let claimed = bed.claim(worker, 1, PATIENCE).await?;
    claimed.into_iter().next().context("the lane ran dry")
}
