//! Handing out work. A claim may wait for it.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use ff_api::{ClaimAnswer, ClaimRequest, Scope};
use ff_core::backend::CapabilitySet;
use ff_core::contracts::{ClaimArgs, ClaimedExecution};
use ff_core::engine_backend::EngineBackend;
use tokio::sync::oneshot;

use crate::call::{Answer, Call};
use crate::gate::Authorized;
use crate::refusal::{Answered, Refusal};
use crate::route::{LONGEST_WAIT, Nothing, Route};
use crate::state::State;
use crate::wire;

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/claims"),
            ("claim_many", "Claims work of any of several lanes, with all that a worker needs."),
            Scope::Work,
            claim,
        )
        .waits(),
    ]
}

async fn claim(call: Call<Nothing, ClaimRequest>) -> Answered<Answer<ClaimAnswer>> {
    let body = call.body;
    let ttl = body.lease_ttl.0.as_millis();
    let args = ClaimArgs {
        lanes: body.lanes,
        capabilities: CapabilitySet { tokens: body.capabilities },
        worker_id: body.worker_id,
        worker_instance_id: body.worker_instance_id,
        lease_ttl_ms: u32::try_from(ttl).unwrap_or(u32::MAX),
        max: body.max,
        wait: body.wait.0.min(LONGEST_WAIT),
    };
    let (answer, answered) = oneshot::channel();
    tokio::spawn(claim_for(call.state.clone(), call.door.clone(), args, answer));
    let claimed = answered.await;
    let claimed = claimed.map_err(|_| Refusal::new("internal", "the claim was not answered"))??;
    let executions = claimed.into_iter().map(wire::claimed).collect();
    Ok(Answer::json(ClaimAnswer { executions }))
}

/// Claims for a client that may go away meanwhile, or whose token may be revoked. What comes too
/// late for it is put back, so that the work need not wait for the lease to expire: here if it has
/// been answered, and by the engine if it is still on its way.
async fn claim_for(
    state: Arc<State>,
    door: Authorized,
    args: ClaimArgs,
    mut answer: oneshot::Sender<Answered<Vec<ClaimedExecution>>>,
) {
    let backend = door.backend();
    let claimed = tokio::select! {
        biased;
        claimed = backend.claim_many(args) => claimed,
        () = answer.closed() => return,
        () = state.closing.cancelled() => Ok(Vec::new()),
    };
    // The wait may have been long, and work is handed out to valid tokens alone.
    if !state.gate.is_still_good(door.principal()).await {
        put_back(backend, claimed.unwrap_or_default()).await;
        let _ = answer.send(Err(Refusal::unauthorized()));
        return;
    }
    if let Err(Ok(untaken)) = answer.send(claimed.map_err(Refusal::from)) {
        put_back(backend, untaken).await;
    }
}

async fn put_back(backend: &dyn EngineBackend, claimed: Vec<ClaimedExecution>) {
    for execution in claimed {
        // If this fails, the lease expires.
        let _ = backend.delay(&execution.handle, Duration::ZERO).await;
    }
}
