//! Submits executions to a file, works them off and shows what happened. Kill it whenever you like
//! and run it again: it finishes the rest.
//!
//! `quickstart [FOLDER] [--executions N]`

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use flowfabric::contracts::{
    ClaimArgs, ClaimedExecution, FailArgs, FailureClass, Idempotency, IdempotencyScope, Submission,
    SubmitOutcome,
};
use flowfabric::policy::{Backoff, ExecutionPolicy};
use flowfabric::sqlite::{SqliteBackend, SqliteOptions};
use flowfabric::types::{ExecutionId, LaneId, WorkerId, WorkerInstanceId};
use flowfabric::{EngineBackend, Retention};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;

const LANE: &str = "quickstart";
const WORKERS: usize = 8;
const CLAIM_MAX: usize = 64;
/// Short, so that the work of a killed run comes back soon.
const LEASE_MS: u32 = 2_000;
const KEYS_HOLD: Duration = Duration::from_secs(366 * 24 * 60 * 60);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (folder, executions) = arguments()?;
    let engine = open(&folder).await?;
    let first = submit(&engine, executions).await?;

    let (total, finished) = progress(&engine).await?;
    if finished == total {
        println!("Nothing left to do: all {total} executions are finished.");
    } else {
        println!("{finished} of {total} executions were finished before this run.");
        work(&engine, total, finished).await?;
        println!("All {total} executions are finished.");
    }
    tell_history(&engine, &first).await?;
    engine.close().await;
    Ok(())
}

fn arguments() -> anyhow::Result<(PathBuf, u64)> {
    let (mut folder, mut executions) = (PathBuf::from("quickstart-data"), 10_000);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--executions" {
            let number = args.next().context("--executions needs a number")?;
            executions = number.parse().context("--executions needs a number")?;
        } else if arg.starts_with('-') {
            bail!("usage: quickstart [FOLDER] [--executions N]");
        } else {
            folder = arg.into();
        }
    }
    Ok((folder, executions.max(1)))
}

async fn open(folder: &Path) -> anyhow::Result<Arc<SqliteBackend>> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join("quickstart.db");
    let mut options = SqliteOptions::new(file.to_str().context("the folder is not UTF-8")?);
    options.engine.retention = Retention::FOREVER;
    let engine = SqliteBackend::open(options).await?;
    println!("Opened {}.", file.display());
    Ok(engine)
}

/// Submits every item under a key of its own, so that a second run submits nothing twice. Returns
/// the identity of the first one.
async fn submit(engine: &SqliteBackend, executions: u64) -> anyhow::Result<ExecutionId> {
    let start = Instant::now();
    let (mut first, mut new) = (None, 0);
    for chunk in (1..=executions).collect::<Vec<_>>().chunks(1_000) {
        let items = chunk.iter().map(|item| submission(*item)).collect();
        for outcome in engine.submit(items).await? {
            let id = outcome.execution_id().with_context(|| format!("{outcome:?}"))?;
            first.get_or_insert_with(|| id.clone());
            new += u64::from(matches!(outcome, SubmitOutcome::Created { .. }));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("Submitted {executions} items in {seconds:.2} s; {new} were new.");
    first.context("nothing was submitted")
}

fn submission(item: u64) -> Submission {
    let mut policy = ExecutionPolicy::default();
    policy.retry_policy.backoff = Backoff::Fixed { delay_ms: 100 };
    let key = format!("item-{item}");
    Submission {
        idempotency: Some(Idempotency { key, scope: IdempotencyScope::Ttl(KEYS_HOLD) }),
        ..Submission::new(LANE, "square").payload(item.to_string()).policy(policy)
    }
}

/// How many executions the lane has, and how many of them are finished.
async fn progress(engine: &SqliteBackend) -> anyhow::Result<(u64, u64)> {
    let lanes = engine.counts().await?;
    let counts = lanes.iter().filter(|lane| lane.lane_id.as_str() == LANE);
    let (mut total, mut finished) = (0, 0);
    for (state, count) in counts.flat_map(|lane| &lane.counts) {
        total += count;
        finished += if state.is_finished() { *count } else { 0 };
    }
    Ok((total, finished))
}

/// Runs the workers until everything is finished, and prints how fast that was.
async fn work(engine: &Arc<SqliteBackend>, total: u64, finished: u64) -> anyhow::Result<()> {
    let start = Instant::now();
    let shown = Arc::new(Shown::new(total, finished));
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        workers.spawn(worker(engine.clone(), number, shown.clone()));
    }
    let mut latencies = Vec::new();
    for worker in workers.join_all().await {
        latencies.extend(worker?);
    }
    shown.bar.finish_and_clear();

    if latencies.is_empty() {
        return Ok(());
    }
    latencies.sort_unstable();
    let percentile = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    let seconds = start.elapsed().as_secs_f64();
    let rate = latencies.len() as f64 / seconds;
    println!("Completed {} in {seconds:.2} s: {rate:.0} per second.", latencies.len());
    let (p50, p99) = (percentile(50), percentile(99));
    println!("From claim to acknowledged completion: p50 {p50:.1?}, p99 {p99:.1?}.");
    Ok(())
}

/// Claims and completes until nothing is left; returns how long each completion took.
async fn worker(
    engine: Arc<SqliteBackend>,
    number: usize,
    shown: Arc<Shown>,
) -> anyhow::Result<Vec<Duration>> {
    let instance = format!("quickstart-{}-{number}", std::process::id());
    let mut latencies = Vec::new();
    while !shown.all_done() {
        let claim = ClaimArgs {
            lanes: vec![LaneId::new(LANE)],
            capabilities: Default::default(),
            worker_id: WorkerId::new("quickstart"),
            worker_instance_id: WorkerInstanceId::new(&instance),
            lease_ttl_ms: LEASE_MS,
            max: CLAIM_MAX,
            wait: Duration::from_millis(200),
        };
        let claimed = engine.claim_many(claim).await?;
        let start = Instant::now();
        let mut running = JoinSet::new();
        for execution in claimed {
            let engine = engine.clone();
            running.spawn(async move { handle(&engine, execution).await });
        }
        while let Some(completed) = running.join_next().await {
            if completed?? {
                latencies.push(start.elapsed());
                shown.one_more();
            }
        }
    }
    Ok(latencies)
}

/// The work itself: squares a number. Every hundredth item fails once and is retried. Says whether
/// the execution is completed.
async fn handle(engine: &SqliteBackend, execution: ClaimedExecution) -> anyhow::Result<bool> {
    let item: u64 = std::str::from_utf8(&execution.payload)?.parse()?;
    let fails = item % 100 == 1 && execution.attempt_index == 0;
    let reported = if fails {
        let args = FailArgs {
            reason: "the first try of every hundredth item fails".into(),
            category: "demonstration".into(),
            class: FailureClass::Retryable,
        };
        engine.fail(&execution.handle, args).await.map(|_| false)
    } else {
        let result = (item * item).to_string().into_bytes();
        engine.complete(&execution.handle, Some(result)).await.map(|()| true)
    };
    match reported {
        // The lease is gone, so somebody else has this execution now.
        Err(error) if !error.retryable() => Ok(false),
        reported => Ok(reported?),
    }
}

async fn tell_history(engine: &SqliteBackend, id: &ExecutionId) -> anyhow::Result<()> {
    println!("\nThe history of {id}:");
    let events = engine.history(id, 0, 100).await?;
    let Some(start) = events.first().map(|event| event.at) else {
        return Ok(());
    };
    for event in &events {
        let after = event.at.since(start).as_millis();
        let by = event.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let to = event.to.map_or("unchanged", |state| state.as_str());
        let attempt = event.attempt_index + 1;
        let what = event.event_type.as_str().replace('_', " ");
        println!("  after {after:>5} ms  attempt {attempt}: {what}{by}; now {to}");
    }
    let result = engine.result(id).await?.unwrap_or_default();
    println!("  result: {}", String::from_utf8_lossy(&result));
    Ok(())
}

/// Progress on stderr: a bar on a terminal, a line for every tenth elsewhere.
struct Shown {
    bar: ProgressBar,
    total: u64,
    done: AtomicU64,
}

impl Shown {
    fn new(total: u64, done: u64) -> Self {
        let bar = ProgressBar::new(total).with_position(done);
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, total, done: AtomicU64::new(done) }
    }

    fn all_done(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.total
    }

    fn one_more(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.inc(1);
        if !std::io::stderr().is_terminal() && done * 10 / self.total > (done - 1) * 10 / self.total
        {
            eprintln!("{done} of {} finished", self.total);
        }
    }
}
