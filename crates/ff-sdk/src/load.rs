//! Drives an engine as fast as it goes, the same way in the same process and through a server, so
//! that the two can be compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ff_core::backend::CapabilitySet;
use ff_core::contracts::{ClaimArgs, ClaimedExecution, Submission, SubmitOutcome};
use ff_core::engine_error::EngineError;
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::transport::{Report, Transport, Verdict};

/// The name of its workers.
const NAME: &str = "load";
const LEASE_MS: u32 = 60_000;
/// How long a worker waits for work that somebody else may still have to put back.
const WAIT: Duration = Duration::from_secs(5);

/// How much is asked of an engine.
#[derive(Clone, Debug)]
pub struct Load {
    pub lane: String,
    pub kind: String,
    pub executions: usize,
    /// How many are submitted in one call.
    pub batch: usize,
    /// How many calls are under way at once.
    pub callers: usize,
    /// How many a worker claims in one call.
    pub claim: usize,
    pub workers: usize,
    pub payload: Vec<u8>,
    /// How many of the present work are done, for whoever watches.
    pub done: Arc<AtomicUsize>,
}

impl Load {
    /// Submits all of them; answers how many a second.
    pub async fn submit(&self, transport: &Arc<dyn Transport>) -> Result<f64, EngineError> {
        let left = Arc::new(AtomicUsize::new(self.executions));
        let mut callers = JoinSet::new();
        let start = Instant::now();
        for _ in 0..self.callers {
            let (load, left, transport) = (self.clone(), left.clone(), transport.clone());
            callers.spawn(async move {
                while let Some(count) = take(&left, load.batch) {
                    let item = || {
                        let item = Submission::new(load.lane.as_str(), load.kind.as_str());
                        item.payload(load.payload.clone())
                    };
                    let items = std::iter::repeat_with(item).take(count).collect();
                    for outcome in transport.submit(items).await? {
                        if let SubmitOutcome::Refused(error) = outcome {
                            return Err(error);
                        }
                    }
                    load.done.fetch_add(count, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        all(callers).await?;
        Ok(self.executions as f64 / start.elapsed().as_secs_f64())
    }

    /// Claims and completes as many as were submitted; answers how many a second. The next claim
    /// travels with the completions of the last one, as a worker has it.
    pub async fn drain(&self, transport: &Arc<dyn Transport>) -> Result<f64, EngineError> {
        let left = Arc::new(AtomicUsize::new(self.executions));
        let mut workers = JoinSet::new();
        let start = Instant::now();
        for _ in 0..self.workers {
            let (load, left, transport) = (self.clone(), left.clone(), transport.clone());
            workers.spawn(async move {
                let args = load.claim_args();
                let mut in_hand: Vec<ClaimedExecution> = Vec::new();
                while let Some(max) = take(&left, load.claim) {
                    load.done.fetch_add(in_hand.len(), Ordering::Relaxed);
                    let finishing = complete(&*transport, std::mem::take(&mut in_hand));
                    let claiming = transport.claim(ClaimArgs { max, ..args.clone() });
                    let (finished, claimed) = tokio::join!(biased; finishing, claiming);
                    finished?;
                    in_hand = claimed?;
                    if in_hand.is_empty() {
                        return Err(EngineError::NotFound { entity: "execution" });
                    }
                    left.fetch_add(max - in_hand.len(), Ordering::Relaxed);
                }
                complete(&*transport, in_hand).await
            });
        }
        all(workers).await?;
        Ok(self.executions as f64 / start.elapsed().as_secs_f64())
    }

    fn claim_args(&self) -> ClaimArgs {
        ClaimArgs {
            lanes: vec![LaneId::new(self.lane.as_str())],
            capabilities: CapabilitySet::default(),
            worker_id: WorkerId::new(NAME),
            worker_instance_id: WorkerInstanceId::new(format!("{NAME}-{}", Uuid::now_v7())),
            lease_ttl_ms: LEASE_MS,
            max: self.claim,
            wait: WAIT,
        }
    }
}

async fn complete(
    transport: &dyn Transport,
    claimed: Vec<ClaimedExecution>,
) -> Result<(), EngineError> {
    let verdict = Verdict::Complete(None);
    let report = |one: ClaimedExecution| Report { handle: one.handle, verdict: verdict.clone() };
    let reports: Vec<Report> = claimed.into_iter().map(report).collect();
    match reports.is_empty() {
        true => Ok(()),
        false => transport.report(&reports).await.into_iter().collect(),
    }
}

/// Takes up to so many of what is left.
fn take(left: &AtomicUsize, most: usize) -> Option<usize> {
    let less = |left: usize| (left > 0).then(|| left - left.min(most));
    let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
    Some(before.min(most))
}

async fn all(mut tasks: JoinSet<Result<(), EngineError>>) -> Result<(), EngineError> {
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap_or_else(|error| {
            Err(EngineError::Transport { backend: NAME, source: Box::new(error) })
        })?;
    }
    Ok(())
}
