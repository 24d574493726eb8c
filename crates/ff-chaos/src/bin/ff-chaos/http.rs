//! A server, or two on one database, and clients that reach the engine through them alone.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ff_chaos::checker::{self, Report};
use ff_chaos::harness::{self, Plan, Target};
use ff_chaos::http::reruns::Reruns;
use ff_chaos::http::{revoked, slow};
use ff_chaos::victim::{ChildProcess, UP};
use ff_chaos::workload::{self, Load};
use ff_chaos::{evidence, history, http};
use ff_core::engine_backend::EngineBackend;
use ff_server::{Auth, Backend, Bound, Config};
use ff_testkit::postgres::{Cluster, ClusterOptions};
use tokio::runtime::Runtime;

use crate::options::Options;

/// Longer than a lease.
const SHORT: Duration = Duration::from_millis(500);
/// So long that the workers keep up with the submitters while servers come and go.
const PAUSE_MS: (u64, u64) = (40, 160);
/// How long a revoked token may act, by what is promised.
const REVOKED_MS: i64 = 15_000;
const TOKEN_CHECK: Duration = Duration::from_millis(200);
const PATIENCE_TO_DRAIN: Duration = Duration::from_secs(240);

pub fn kill_and_judge(
    runtime: &Runtime,
    dir: &Path,
    options: &Options,
    plan: Plan,
) -> anyhow::Result<Report> {
    let store: String = options.or("store", "sqlite".to_owned())?;
    let (cluster, backend) = match store.as_str() {
        "sqlite" => (None, format!("sqlite:{}", dir.join("chaos.db").display())),
        "postgres" => {
            let durable = ClusterOptions { durable: true, ..ClusterOptions::default() };
            let cluster = Cluster::start(durable)?;
            let url = cluster.url();
            (Some(cluster), url)
        }
        other => bail!("there is no store {other:?}"),
    };
    let report = with_store(runtime, dir, options, plan, &backend, cluster.is_some());
    drop(cluster);
    report
}

fn with_store(
    runtime: &Runtime,
    dir: &Path,
    options: &Options,
    plan: Plan,
    backend: &str,
    shared: bool,
) -> anyhow::Result<Report> {
    let server_kills: u32 = options.or("server-kills", 20)?;
    let worker_kills: u32 = options.or("worker-kills", 20)?;
    let patience_ms: i64 = options.or("revoked-ms", REVOKED_MS)?;
    let process = |args: &[&str]| -> anyhow::Result<ChildProcess> {
        let args = args.iter().map(Into::into).chain(["--log".into(), dir.into()]);
        Ok(ChildProcess::new(std::env::current_exe()?, args.collect()))
    };
    let (first, second) = (free_address()?, free_address()?);
    let server = |address: SocketAddr| {
        process(&["http-server", "--backend", backend, "--listen", &address.to_string()])
    };
    let client = |address: SocketAddr, seat: &str, role: &str| {
        let url = format!("http://{address}");
        process(&["http-client", "--server", &url, "--seat", seat, "--role", role])
    };
    let mut one = server(first)?;
    // A file has one process; of a database several can live.
    let mut other = if shared { Some(server(second)?) } else { None };
    let mut everybody = client(first, "everybody", "everybody")?;
    let mut workers = client(if shared { second } else { first }, "workers", "workers")?;
    let operator = format!("http://{first}");
    let url = format!("http://{}", if shared { second } else { first });
    let mut revoked = process(&["http-revoked", "--server", &url, "--operator", &operator])?;
    let mut slow = process(&["http-slow", "--server", &first.to_string()])?;
    let half = (worker_kills / 2).max(1);
    let mut targets = vec![
        Target { name: "server", victim: &mut one, kills: server_kills, outage: SHORT },
        Target { name: "everybody", victim: &mut everybody, kills: half, outage: SHORT },
        Target { name: "workers", victim: &mut workers, kills: worker_kills, outage: SHORT },
        Target { name: "revoked", victim: &mut revoked, kills: 1, outage: SHORT },
        Target { name: "slow clients", victim: &mut slow, kills: 1, outage: SHORT },
    ];
    if let Some(other) = &mut other {
        let kills = server_kills;
        targets.push(Target { name: "other server", victim: other, kills, outage: SHORT });
    }
    let kills = harness::kill_repeatedly(&mut targets, plan)?;
    runtime.block_on(async {
        let config = config(dir, backend, free_address()?);
        let backend = ff_server::open(&config).await?;
        let judged = judge(&backend, dir, plan.seed, kills, patience_ms).await;
        backend.close().await;
        judged
    })
}

/// Lets everything finish on what the victims left behind, and judges.
async fn judge(
    backend: &Backend,
    dir: &Path,
    seed: u64,
    kills: usize,
    patience_ms: i64,
) -> anyhow::Result<Report> {
    let engine: Arc<dyn EngineBackend> = backend.engine();
    eprintln!("draining");
    workload::drain(engine.clone(), dir, seed, PATIENCE_TO_DRAIN).await?;
    eprintln!("checking");
    let evidence = evidence::collect(engine, dir).await?;
    print!("{}", Reruns::of(&evidence));
    let mut report = checker::check(&evidence, kills);
    let lines = history::read(&revoked::path(dir))?.lines;
    let seen = checker::revocations::check(&lines, &evidence, patience_ms, &mut report);
    println!(
        "revoked tokens: {}, accepted from them: {}, refused later than {patience_ms} ms: {}",
        seen.tokens, seen.accepted, seen.late
    );
    ensure!(seen.tokens > 0 && seen.accepted > 0, "no token was used and revoked");
    Ok(report)
}

/// An address that was free a moment ago and that a server can have again after a kill.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

fn config(dir: &Path, backend: &str, listen: SocketAddr) -> Config {
    Config {
        listen,
        data: dir.join("data"),
        backend: Some(backend.to_owned()),
        auth: Auth::Tokens,
        root_token: Some(http::ROOT_TOKEN.to_owned()),
        token_check: TOKEN_CHECK,
        ..Config::default()
    }
}

/// A server until it is killed.
pub async fn serve(options: &Options) -> anyhow::Result<()> {
    let (dir, listen): (std::path::PathBuf, SocketAddr) =
        (options.required("log")?, options.required("listen")?);
    let config = config(&dir, &options.required::<String>("backend")?, listen);
    let backend = ff_server::open(&config).await.context("opening the store")?;
    let bound = Bound::bind(&config, backend.engine()).await.context("listening")?;
    println!("{UP}");
    bound.run(std::future::pending()).await;
    Ok(())
}

/// Clients of a server until they are killed.
pub async fn play(options: &Options) -> anyhow::Result<()> {
    let (dir, url): (std::path::PathBuf, String) =
        (options.required("log")?, options.required("server")?);
    let load = Load {
        seat: options.required("seat")?,
        role: options.required("role")?,
        pause_ms: PAUSE_MS,
        seed: options.required("seed")?,
    };
    println!("{UP}");
    http::run_until_killed(&url, &dir, load).await
}

/// Clients whose tokens are revoked, until they are killed.
pub async fn play_revoked(options: &Options) -> anyhow::Result<()> {
    let dir: std::path::PathBuf = options.required("log")?;
    let (url, operator): (String, String) =
        (options.required("server")?, options.required("operator")?);
    println!("{UP}");
    revoked::run_until_killed(&url, &operator, &dir, options.required("seed")?).await
}

/// Slow clients until they are killed.
pub async fn play_slow(options: &Options) -> anyhow::Result<()> {
    let dir: std::path::PathBuf = options.required("log")?;
    let server = options.required("server")?;
    println!("{UP}");
    slow::run_until_killed(server, &dir, options.required("seed")?).await
}
