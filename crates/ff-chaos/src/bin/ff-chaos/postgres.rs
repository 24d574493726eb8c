//! Three processes with an engine each on one private server: two have all kinds of clients, one
//! has only workers. They are killed, and so is the server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ff_backend_postgres::{PostgresBackend, PostgresError, PostgresOptions};
use ff_chaos::checker::Report;
use ff_chaos::harness::{self, Plan, Target};
use ff_chaos::victim::ChildProcess;
use ff_chaos::workload::Load;
use ff_testkit::postgres::{Cluster, ClusterOptions};
use tokio::runtime::Runtime;

use crate::options::Options;

/// The server may be away when a process starts.
const PATIENCE_TO_OPEN: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
/// Asks for a server that forgets its last commits in a crash, to see whether that is found out.
const LOSSY: &str = "lossy";
/// Longer than a lease.
const SHORT: Duration = Duration::from_millis(500);
/// Longer than an engine waits for its server before it tells its callers.
const LONG: Duration = Duration::from_secs(6);
/// So long that the workers keep up with the submitters of two processes.
const PAUSE_MS: (u64, u64) = (5, 40);

pub fn kill_and_judge(
    runtime: &Runtime,
    dir: &Path,
    options: &Options,
    plan: Plan,
) -> anyhow::Result<Report> {
    let engine_kills: u32 = options.or("engine-kills", 100)?;
    let worker_kills = options.or("worker-kills", 100)?;
    let server_kills = options.or("server-kills", 100)?;
    let mut server = Cluster::start(server_options(options))?;
    let url = server.url();
    let process = |seat: &str, role: &str| -> anyhow::Result<ChildProcess> {
        let mut args = vec!["child", "--url", &url, "--seat", seat, "--role", role];
        if options.has(LOSSY) {
            args.extend(["--lossy", "yes"]);
        }
        let args = args.into_iter().chain(["--log"]).map(Into::into).chain([dir.into()]);
        Ok(ChildProcess::new(std::env::current_exe()?, args.collect()))
    };
    let mut first = process("first", "everybody")?;
    let mut second = process("second", "everybody")?;
    let mut workers = process("workers", "workers")?;
    let outcome = (|| {
        let half = engine_kills / 2;
        let mut targets = [
            Target { name: "first", victim: &mut first, kills: engine_kills - half, outage: SHORT },
            Target { name: "second", victim: &mut second, kills: half, outage: SHORT },
            Target { name: "workers", victim: &mut workers, kills: worker_kills, outage: SHORT },
            Target { name: "server", victim: &mut server, kills: server_kills, outage: LONG },
        ];
        let kills = harness::kill_repeatedly(&mut targets, plan)?;
        server.restart()?;
        runtime.block_on(async {
            let backend = open(&url, options).await?;
            let report = harness::judge(backend.clone(), dir, plan.seed, kills).await;
            backend.close().await;
            report
        })
    })();
    // The server's folder goes with it; what it had to say may explain a failure.
    std::fs::copy(server.log(), dir.join("postgres.log")).context("keeping the server's log")?;
    outcome
}

fn server_options(options: &Options) -> ClusterOptions {
    let durable = !options.has(LOSSY);
    // A lossy server keeps what it has not written yet for as long as it can.
    let slow = [("wal_writer_delay", "10s"), ("wal_writer_flush_after", "1GB")];
    let slow = slow.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let settings = if durable { Vec::new() } else { slow.into() };
    ClusterOptions { durable, settings, ..ClusterOptions::default() }
}

pub async fn open_child(options: &Options) -> anyhow::Result<Arc<PostgresBackend>> {
    let url: String = options.required("url")?;
    let started = Instant::now();
    loop {
        match open(&url, options).await {
            Err(_) if started.elapsed() < PATIENCE_TO_OPEN => tokio::time::sleep(PAUSE).await,
            opened => return opened.with_context(|| format!("opening {url}")),
        }
    }
}

async fn open(url: &str, options: &Options) -> Result<Arc<PostgresBackend>, PostgresError> {
    let durable = !options.has(LOSSY);
    PostgresBackend::open(PostgresOptions { durable, ..PostgresOptions::new(url) }).await
}

pub fn load(options: &Options, seed: u64) -> anyhow::Result<Load> {
    let (seat, role) = (options.required("seat")?, options.required("role")?);
    Ok(Load { seat, role, pause_ms: PAUSE_MS, seed })
}
