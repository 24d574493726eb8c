//! The drain as a program sees it that uses the SDK: the same executions, worked off by a worker
//! whose handlers do nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ff_core::engine_backend::EngineBackend;
use ff_sdk::{Client, Failure, Payload, Worker};
use tokio::sync::oneshot;

use crate::workload::{KIND, LANE, LEASE, PAYLOAD_BYTES};

/// Executions per second of one worker, from its start until its last handler has run. By then all
/// but the last few completions have been committed.
pub(crate) async fn drain(
    client: Client,
    backend: Arc<dyn EngineBackend>,
    concurrency: usize,
    count: usize,
) -> Result<f64> {
    let ran = Arc::new(AtomicUsize::new(0));
    let (say, last) = oneshot::channel();
    let say = Arc::new(std::sync::Mutex::new(Some(say)));
    let handler = move |Payload(bytes): Payload| {
        let (ran, say) = (ran.clone(), say.clone());
        async move {
            if bytes.len() != PAYLOAD_BYTES {
                return Err(Failure::fatal("length", "a payload changed its length"));
            }
            if ran.fetch_add(1, Ordering::Relaxed) + 1 == count
                && let Some(say) = say.lock().ok().and_then(|mut say| say.take())
            {
                let _ = say.send(Instant::now());
            }
            Ok(())
        }
    };
    let worker = Worker::new(client).lane(LANE).lease(LEASE).concurrency(concurrency);
    let start = Instant::now();
    let mut rate = None;
    let until = async {
        if let Ok(end) = last.await {
            rate = Some(count as f64 / end.duration_since(start).as_secs_f64());
        }
    };
    worker.handle(KIND, handler).run_until(until).await?;
    let unfinished = backend.counts().await?.into_iter().flat_map(|lane| lane.counts);
    let unfinished: u64 =
        unfinished.filter(|(state, _)| !state.is_finished()).map(|(_, count)| count).sum();
    ensure!(unfinished == 0, "{unfinished} executions are not finished");
    rate.context("the worker ended before its work")
}
