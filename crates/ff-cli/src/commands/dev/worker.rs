//! The demo worker: it serves the lane `demo` with three kinds of work.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ff_core::backend::CapabilitySet;
use ff_core::contracts::{
    ClaimArgs, ClaimedExecution, FailArgs, FailureClass, RegisterWorkerArgs, WorkerRef,
};
use ff_core::engine_backend::{EngineBackend, WorkerOperations};
use ff_core::engine_error::EngineError;
use ff_core::types::{LaneId, Namespace, WorkerId, WorkerInstanceId};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::output::say;

const LANE: &str = "demo";
const SLOTS: usize = 16;
const LEASE: Duration = Duration::from_secs(30);
const LONGEST_SLEEP: Duration = Duration::from_secs(20);
/// How often it gives a sign of life.
const SIGN: Duration = Duration::from_secs(20);
const REST: Duration = Duration::from_secs(1);

/// Works until it is told to stop, and ends what it has begun.
pub async fn work(backend: Arc<dyn EngineBackend>, stop: CancellationToken) {
    let presence = tokio::spawn(be_known(backend.clone(), stop.clone()));
    let mut running: JoinSet<()> = JoinSet::new();
    while !stop.is_cancelled() {
        while running.len() >= SLOTS {
            running.join_next().await;
        }
        let claimed = tokio::select! {
            () = stop.cancelled() => break,
            claimed = backend.claim_many(claim(SLOTS - running.len())) => claimed,
        };
        match claimed {
            Ok(claimed) => {
                for execution in claimed {
                    let backend = backend.clone();
                    running.spawn(async move { serve(&*backend, execution).await });
                }
            }
            Err(error) => {
                say(&format!("the demo worker cannot claim: {error}"));
                tokio::time::sleep(REST).await;
            }
        }
    }
    running.join_all().await;
    let _ = presence.await;
}

/// Shows itself to whoever asks who is there, and goes when it is told to.
async fn be_known(backend: Arc<dyn EngineBackend>, stop: CancellationToken) {
    let ClaimArgs { worker_id, worker_instance_id, lanes, .. } = claim(1);
    // Where people look who have said nothing of namespaces.
    let namespace = Some(Namespace::new("default"));
    let worker = RegisterWorkerArgs {
        worker_id,
        worker_instance_id: worker_instance_id.clone(),
        namespace: namespace.clone(),
        lanes: lanes.into_iter().collect(),
        capabilities: BTreeSet::new(),
        liveness_ttl_ms: u64::try_from((SIGN * 3).as_millis()).unwrap_or(u64::MAX),
    };
    while !stop.is_cancelled() {
        // Work does not depend on it, so what fails is tried again and hinders nobody.
        let _ = backend.register_worker(worker.clone()).await;
        let _ = tokio::time::timeout(SIGN, stop.cancelled()).await;
    }
    let _ = backend.retire_worker(&WorkerRef { worker_instance_id, namespace }).await;
}

fn claim(max: usize) -> ClaimArgs {
    ClaimArgs {
        lanes: vec![LaneId::new(LANE)],
        capabilities: CapabilitySet::default(),
        worker_id: WorkerId::new("demo"),
        worker_instance_id: WorkerInstanceId::new(format!("demo-{}", std::process::id())),
        lease_ttl_ms: u32::try_from(LEASE.as_millis()).unwrap_or(u32::MAX),
        max,
        wait: Duration::from_secs(5),
    }
}

async fn serve(backend: &dyn EngineBackend, execution: ClaimedExecution) {
    if let Err(error) = handle(backend, &execution).await {
        say(&format!("{}: {error}", execution.execution_id));
    }
}

async fn handle(
    backend: &dyn EngineBackend,
    execution: &ClaimedExecution,
) -> Result<(), EngineError> {
    let handle = &execution.handle;
    let fail = |reason: String, class: FailureClass| FailArgs {
        reason,
        category: "demo".to_owned(),
        class,
    };
    match execution.execution_kind.as_str() {
        "echo" => backend.complete(handle, Some(execution.payload.to_vec())).await,
        "sleep" => {
            let input: Value = serde_json::from_slice(&execution.payload).unwrap_or_default();
            let wanted = Duration::from_millis(input["ms"].as_u64().unwrap_or(1000));
            tokio::time::sleep(wanted.min(LONGEST_SLEEP)).await;
            backend.complete(handle, Some(b"\"slept\"".to_vec())).await
        }
        "fail" => {
            let args = fail("it was asked to fail".to_owned(), FailureClass::Retryable);
            backend.fail(handle, args).await.map(|_| ())
        }
        other => {
            let reason = format!("the demo worker knows echo, sleep and fail, not {other}");
            backend.fail(handle, fail(reason, FailureClass::Fatal)).await.map(|_| ())
        }
    }
}
