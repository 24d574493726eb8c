//! The same play through a server: clients that know nothing but HTTP, killed like everybody else.

mod client;
mod crew;
mod domain;
mod follower;
pub mod reruns;
pub mod revoked;
pub mod slow;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use self::client::Client;
use self::crew::Crew;
use crate::history::{self, Recorder, Sitting};
use crate::workload::{Load, Role, SUBSCRIBERS};

const SUBMITTERS: u64 = 3;
const WORKERS: u64 = 4;
/// How many unknown outcomes of its predecessor a process asks about.
const RETRIES: usize = 40;

/// The token of the honest clients, and of the operator who mints and revokes the others.
pub const ROOT_TOKEN: &str = "ff_root-token-of-the-crash-test-0123456789";

/// Runs load against a server until the process is killed.
pub async fn run_until_killed(url: &str, dir: &Path, load: Load) -> anyhow::Result<()> {
    let sitting = Sitting::next(dir, &load.seat);
    let before = match sitting.before() {
        None => Vec::new(),
        Some(before) => history::unresolved(&history::read(&before.path(dir))?.lines),
    };
    let client = Arc::new(Client::new(url, ROOT_TOKEN, Recorder::open(dir, &sitting)?)?);
    let crew = Crew::new(client.clone(), sitting);
    let mut rng = fastrand::Rng::with_seed(load.seed);
    let mut running = tokio::task::JoinSet::new();
    if load.role == Role::Everybody {
        for subscriber in SUBSCRIBERS {
            let (client, dir, seat) = (client.clone(), dir.to_owned(), load.seat.clone());
            running.spawn(async move { follower::follow(&client, subscriber, &dir, &seat).await });
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
        for (op_id, op) in before.into_iter().filter(|(_, op)| op.is_repeatable()).take(RETRIES) {
            client.call_as(&op_id, &op).await;
        }
        std::future::pending().await
    });
    // None of them ends by itself, so whatever ends is broken.
    match running.join_next().await.context("nothing was started")? {
        Ok(outcome) => outcome.context("a client stopped"),
        Err(panic) => Err(panic).context("a client panicked"),
    }
}
