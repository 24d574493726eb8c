//! Starts the victims, lets them live for a moment, kills one of them, and does so again.

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

const PATIENCE_TO_COME_UP: Duration = Duration::from_secs(120);
const PATIENCE_TO_DRAIN: Duration = Duration::from_secs(240);
/// How long a victim is away, at most, when others go on without it.
const AWAY_MS: u64 = 200;

/// One of those who are killed.
pub struct Target<'v> {
    pub name: &'static str,
    pub victim: &'v mut dyn Victim,
    /// The last of these ends the run.
    pub kills: u32,
    /// Now and then it stays away for this long.
    pub outage: Duration,
}

/// What shall happen; the seed decides the rest.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    /// How long it takes until somebody is killed again.
    pub lifetime_ms: (u64, u64),
}

/// Kills each target as often as planned, in random order, and in the end all of them. Returns how
/// many kills that were.
pub fn kill_repeatedly(targets: &mut [Target<'_>], plan: Plan) -> anyhow::Result<usize> {
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let mut order: Vec<usize> = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        order.extend(std::iter::repeat_n(at, target.kills.saturating_sub(1) as usize));
    }
    rng.shuffle(&mut order);
    // The last kills come without a pause, as if the lights went out.
    order.extend(0..targets.len());
    let last_pause = order.len() - targets.len();
    for target in &mut *targets {
        target.victim.start(rng.u64(..))?;
    }
    let started = Instant::now();
    for (round, at) in order.iter().enumerate() {
        let target = &mut targets[*at];
        if round <= last_pause {
            live(target, plan, &mut rng)?;
        }
        let what = || format!("kill {} of {}, {}", round + 1, order.len(), target.name);
        target.victim.kill().with_context(what)?;
        if round < last_pause {
            let away = match rng.u8(..8) {
                0 => target.outage,
                _ if targets.len() == 1 => Duration::ZERO,
                _ => Duration::from_millis(rng.u64(..AWAY_MS)),
            };
            thread::sleep(away);
            targets[*at].victim.start(rng.u64(..))?;
        }
        if (round + 1) % 10 == 0 || round + 1 == order.len() {
            eprintln!("{} of {} kills, {:.1?}", round + 1, order.len(), started.elapsed());
        }
    }
    Ok(order.len())
}

/// Now and then a target dies while it is still recovering from the last time.
fn live(target: &mut Target<'_>, plan: Plan, rng: &mut fastrand::Rng) -> anyhow::Result<()> {
    let life = if rng.u8(..8) == 0 {
        rng.u64(0..20)
    } else {
        target.victim.wait_until_up(PATIENCE_TO_COME_UP).context(target.name)?;
        rng.u64(plan.lifetime_ms.0..=plan.lifetime_ms.1)
    };
    thread::sleep(Duration::from_millis(life));
    Ok(())
}

/// Lets everything finish on what the victims left behind, and judges.
pub async fn judge(
    backend: Arc<dyn EngineBackend>,
    dir: &Path,
    seed: u64,
    kills: usize,
) -> anyhow::Result<Report> {
    eprintln!("draining");
    let started = Instant::now();
    workload::drain(backend.clone(), dir, seed, PATIENCE_TO_DRAIN).await?;
    eprintln!("drained in {:.1?}; checking", started.elapsed());
    let started = Instant::now();
    let evidence = evidence::collect(backend, dir).await?;
    let report = checker::check(&evidence, kills);
    eprintln!("checked in {:.1?}", started.elapsed());
    Ok(report)
}
