//! What the clients of the engine do: the load that is killed, and the drain that ends a run.

mod client;
pub(crate) mod durable;
pub(crate) mod habits;
pub(crate) mod ids;
pub mod limits;
pub mod many;
mod subscriber;
mod tasks;
pub(crate) mod waits;
mod work;

pub use client::{Client, LEASE_MS};
pub use subscriber::{Delivery, SUBSCRIBERS, Subscriber, deliveries_path, subscribers_of};
pub use work::{LANES, bytes, submission};

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ff_core::engine_backend::EngineBackend;

use self::client::PATIENT_LEASE_MS;
use self::tasks::{Crew, Temper};
use crate::history::{self, Recorder, Sitting};

const SUBMITTERS: u64 = 3;
const WORKERS: u64 = 4;
/// How many unknown outcomes of its predecessor a process asks about, and how many at a time.
const RETRIES: usize = 40;

/// The seat of those who run one after the other.
pub const ONLY_SEAT: &str = "engine";

/// Who works in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Submitters, workers, an operator and subscribers.
    Everybody,
    Workers,
}

impl FromStr for Role {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> anyhow::Result<Self> {
        match word {
            "everybody" => Ok(Self::Everybody),
            "workers" => Ok(Self::Workers),
            other => bail!("there is no role {other:?}"),
        }
    }
}

/// What one process does.
#[derive(Clone, Debug)]
pub struct Load {
    /// Only one process at a time may take it.
    pub seat: String,
    pub role: Role,
    /// How long a submitter pauses.
    pub pause_ms: (u64, u64),
    pub seed: u64,
}

impl Load {
    /// The load of a process that has the store for itself.
    pub fn alone(seed: u64) -> Self {
        let (seat, role) = (ONLY_SEAT.to_owned(), Role::Everybody);
        Self { seat, role, pause_ms: (2, 12), seed }
    }
}

/// Runs load until the process is killed.
pub async fn run_until_killed(
    backend: Arc<dyn EngineBackend>,
    dir: &Path,
    load: Load,
) -> anyhow::Result<()> {
    let sitting = Sitting::next(dir, &load.seat);
    let before = match sitting.before() {
        None => Vec::new(),
        Some(before) => history::unresolved(&history::read(&before.path(dir))?.lines),
    };
    let client = Client::new(backend, Recorder::open(dir, &sitting)?);
    let crew = Crew::new(client.clone(), sitting, Temper::Reckless);
    let mut rng = fastrand::Rng::with_seed(load.seed);
    let mut running = tokio::task::JoinSet::new();
    if load.role == Role::Everybody {
        let backend = client.backend.clone();
        // Whoever cannot declare them finds them declared, or finds nothing to look at.
        running.spawn(async move {
            let _ = limits::declare(&*backend).await;
            let _ = many::declare(&*backend).await;
            std::future::pending().await
        });
        for subscriber in SUBSCRIBERS {
            let (backend, dir, seat) = (client.backend.clone(), dir.to_owned(), load.seat.clone());
            let follow =
                async move { subscriber.resume(&backend, &dir, &seat).await?.follow().await };
            running.spawn(follow);
        }
        for _ in 0..SUBMITTERS {
            running.spawn(crew.clone().submit(load.pause_ms, rng.fork()));
        }
        running.spawn(crew.clone().plant(load.pause_ms, rng.fork()));
        running.spawn(crew.clone().operate(rng.fork()));
        running.spawn(crew.clone().watch(rng.fork()));
        running.spawn(crew.clone().sweep(rng.fork()));
    }
    for worker in 0..WORKERS {
        running.spawn(crew.clone().work(worker, rng.fork()));
    }
    running.spawn(async move {
        retry(&client, before.into_iter().take(RETRIES).collect()).await;
        std::future::pending().await
    });
    // None of them ends by itself, so whatever ends is broken.
    match running.join_next().await.context("nothing was started")? {
        Ok(outcome) => outcome.context("a client stopped"),
        Err(panic) => Err(panic).context("a client panicked"),
    }
}

/// Asks about every unknown outcome, works until everything is finished or patience is, and lets
/// the subscribers catch up. What is not finished then is for the checker to find.
pub async fn drain(
    backend: Arc<dyn EngineBackend>,
    dir: &Path,
    seed: u64,
    patience: Duration,
) -> anyhow::Result<()> {
    let unresolved = history::unresolved(&history::read_all(dir)?.lines);
    let sitting = Sitting::next(dir, ONLY_SEAT);
    let client = Client::new(backend.clone(), Recorder::open(dir, &sitting)?);
    let client = client.with_leases_of(PATIENT_LEASE_MS);
    many::pause(&*backend).await?;
    retry(&client, unresolved).await;

    let crew = Crew::new(client, sitting, Temper::Calm);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..WORKERS {
        workers.spawn(crew.clone().work(worker, rng.fork()));
    }
    let deadline = Instant::now() + patience;
    while unfinished(&*backend).await? > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    crew.stop();
    while let Some(worker) = workers.join_next().await {
        worker.context("a worker panicked")??;
    }
    for (seat, subscriber) in subscribers_of(dir)? {
        subscriber.resume(&backend, dir, &seat).await?.catch_up().await?;
    }
    Ok(())
}

/// Asks again, under the same names, what became of operations whose answer never came.
async fn retry(client: &Client, unresolved: Vec<(String, history::Op)>) {
    let mut asking = tokio::task::JoinSet::new();
    for (op_id, op) in unresolved.into_iter().filter(|(_, op)| op.is_repeatable()) {
        let client = client.clone();
        asking.spawn(async move { client.call_as(&op_id, &op).await });
        // Together they share commits; all at once they would fill the queue.
        if asking.len() == RETRIES {
            asking.join_next().await;
        }
    }
    asking.join_all().await;
}

async fn unfinished(backend: &dyn EngineBackend) -> anyhow::Result<u64> {
    let lanes = backend.counts().await?;
    let open = lanes.iter().flat_map(|lane| &lane.counts).filter(|(state, _)| !state.is_finished());
    Ok(open.map(|(_, count)| count).sum())
}
