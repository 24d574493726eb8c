//! Makes a worker known for as long as it runs, so that operators see who is there. Work does not
//! depend on it: what fails here is tried again and hinders nobody.

use std::sync::Arc;
use std::time::Duration;

use ff_core::contracts::{ClaimArgs, RegisterWorkerArgs};
use ff_core::engine::clock::Clock;

use crate::clock::pause;
use crate::transport::Transport;

/// How long a worker that gives no sign counts as alive.
const TTL: Duration = Duration::from_secs(60);
/// How long a worker that ends waits to say so.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) struct Presence {
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    worker: RegisterWorkerArgs,
}

impl Presence {
    pub fn new(transport: Arc<dyn Transport>, clock: Arc<dyn Clock>, claim: &ClaimArgs) -> Self {
        let worker = RegisterWorkerArgs {
            worker_id: claim.worker_id.clone(),
            worker_instance_id: claim.worker_instance_id.clone(),
            namespace: None,
            lanes: claim.lanes.iter().cloned().collect(),
            capabilities: claim.capabilities.tokens.iter().cloned().collect(),
            liveness_ttl_ms: u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX),
        };
        Self { transport, clock, worker }
    }

    /// Gives signs of life until `end` is there, and then says goodbye.
    pub async fn keep(&self, end: impl Future<Output = ()>) {
        tokio::select! {
            () = end => {}
            never = self.give_signs() => match never {},
        }
        let goodbye = self.transport.retire_worker(&self.worker.worker_instance_id);
        if !matches!(tokio::time::timeout(FAREWELL, goodbye).await, Ok(Ok(()))) {
            tracing::debug!("the worker ends without a goodbye");
        }
    }

    async fn give_signs(&self) -> std::convert::Infallible {
        loop {
            if let Err(error) = self.transport.register_worker(self.worker.clone()).await {
                tracing::debug!(%error, "the worker could not make itself known");
            }
            pause(&*self.clock, TTL / 3).await;
        }
    }
}
