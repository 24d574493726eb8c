//! `flowfabric bench`: how much work a running server takes and hands out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Args;
use ff_core::engine_error::EngineError;
use ff_sdk::load::Load;
use ff_sdk::transport::{Http, HttpOptions, Transport};
use serde_json::json;

use crate::cli::Server;
use crate::failure::{Exit, Failure};
use crate::output::{Output, confirm};
use crate::progress::Progress;

/// Submits executions in batches and lets workers complete them, in a lane of its own.
#[derive(Args)]
pub struct Bench {
    /// How many executions.
    #[arg(long, default_value_t = 20_000)]
    executions: usize,
    /// How many are submitted in one request, 1 to 1000.
    #[arg(long, default_value_t = 100)]
    batch: usize,
    /// How many requests are under way at once.
    #[arg(long, default_value_t = 4)]
    callers: usize,
    /// How many executions a worker claims in one request, 1 to 1000.
    #[arg(long, default_value_t = 50)]
    claim: usize,
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// The bytes of each payload.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    /// The lane; what waits in it is worked off too.
    #[arg(long, default_value = "flowfabric-bench")]
    lane: String,
    /// Do it without being asked.
    #[arg(long)]
    yes: bool,
}

impl Bench {
    pub async fn run(self, server: Server, output: Output) -> Result<(), Failure> {
        for (name, value) in [("--batch", self.batch), ("--claim", self.claim)] {
            if !(1..=1000).contains(&value) {
                return Err(Failure::usage(format!("{name} is {value}; 1 to 1000 go")));
            }
        }
        if self.executions == 0 || self.callers == 0 || self.workers == 0 {
            return Err(Failure::usage("there is nothing to do, or nobody to do it"));
        }
        let lane = &self.lane;
        let question = format!("This leaves {} executions in lane {lane}.", self.executions);
        confirm(&question, self.yes)?;
        let mut options = HttpOptions::new(server.url());
        options.token = server.token;
        options.namespace = server.namespace.map(ff_core::types::Namespace::new);
        let http = Http::new(options).map_err(|error| Failure::usage(error.to_string()))?;
        let transport: Arc<dyn Transport> = Arc::new(http);
        let load = Load {
            lane: self.lane.clone(),
            kind: "bench".to_owned(),
            executions: self.executions,
            batch: self.batch,
            callers: self.callers,
            claim: self.claim,
            workers: self.workers,
            payload: serde_json::to_vec(&"x".repeat(self.payload.saturating_sub(2)))
                .unwrap_or_default(),
            done: Arc::default(),
        };
        let words = format!("submitting {} in batches of {}", load.executions, load.batch);
        let submit = watched(&words, &load, load.submit(&transport)).await?;
        let words = format!("{} workers claim {} at a time", load.workers, load.claim);
        let drain = watched(&words, &load, load.drain(&transport)).await?;
        output.one(&json!({
            "executions": load.executions,
            "submit_per_second": submit.round(),
            "drain_per_second": drain.round(),
            "batch": load.batch,
            "callers": load.callers,
            "claim": load.claim,
            "workers": load.workers,
            "payload_bytes": load.payload.len(),
        }))
    }
}

/// Shows how far the work has come.
async fn watched(
    words: &str,
    load: &Load,
    work: impl Future<Output = Result<f64, EngineError>>,
) -> Result<f64, Failure> {
    load.done.store(0, Ordering::Relaxed);
    let progress = Progress::bar(words, load.executions as u64);
    let done = || load.done.load(Ordering::Relaxed) as u64;
    progress.during(work, done).await.map_err(|error| failed(&error))
}

fn failed(error: &EngineError) -> Failure {
    let exit = if error.retryable() { Exit::Unavailable } else { Exit::Failure };
    Failure::new(exit, error.to_string())
        .hint("start a server with `flowfabric dev`, and give its token with FF_TOKEN")
}
