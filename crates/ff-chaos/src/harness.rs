//! Starts the victim, lets it live for a moment, kills it, and does so again.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ff_core::engine_backend::EngineBackend;

use crate::checker::{self, Report};
use crate::evidence;
use crate::victim::Victim;
use crate::workload;

const PATIENCE_TO_COME_UP: Duration = Duration::from_secs(30);
const PATIENCE_TO_DRAIN: Duration = Duration::from_secs(60);

/// What shall happen; the seed decides the rest.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub kills: u32,
    pub seed: u64,
    /// How long a victim lives once it is up.
    pub lifetime_ms: (u64, u64),
}

/// Kills the victim as often as planned.
pub fn kill_repeatedly(victim: &mut dyn Victim, plan: Plan) -> anyhow::Result<()> {
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let started = Instant::now();
    for round in 1..=plan.kills {
        victim.start(rng.u64(..))?;
        // Now and then it dies while it is still recovering from the last time.
        let life = if rng.u8(..8) == 0 {
            rng.u64(0..20)
        } else {
            victim.wait_until_up(PATIENCE_TO_COME_UP).with_context(|| format!("round {round}"))?;
            rng.u64(plan.lifetime_ms.0..=plan.lifetime_ms.1)
        };
        thread::sleep(Duration::from_millis(life));
        victim.kill().with_context(|| format!("round {round}"))?;
        if round % 10 == 0 || round == plan.kills {
            eprintln!("{round} of {} kills, {:.1?}", plan.kills, started.elapsed());
        }
    }
    Ok(())
}

/// Lets everything finish on what the victim left behind, and judges.
pub async fn judge(
    backend: Arc<dyn EngineBackend>,
    dir: &Path,
    plan: Plan,
) -> anyhow::Result<Report> {
    eprintln!("draining");
    let started = Instant::now();
    workload::drain(backend.clone(), dir, plan.seed, PATIENCE_TO_DRAIN).await?;
    eprintln!("drained in {:.1?}; checking", started.elapsed());
    let started = Instant::now();
    let evidence = evidence::collect(backend, dir).await?;
    let report = checker::check(&evidence, plan.kills as usize);
    eprintln!("checked in {:.1?}", started.elapsed());
    Ok(report)
}
