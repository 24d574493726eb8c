//! One process that holds the engine, its file and all its clients.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_chaos::checker::Report;
use ff_chaos::harness::{self, Plan, Target};
use ff_chaos::victim::ChildProcess;
use tokio::runtime::Runtime;

use crate::options::Options;

/// Longer than a lease, and so long that schedules come due while nobody looks.
const OUTAGE: Duration = Duration::from_millis(1_500);

pub fn kill_and_judge(
    runtime: &Runtime,
    dir: &Path,
    options: &Options,
    plan: Plan,
) -> anyhow::Result<Report> {
    let db = dir.join("chaos.db");
    let args = ["child".into(), "--db".into(), db.clone().into(), "--log".into(), dir.into()];
    let mut process = ChildProcess::new(std::env::current_exe()?, args.into());
    let kills = options.or("kills", 100)?;
    let target = Target { name: "the process", victim: &mut process, kills, outage: OUTAGE };
    let kills = harness::kill_repeatedly(&mut [target], plan)?;
    runtime.block_on(async {
        let backend = open(&db).await?;
        let report = harness::judge(backend.clone(), dir, plan.seed, kills).await;
        backend.close().await;
        report
    })
}

pub async fn open(db: &Path) -> anyhow::Result<Arc<SqliteBackend>> {
    let path = db.to_str().context("the path is not UTF-8")?;
    let opened = SqliteBackend::open(SqliteOptions::new(path)).await;
    opened.with_context(|| format!("opening {path}"))
}
