//! Clients whose tokens are revoked while they work and while they wait: for work, for events, and
//! for the end of a stream. They go on trying afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ff_core::contracts::{Event, ExecutionPage, Frame};
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::client::Client;
use super::crew::Crew;
use super::{ROOT_TOKEN, client};
use crate::history::{Journal, Recorder, Sitting};
use crate::workload::ids::pause;

const WORKERS: u64 = 2;
/// Longer than a token lives, so that most are revoked while a claim waits.
const CLAIM_WAIT: Duration = Duration::from_secs(4);
/// How many revoked tokens are still tried: the latest, and the first ones to the end.
const LINGERING: usize = 6;
const TO_THE_END: usize = 2;
const RETRY: Duration = Duration::from_millis(50);
/// How often a refused stream is asked for again.
const REFUSED_PAUSE: Duration = Duration::from_millis(250);

/// What becomes of a token, and what was shown to it after its revocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Line {
    /// The revocation was acknowledged, at this time of the host.
    Revoked { token: Uuid, at: i64 },
    /// Something that happened later, by the store's clock, came through an open wait.
    Shown { token: Uuid, wait: String, at: i64 },
}

/// Where those lines are.
pub fn path(dir: &Path) -> PathBuf {
    dir.join("revocations.jsonl")
}

/// The seat of the clients of a token: its history names it.
pub fn seat(token: Uuid) -> String {
    format!("token-{}", token.simple())
}

/// Mints tokens, lets clients use them, and revokes them, until the process is killed.
pub async fn run_until_killed(
    url: &str,
    operator_url: &str,
    dir: &Path,
    seed: u64,
) -> anyhow::Result<()> {
    let sitting = Sitting::next(dir, "operator");
    let operator = Client::new(operator_url, ROOT_TOKEN, Recorder::open(dir, &sitting)?)?;
    let journal = Arc::new(Journal::append_to(&path(dir))?);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut lingering = Vec::new();
    loop {
        let Some(minted) = operator.mint(&mut rng).await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        let token = minted.snapshot.token_id;
        let sitting = Sitting::next(dir, &seat(token));
        let recorder = Recorder::open(dir, &sitting)?;
        let client = Client::new(url, &minted.token, recorder)?.waiting(CLAIM_WAIT);
        let life = Life { token, revoked_at: AtomicI64::new(i64::MAX), journal: journal.clone() };
        let life = Arc::new(life);
        let mut clients = start(Arc::new(client), sitting, &life, &mut rng);
        pause(&mut rng, 200..900).await;
        while !revoke(&operator, token).await {
            tokio::time::sleep(RETRY).await;
        }
        life.end();
        lingering.push(std::mem::take(&mut clients));
        if lingering.len() > LINGERING {
            lingering.remove(TO_THE_END);
        }
    }
}

/// A token from its beginning to long after its end.
struct Life {
    token: Uuid,
    revoked_at: AtomicI64,
    journal: Arc<Journal>,
}

impl Life {
    fn end(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        self.revoked_at.store(at, Ordering::Relaxed);
        self.journal.write(&Line::Revoked { token: self.token, at });
    }

    /// Writes down what came through a wait, if the token had been revoked when it happened.
    fn show(&self, wait: &str, at: i64) {
        if at > self.revoked_at.load(Ordering::Relaxed) {
            self.journal.write(&Line::Shown { token: self.token, wait: wait.to_owned(), at });
        }
    }
}

fn start(
    client: Arc<Client>,
    sitting: Sitting,
    life: &Arc<Life>,
    rng: &mut fastrand::Rng,
) -> tokio::task::JoinSet<()> {
    let mut running = tokio::task::JoinSet::new();
    let crew = Crew::new(client.clone(), sitting);
    for worker in 0..WORKERS {
        let work = crew.clone().work(worker, rng.fork());
        running.spawn(async move { drop(work.await) });
    }
    running.spawn(follow_events(client.clone(), life.clone()));
    running.spawn(poll_events(client.clone(), life.clone()));
    running.spawn(follow_tails(client, life.clone()));
    running
}

async fn follow_events(client: Arc<Client>, life: Arc<Life>) {
    loop {
        let path = "/v1/events/stream?namespace=*";
        follow::<Event>(&client, path, |event| life.show("events", event.at.0)).await;
        tokio::time::sleep(REFUSED_PAUSE).await;
    }
}

async fn poll_events(client: Arc<Client>, life: Arc<Life>) {
    let mut after: Option<String> = None;
    loop {
        let mut query = vec![("wait", "4s".to_owned()), ("namespace", "*".to_owned())];
        query.push(match after.clone() {
            Some(after) => ("after", after),
            None => ("from", "latest".to_owned()),
        });
        match client.events(&query).await {
            Ok(page) => {
                for event in &page.events {
                    life.show("poll", event.at.0);
                }
                after = Some(page.next_cursor);
            }
            Err(_) => tokio::time::sleep(REFUSED_PAUSE).await,
        }
    }
}

/// Follows what the youngest running execution says, then the next one.
async fn follow_tails(client: Arc<Client>, life: Arc<Life>) {
    loop {
        let query = [("states", "active"), ("limit", "1"), ("namespace", "*")];
        let query = query.map(|(name, value)| (name, value.to_owned()));
        let found: client::Answered<ExecutionPage> =
            client.send(Method::GET, "/v1/executions", &query, None::<&()>).await;
        let running = found.ok().and_then(|page| page.executions.into_iter().next());
        if let Some(running) = running {
            let path = client::at(running.execution_id.as_str(), "stream/tail?namespace=*");
            follow::<Frame>(&client, &path, |frame| life.show("tail", frame.at.0)).await;
        }
        tokio::time::sleep(REFUSED_PAUSE).await;
    }
}

/// Reads a stream to its end.
async fn follow<T: DeserializeOwned>(client: &Client, path: &str, show: impl Fn(T)) {
    let Ok(mut response) = client.stream(path).await else { return };
    let mut rest = String::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        rest += &String::from_utf8_lossy(&chunk);
        while let Some((line, later)) = rest.split_once('\n') {
            let data = line.strip_prefix("data:").map(str::trim);
            if let Some(shown) = data.and_then(|data| serde_json::from_str(data).ok()) {
                show(shown);
            }
            rest = later.to_owned();
        }
    }
}

async fn revoke(operator: &Client, token: Uuid) -> bool {
    let path = format!("/v1/tokens/{token}");
    let revoked: client::Answered<Value> =
        operator.send(Method::DELETE, &path, &[], None::<&()>).await;
    revoked.is_ok()
}
