//! The people of the play: submitters, workers and an operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use ff_core::types::FlowId;
use uuid::Uuid;

use super::client::{Client, LEASE_MS};
use super::habits::Habits;
use super::ids::{Recent, new_id, pause};
use super::many;
use crate::graph::Planted;
use crate::history::{Grant, Op, Outcome, Sitting, Work};

/// Whether workers stall past their lease, abandon work and contradict themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Temper {
    Reckless,
    Calm,
}

/// Everybody who works in one process, and what they tell each other.
pub struct Crew {
    client: Client,
    sitting: Sitting,
    temper: Temper,
    stopped: AtomicBool,
    executions: Recent<String>,
    /// Members of flows, which are not replayed: a flow would begin again.
    members: Recent<String>,
    flows: Recent<Uuid>,
}

impl Crew {
    pub fn new(client: Client, sitting: Sitting, temper: Temper) -> Arc<Self> {
        let (executions, members) = (Recent::default(), Recent::default());
        let (stopped, flows) = (AtomicBool::new(false), Recent::default());
        Arc::new(Self { client, sitting, temper, stopped, executions, members, flows })
    }

    /// Workers finish what they have in hand and return.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Submits work under chosen ids, sometimes twice under one key, sometimes in contradiction.
    pub async fn submit(self: Arc<Self>, pause_ms: (u64, u64), mut rng: Rng) -> anyhow::Result<()> {
        loop {
            let mut items = Vec::new();
            for _ in 0..rng.usize(1..5) {
                let key = (rng.u8(..4) == 0).then(|| format!("key-{:016x}", rng.u64(..)));
                let work = Work::new(new_id(&mut rng), key, rng.u64(..));
                if work.key.is_some() && rng.bool() {
                    let same = rng.u8(..4) > 0;
                    let seed = if same { work.seed } else { rng.u64(..) };
                    items.push(Work::new(new_id(&mut rng), work.key.clone(), seed));
                }
                self.executions.remember(work.id.clone());
                items.push(work);
            }
            rng.shuffle(&mut items);
            self.client.submit(items).await;
            pause(&mut rng, pause_ms.0..pause_ms.1).await;
        }
    }

    /// Submits graphs.
    pub async fn plant(self: Arc<Self>, pause_ms: (u64, u64), mut rng: Rng) -> anyhow::Result<()> {
        loop {
            let flow = uuid::Builder::from_random_bytes(rng.u128(..).to_be_bytes()).into_uuid();
            let partition = self.client.backend.engine().store().flow_partition(&FlowId(flow));
            let planted = Planted { flow, partition, seed: rng.u64(..) };
            planted.nodes().into_iter().for_each(|node| self.members.remember(node.work.id));
            self.flows.remember(flow);
            self.client.call(&Op::Plant(planted)).await;
            pause(&mut rng, pause_ms.0 * 6..pause_ms.1 * 6).await;
        }
    }

    /// Looks whether the limits hold.
    pub async fn watch(self: Arc<Self>, mut rng: Rng) -> anyhow::Result<()> {
        loop {
            let watch = if rng.bool() { Op::WatchBudget } else { Op::WatchQuota };
            self.client.call(&watch).await;
            pause(&mut rng, 5..30).await;
        }
    }

    /// Does something to all of the latest executions of a lane, and starts what is not due yet.
    pub async fn sweep(self: Arc<Self>, mut rng: Rng) -> anyhow::Result<()> {
        loop {
            pause(&mut rng, 60..240).await;
            self.client.call(&many::choose(&mut rng)).await;
        }
    }

    pub async fn work(self: Arc<Self>, worker: u64, mut rng: Rng) -> anyhow::Result<()> {
        let worker = format!("worker-{}-{worker}", self.sitting);
        let mut in_hand = tokio::task::JoinSet::new();
        while !self.stopped.load(Ordering::Relaxed) {
            let claim = Op::Claim { worker: worker.clone() };
            let Some(Outcome::Granted { grants }) = self.client.call(&claim).await else {
                pause(&mut rng, 5..10).await;
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
        while let Some(done) = in_hand.join_next().await {
            done?;
        }
        Ok(())
    }

    /// What a worker does with one grant.
    async fn handle(self: Arc<Self>, grant: Grant, mut rng: Rng) {
        let choice = rng.u8(..100);
        let lease = grant.lease.clone();
        let reckless = self.temper == Temper::Reckless;
        let habits = Habits { caller: &self.client, reckless };
        match choice {
            0..8 => {
                let fatal = rng.u8(..4) == 0;
                self.client.call(&Op::Fail { lease, fatal }).await;
            }
            8..10 => {
                self.client.call(&Op::GiveUp(lease)).await;
            }
            // Long past its lease, it writes nevertheless.
            10..15 if reckless => {
                let late = u64::from(LEASE_MS);
                pause(&mut rng, late - 50..late + 100).await;
                habits.complete(lease, &mut rng).await;
            }
            // Takes longer than a lease, and says so in time.
            30..35 => {
                for _ in 0..2 {
                    pause(&mut rng, u64::from(LEASE_MS) / 2..u64::from(LEASE_MS) * 2 / 3).await;
                    self.client.call(&Op::Renew(lease.clone())).await;
                }
                habits.complete(lease, &mut rng).await;
            }
            35..41 => habits.wait_for_signal(lease, &mut rng).await,
            41..49 => habits.step(grant, &mut rng).await,
            49..55 => habits.speak(lease, &mut rng).await,
            55..60 => habits.report(lease, &mut rng).await,
            // Dies with the work in hand.
            15..17 if reckless => {}
            17..27 => {
                pause(&mut rng, 1..40).await;
                self.client.call(&Op::Renew(lease.clone())).await;
                habits.complete(lease, &mut rng).await;
            }
            // Says it again, and differently.
            27..30 if reckless => {
                habits.complete(lease.clone(), &mut rng).await;
                habits.complete(lease.clone(), &mut rng).await;
                self.client.call(&Op::Renew(lease)).await;
            }
            _ => habits.complete(lease, &mut rng).await,
        }
    }

    /// Cancels, revokes and replays, now here, now there.
    pub async fn operate(self: Arc<Self>, mut rng: Rng) -> anyhow::Result<()> {
        loop {
            pause(&mut rng, 2..12).await;
            if let Some(op) = self.choose(&mut rng) {
                self.client.call(&op).await;
            }
        }
    }

    fn choose(&self, rng: &mut Rng) -> Option<Op> {
        Some(match rng.u8(..16) {
            0..2 => Op::Cancel { id: self.executions.pick(rng)? },
            2..7 => Op::Revoke { id: self.executions.pick(rng)? },
            7..10 => Op::Replay { id: self.executions.pick(rng)? },
            10 => Op::Cancel { id: self.members.pick(rng)? },
            11..15 => Op::Revoke { id: self.members.pick(rng)? },
            _ => Op::CancelFlow { flow: self.flows.pick(rng)? },
        })
    }
}
