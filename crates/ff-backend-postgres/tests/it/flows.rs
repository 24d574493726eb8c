//! Flows between two engines: those who end members and those who cancel the whole flow wait for
//! each other in one order, and nobody is turned away. What one engine holds of a graph counts only
//! as long as the other has not written it.

use std::sync::Arc;
use std::time::Duration;

use ff_backend_postgres::PostgresBackend;
use ff_core::backend::{CancelFlowPolicy, CancelFlowWait, Handle};
use ff_core::contracts::{
    ExtendFlowArgs, FlowEdge, FlowNode, FlowStatus, Submission, SubmitFlowArgs,
};
use ff_core::engine_backend::{EngineBackend, FlowOperations};
use ff_core::engine_error::{ContentionKind, EngineError};
use ff_core::types::{FlowId, Namespace};
use tokio::task::JoinSet;

use crate::database::{Schema, claim_from};

const FLOWS: usize = 24;
const ROOTS: usize = 8;

/// So many nodes and one behind all of them.
async fn plant(engine: &PostgresBackend) -> FlowId {
    let node = |name: String| FlowNode::new(name, Submission::new("flows", "test"));
    let names = || (0..ROOTS).map(|at| format!("n{at}"));
    let args = SubmitFlowArgs {
        namespace: Namespace::new("default"),
        nodes: names().chain(["end".to_owned()]).map(node).collect(),
        edges: names().map(|name| FlowEdge::new(name, "end")).collect(),
        ..SubmitFlowArgs::default()
    };
    engine.submit_flow(args).await.expect("submit_flow").flow_id()
}

/// Refusals are answers; that the store was too busy is none.
fn is_answer<T>(outcome: &Result<T, EngineError>) -> bool {
    let busy = |error: &EngineError| {
        matches!(
            error,
            EngineError::Contention(ContentionKind::RetryExhausted)
                | EngineError::Transport { .. }
                | EngineError::Timeout { .. }
                | EngineError::ResourceExhausted { .. }
        )
    };
    !outcome.as_ref().is_err_and(busy)
}

async fn claim(engine: &PostgresBackend, count: usize) -> Vec<Handle> {
    let mut handles = Vec::new();
    while handles.len() < count {
        let args = claim_from("flows", 100, Duration::from_secs(10));
        let claimed = engine.claim_many(args).await.expect("claim");
        assert!(!claimed.is_empty(), "there was nothing to claim");
        handles.extend(claimed.into_iter().map(|one| one.handle));
    }
    handles
}

async fn end(engine: Arc<PostgresBackend>, handle: Handle) {
    let ended = engine.complete(&handle, None).await;
    assert!(is_answer(&ended), "{ended:?}");
}

async fn cancel(engine: Arc<PostgresBackend>, flow: FlowId) {
    let wait = CancelFlowWait::WaitTimeout(Duration::from_secs(60));
    let cancelled = engine.cancel_flow(&flow, CancelFlowPolicy::CancelAll, wait).await;
    assert!(is_answer(&cancelled), "{cancelled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_and_cancellations_of_one_flow_wait_in_one_order() {
    let schema = Schema::new();
    let engines = [schema.open().await, schema.open().await];
    let mut flows = Vec::new();
    for _ in 0..FLOWS {
        flows.push(plant(&engines[0]).await);
    }
    let handles = claim(&engines[0], FLOWS * ROOTS).await;
    let mut tasks = JoinSet::new();
    for (at, handle) in handles.into_iter().enumerate() {
        // One engine has just leased them and need not read them again; the other must.
        tasks.spawn(end(engines[at % 2].clone(), handle));
        if at % ROOTS == ROOTS / 2 {
            let flow = flows[at / ROOTS];
            tasks.spawn(cancel(engines[(at / ROOTS) % 2].clone(), flow));
        }
    }
    tasks.join_all().await;
    for flow in flows {
        let seen = engines[0].describe_flow(&flow).await.expect("describe").expect("it is there");
        assert_eq!(seen.status, FlowStatus::Cancelled);
        assert!(seen.counts.keys().all(|state| state.is_finished()), "{:?}", seen.counts);
    }
    for engine in &engines {
        engine.close().await;
    }
    schema.drop().await;
}

/// The first engine has seen the flows come. The last node of each must be ready once, when all
/// before it have ended, whoever has told it so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_other_engine_has_told_and_added_counts() {
    let schema = Schema::new();
    let engines = [schema.open().await, schema.open().await];
    let mut flows = Vec::new();
    for _ in 0..FLOWS {
        flows.push(plant(&engines[0]).await);
    }
    let mut handles = claim(&engines[0], FLOWS * ROOTS).await;
    // One of them after the other, so that each engine finds what the other has left.
    for (at, handle) in handles.drain(..FLOWS * ROOTS / 2).enumerate() {
        end(engines[at % 2].clone(), handle).await;
    }
    let last = FlowNode::new("last", Submission::new("flows", "test"));
    let grown = ExtendFlowArgs { nodes: vec![last], edges: vec![FlowEdge::new("last", "end")] };
    engines[1].extend_flow(&handles[0], grown).await.expect("extend_flow");
    let mut tasks = JoinSet::new();
    for (at, handle) in handles.into_iter().enumerate() {
        tasks.spawn(end(engines[at % 2].clone(), handle));
    }
    tasks.join_all().await;
    for handle in claim(&engines[0], FLOWS).await {
        end(engines[0].clone(), handle).await;
    }
    for handle in claim(&engines[1], 1).await {
        end(engines[1].clone(), handle).await;
    }
    for flow in flows {
        let seen = engines[0].describe_flow(&flow).await.expect("describe").expect("it is there");
        assert_eq!(seen.status, FlowStatus::Completed, "{:?}", seen.counts);
    }
    for engine in &engines {
        engine.close().await;
    }
    schema.drop().await;
}
