//! One process that works off a very wide and a very deep flow, and is killed while it does.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_chaos::checker::{Report, large as checker};
use ff_chaos::harness::{self, Plan, Target};
use ff_chaos::large::{self, Size};
use ff_chaos::victim::{ChildProcess, UP};
use tokio::runtime::Runtime;

use crate::options::Options;

const PATIENCE: Duration = Duration::from_secs(900);

pub fn kill_and_judge(
    runtime: &Runtime,
    dir: &Path,
    options: &Options,
    plan: Plan,
) -> anyhow::Result<Report> {
    let (db, size) = (dir.join("large.db"), size(options)?);
    let (width, depth) = (size.width.to_string(), size.depth.to_string());
    let args = ["large-child", "--width", &width, "--depth", &depth, "--db"];
    let args = args.into_iter().map(Into::into).chain([db.clone().into()]);
    let mut process = ChildProcess::new(std::env::current_exe()?, args.collect());
    let kills = options.or("kills", 40)?;
    let target =
        Target { name: "the process", victim: &mut process, kills, outage: Duration::ZERO };
    let kills = harness::kill_repeatedly(&mut [target], plan)?;
    let started = Instant::now();
    let (flows, log) = runtime.block_on(async {
        let backend = open(&db, size).await?;
        let finished = large::finish(backend.clone(), size, PATIENCE).await;
        backend.close().await;
        finished
    })?;
    let interrupted = checker::interrupted(&log);
    eprintln!("finished in {:.1?}; {interrupted} leases were taken back", started.elapsed());
    ensure!(interrupted > 0, "no kill hit anybody at work");
    Ok(checker::check(&flows, &log, kills))
}

/// The one that is killed.
pub async fn child(options: &Options) -> anyhow::Result<()> {
    let size = size(options)?;
    let db: std::path::PathBuf = options.required("db")?;
    let backend = open(&db, size).await?;
    // Whoever is killed before this is killed while it submits.
    large::plant(&*backend, size).await?;
    println!("{UP}");
    large::work_until_killed(backend).await
}

fn size(options: &Options) -> anyhow::Result<Size> {
    let size = Size { width: options.or("width", 50_000)?, depth: options.or("depth", 10_000)? };
    ensure!(size.width > 0 && size.depth > 0, "a flow without nodes cannot be killed");
    Ok(size)
}

async fn open(db: &Path, size: Size) -> anyhow::Result<Arc<SqliteBackend>> {
    let path = db.to_str().context("the path is not UTF-8")?;
    let options = SqliteOptions { engine: size.config(), ..SqliteOptions::new(path) };
    SqliteBackend::open(options).await.with_context(|| format!("opening {path}"))
}
