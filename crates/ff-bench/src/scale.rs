//! Flows far larger than usual: each must finish, in bounded memory, while others go on working.
//! It runs only if it is asked for with `--only scale`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ff_core::backend::{CancelFlowPolicy, CancelFlowWait};
use ff_core::contracts::FailArgs;
use ff_core::contracts::{FailureClass, FlowStatus};
use ff_core::engine::EngineConfig;
use ff_core::engine_backend::FlowOperations;
use ff_core::limits::Limits;
use ff_core::types::FlowId;
use tokio::runtime::Runtime;

use crate::domain::{node, plant_chain, plant_fan, run, submit};
use crate::measure::{MemoryWatch, micros, percentile};
use crate::report::{Line, Unit};
use crate::workload::{Bed, MANY};

const WIDE: usize = 50_000;
const DEEP: usize = 10_000;
const CANCELLED: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(600);
/// How long somebody rests who works on while a flow is cancelled.
const REST: Duration = Duration::from_millis(5);

/// An engine that accepts such flows in one call.
pub(crate) fn config() -> EngineConfig {
    let limits = Limits { flow_nodes: 200_000, flow_edges: 400_000, ..Limits::default() };
    EngineConfig { limits, ..EngineConfig::default() }
}

pub(crate) fn measure(runtime: &Runtime, bed: &Bed) -> Result<Vec<Line>> {
    let watch = MemoryWatch::start();
    let lines = runtime.block_on(async {
        let mut lines = fan(bed).await?;
        lines.extend(chain(bed).await?);
        lines.extend(skip(bed).await?);
        lines.extend(cancel(bed).await?);
        anyhow::Ok(lines)
    });
    let memory = watch.stop();
    let mut lines = lines?;
    lines.push(Line::new("resident memory, at most", Unit::Megabytes, memory));
    Ok(lines)
}

fn since(name: &str, start: Instant) -> Line {
    Line::new(name, Unit::Micros, micros(start.elapsed()))
}

async fn status(bed: &Bed, flow: &FlowId, wanted: FlowStatus) -> Result<()> {
    let seen = bed.backend().describe_flow(flow).await?.map(|flow| flow.status);
    ensure!(seen == Some(wanted), "a flow is {seen:?}, not {wanted:?}");
    Ok(())
}

async fn fan(bed: &Bed) -> Result<Vec<Line>> {
    let start = Instant::now();
    let flow = plant_fan(bed, WIDE).await?;
    let submitted = since("submit a fan of 50,000", start);
    let start = Instant::now();
    run(bed, MANY, WIDE + 2, PATIENCE).await?;
    status(bed, &flow, FlowStatus::Completed).await?;
    Ok(vec![submitted, since("run it, out and in", start)])
}

async fn chain(bed: &Bed) -> Result<Vec<Line>> {
    let flow = plant_chain(bed, DEEP).await?;
    let start = Instant::now();
    run(bed, MANY, DEEP, PATIENCE).await?;
    status(bed, &flow, FlowStatus::Completed).await?;
    Ok(vec![since("run a chain of 10,000", start)])
}

/// The first of a chain fails, and all the others are skipped.
async fn skip(bed: &Bed) -> Result<Vec<Line>> {
    let flow = plant_chain(bed, DEEP).await?;
    let first = bed.claim(0, 1, PATIENCE).await?;
    ensure!(first.len() == 1, "the chain has no beginning");
    let start = Instant::now();
    let failure =
        FailArgs { reason: "bench".into(), category: "bench".into(), class: FailureClass::Fatal };
    bed.backend().fail(&first[0].handle, failure).await?;
    loop {
        let seen = bed.backend().describe_flow(&flow).await?.map(|flow| flow.status);
        if seen == Some(FlowStatus::Failed) {
            break;
        }
        ensure!(start.elapsed() < PATIENCE, "the flow is {seen:?}");
        tokio::time::sleep(REST).await;
    }
    Ok(vec![since("skip a chain of 10,000", start)])
}

/// A flow is cancelled while somebody submits and completes other work.
async fn cancel(bed: &Bed) -> Result<Vec<Line>> {
    let nodes = (0..CANCELLED).map(|at| node(bed, &format!("n{at}"))).collect();
    let flow = submit(bed, nodes, Vec::new()).await?;
    let over = Arc::new(AtomicBool::new(false));
    let (other, stop) = (bed.clone(), over.clone());
    let others = tokio::spawn(async move {
        let mut times = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            other.submit(1).await?;
            times.push(micros(start.elapsed()));
            tokio::time::sleep(REST).await;
        }
        anyhow::Ok(times)
    });
    let start = Instant::now();
    let wait = CancelFlowWait::WaitTimeout(PATIENCE);
    bed.backend().cancel_flow(&flow, CancelFlowPolicy::CancelAll, wait).await?;
    let line = since("cancel a flow of 100,000", start);
    over.store(true, Ordering::Relaxed);
    let times = others.await??;
    ensure!(!times.is_empty(), "nobody worked meanwhile");
    let left = times.len();
    run(bed, MANY, left, PATIENCE).await?;
    Ok(vec![
        line,
        Line::new("a submit meanwhile, p50", Unit::Micros, percentile(&times, 0.5)),
        Line::new("a submit meanwhile, the longest", Unit::Micros, percentile(&times, 1.0)),
    ])
}
