//! Submitters, workers and an operator, as far as they are seen through a server.

use std::sync::Arc;

use fastrand::Rng;
use ff_core::partition::{PartitionConfig, flow_partition};
use ff_core::types::FlowId;
use uuid::Uuid;

use super::client::Client;
use crate::graph::Planted;
use crate::history::{Grant, Op, Outcome, Sitting, Work};
use crate::workload::habits::Habits;
use crate::workload::ids::{Recent, new_id, pause};
use crate::workload::{LEASE_MS, many};

pub struct Crew {
    client: Arc<Client>,
    sitting: Sitting,
    recent: Recent<String>,
    flows: Recent<Uuid>,
}

impl Crew {
    pub fn new(client: Arc<Client>, sitting: Sitting) -> Arc<Self> {
        let (recent, flows) = (Recent::default(), Recent::default());
        Arc::new(Self { client, sitting, recent, flows })
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
                in_hand.spawn(self.clone().handle(grant, rng.fork()));
            }
            while let Some(done) = in_hand.try_join_next() {
                done?;
            }
            pause(&mut rng, 0..4).await;
        }
    }

    /// What a worker does with one grant.
    async fn handle(self: Arc<Self>, grant: Grant, mut rng: Rng) {
        let lease = grant.lease.clone();
        let habits = Habits { caller: &*self.client, reckless: true };
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
                habits.complete(lease, &mut rng).await;
            }
            // Takes a while, and says so in time.
            14..30 => {
                pause(&mut rng, 20..u64::from(LEASE_MS) / 2).await;
                self.client.call(&Op::Renew(lease.clone())).await;
                habits.complete(lease, &mut rng).await;
            }
            // Says it again, and differently.
            30..33 => {
                habits.complete(lease.clone(), &mut rng).await;
                habits.complete(lease, &mut rng).await;
            }
            33..40 => habits.wait_for_signal(lease, &mut rng).await,
            40..48 => habits.step(grant, &mut rng).await,
            48..55 => habits.speak(lease, &mut rng).await,
            55..61 => habits.report(lease, &mut rng).await,
            _ => habits.complete(lease, &mut rng).await,
        }
    }

    /// Submits graphs.
    pub async fn plant(self: Arc<Self>, pause_ms: (u64, u64), mut rng: Rng) -> anyhow::Result<()> {
        loop {
            let flow = in_first_partition(&mut rng);
            let planted = Planted { flow, partition: 0, seed: rng.u64(..) };
            self.flows.remember(flow);
            self.client.call(&Op::Plant(planted)).await;
            pause(&mut rng, pause_ms.0 * 4..pause_ms.1 * 4).await;
        }
    }

    /// Looks whether the limits hold, once they are declared.
    pub async fn watch(self: Arc<Self>, mut rng: Rng) -> anyhow::Result<()> {
        while !self.client.declare().await {
            pause(&mut rng, 20..60).await;
        }
        loop {
            let watch = if rng.bool() { Op::WatchBudget } else { Op::WatchQuota };
            self.client.call(&watch).await;
            pause(&mut rng, 20..100).await;
        }
    }

    /// Does something to many executions at once, now and then.
    pub async fn sweep(self: Arc<Self>, mut rng: Rng) -> anyhow::Result<()> {
        loop {
            pause(&mut rng, 80..400).await;
            self.client.call(&many::choose(&mut rng)).await;
        }
    }

    /// Cancels and revokes, now here, now there.
    pub async fn operate(self: Arc<Self>, mut rng: Rng) -> anyhow::Result<()> {
        loop {
            pause(&mut rng, 10..40).await;
            if let Some(op) = self.choose(&mut rng) {
                self.client.call(&op).await;
            }
        }
    }
    fn choose(&self, rng: &mut Rng) -> Option<Op> {
        Some(match rng.u8(..16) {
            0..4 => Op::Cancel { id: self.recent.pick(rng)? },
            4 => Op::CancelFlow { flow: self.flows.pick(rng)? },
            _ => Op::Revoke { id: self.recent.pick(rng)? },
        })
    }
}

/// A client does not know where a store keeps a flow; all of them agree about these.
fn in_first_partition(rng: &mut Rng) -> Uuid {
    let config = PartitionConfig::default();
    loop {
        let flow = uuid::Builder::from_random_bytes(rng.u128(..).to_be_bytes()).into_uuid();
        if flow_partition(&FlowId(flow), &config).index == 0 {
            return flow;
        }
    }
}
