//! Submitters, workers and an operator, as far as they are seen through a server.

use std::sync::Arc;

use fastrand::Rng;

use super::client::Client;
use crate::history::{self, Lease, Op, Outcome, Sitting, Work};
use crate::workload::ids::{Recent, new_id, pause};
use crate::workload::{self, LEASE_MS};

pub struct Crew {
    client: Arc<Client>,
    sitting: Sitting,
    recent: Recent<String>,
}

impl Crew {
    pub fn new(client: Arc<Client>, sitting: Sitting) -> Arc<Self> {
        Arc::new(Self { client, sitting, recent: Recent::default() })
    }

    /// Submits work under chosen ids, sometimes twice under one key.
    pub async fn submit(self: Arc<Self>, pause_ms: (u64, u64), mut rng: Rng) -> anyhow::Result<()> {
        loop {
            let mut items = Vec::new();
            for _ in 0..rng.usize(1..5) {
                let key = (rng.u8(..4) == 0).then(|| format!("key-{:016x}", rng.u64(..)));
                let work = Work::new(new_id(&mut rng), key, rng.u64(..));
                if work.key.is_some() && rng.bool() {
                    items.push(Work::new(new_id(&mut rng), work.key.clone(), work.seed));
                }
                self.recent.remember(work.id.clone());
                items.push(work);
            }
            self.client.submit(items).await?;
            pause(&mut rng, pause_ms.0..pause_ms.1).await;
        }
    }

    pub async fn work(self: Arc<Self>, worker: u64, mut rng: Rng) -> anyhow::Result<()> {
        let worker = format!("worker-{}-{worker}", self.sitting);
        let mut in_hand = tokio::task::JoinSet::new();
        loop {
            let claim = Op::Claim { worker: worker.clone() };
            let Some(Outcome::Granted { grants }) = self.client.call(&claim).await else {
                pause(&mut rng, 5..30).await;
                continue;
            };
            for grant in grants {
                in_hand.spawn(self.clone().handle(grant.lease, rng.fork()));
            }
            while let Some(done) = in_hand.try_join_next() {
                done?;
            }
            pause(&mut rng, 0..4).await;
        }
    }

    /// What a worker does with one grant.
    async fn handle(self: Arc<Self>, lease: Lease, mut rng: Rng) {
        match rng.u8(..100) {
            0..8 => {
                let fatal = rng.u8(..4) == 0;
                self.client.call(&Op::Fail { lease, fatal }).await;
            }
            8..10 => {
                self.client.call(&Op::GiveUp(lease)).await;
            }
            // Long past its lease, it writes nevertheless.
            10..14 => {
                let late = u64::from(LEASE_MS);
                pause(&mut rng, late - 50..late + 100).await;
                self.complete(lease, &mut rng).await;
            }
            // Takes a while, and says so in time.
            14..40 => {
                pause(&mut rng, 20..u64::from(LEASE_MS) / 2).await;
                self.client.call(&Op::Renew(lease.clone())).await;
                self.complete(lease, &mut rng).await;
            }
            // Says it again, and differently.
            40..43 => {
                self.complete(lease.clone(), &mut rng).await;
                self.complete(lease, &mut rng).await;
            }
            _ => self.complete(lease, &mut rng).await,
        }
    }

    async fn complete(&self, lease: Lease, rng: &mut Rng) {
        let seed = rng.u64(..);
        let result = history::hash(&workload::bytes(seed));
        self.client.call(&Op::Complete { lease, seed, result }).await;
    }

    /// Cancels and revokes, now here, now there.
    pub async fn operate(self: Arc<Self>, mut rng: Rng) -> anyhow::Result<()> {
        loop {
            pause(&mut rng, 10..40).await;
            let Some(id) = self.recent.pick(&mut rng) else { continue };
            let op = if rng.u8(..4) == 0 { Op::Cancel { id } } else { Op::Revoke { id } };
            self.client.call(&op).await;
        }
    }
}
