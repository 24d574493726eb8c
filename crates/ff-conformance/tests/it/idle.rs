//! An engine with nothing to do does (almost) nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ff_core::contracts::{Durability, Submission};
use ff_core::engine::clock::ManualClock;
use ff_core::engine::{Engine, EngineConfig, Pumping, pump};
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::StoreError;
use ff_core::policy::ExecutionPolicy;
use ff_core::store::memory::MemoryStore;
use ff_core::store::{Batch, Bells, Query, Rows, Store};
use ff_core::types::{FlowId, LaneId, TimestampMs, WorkerInstanceId};

use ff_conformance::exercise::claim_from;

/// A memory store that counts what it is asked.
struct Counting {
    store: MemoryStore,
    transactions: AtomicUsize,
    queries: AtomicUsize,
    answers: AtomicUsize,
    pauses: AtomicUsize,
}

#[async_trait]
impl Store for Counting {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }

    fn now(&self) -> TimestampMs {
        self.store.now()
    }

    async fn sleep_until(&self, at: TimestampMs) {
        self.store.sleep_until(at).await;
    }

    fn flow_partition(&self, flow: &FlowId) -> u16 {
        self.store.flow_partition(flow)
    }

    fn solo_partition(&self, lane: &LaneId) -> u16 {
        self.store.solo_partition(lane)
    }

    async fn transact(&self, batch: &mut Batch) -> Result<(), StoreError> {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.store.transact(batch).await
    }

    fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    fn idle(&self, quiet: Duration) {
        let pauses = usize::from(quiet >= Duration::from_millis(1));
        self.pauses.fetch_add(pauses, Ordering::Relaxed);
    }

    async fn query(&self, query: Query) -> Result<Rows, StoreError> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.store.query(query).await
    }

    fn listen(&self) -> &Arc<Bells> {
        self.store.listen()
    }
}

struct Backend(Arc<Engine>);

impl EngineBackend for Backend {
    fn engine(&self) -> &Engine {
        &self.0
    }
}

fn counting() -> Arc<Counting> {
    Arc::new(Counting {
        store: MemoryStore::new(Arc::new(ManualClock::new(1_800_000_000_000))),
        transactions: AtomicUsize::new(0),
        queries: AtomicUsize::new(0),
        answers: AtomicUsize::new(0),
        pauses: AtomicUsize::new(0),
    })
}

fn counted() -> (Arc<Counting>, Arc<Backend>) {
    let store = counting();
    let engine = Engine::start(store.clone(), EngineConfig::default());
    (store, Arc::new(Backend(engine)))
}

#[tokio::test(start_paused = true)]
async fn work_that_nobody_here_can_do_wakes_each_waiter_once() {
    let (store, backend) = counted();
    for number in 0..4 {
        let backend = backend.clone();
        let mut args = claim_from("lane");
        args.worker_instance_id = WorkerInstanceId::new(format!("w{number}"));
        args.wait = Duration::from_secs(3600);
        tokio::spawn(async move { backend.claim_many(args).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut policy = ExecutionPolicy::default();
    policy.routing_requirements.required_capabilities.insert("gpu".into());
    let item = Submission::new("lane", "kind").policy(policy);
    backend.submit(vec![item]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.transactions.store(0, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let transactions = store.transactions.load(Ordering::Relaxed);
    assert_eq!(transactions, 0, "waiting claims go on ringing each other");
}

#[tokio::test(start_paused = true)]
async fn nothing_due_means_no_writes_and_few_reads() {
    let (store, backend) = counted();
    // Waiting, delayed and retained work alike lie still until their time comes.
    let waiting = Submission::new("lane", "kind");
    let delayed = Submission::new("lane", "kind").delay(Duration::from_secs(3600));
    backend.submit(vec![waiting, delayed]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    store.transactions.store(0, Ordering::Relaxed);
    store.queries.store(0, Ordering::Relaxed);

    let minutes = 10;
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    assert_eq!(store.transactions.load(Ordering::Relaxed), 0, "an idle engine wrote");
    let queries = store.queries.load(Ordering::Relaxed);
    assert!(queries <= 4 * minutes as usize, "{queries} reads in {minutes} minutes");
}

#[tokio::test(start_paused = true)]
async fn a_store_is_told_of_each_batch_and_once_of_each_pause() {
    let store = counting();
    let (engine, queue) = Engine::new(store.clone(), EngineConfig::default());
    let pumping = Pumping { max_batch: 8, own_thread: true };
    tokio::spawn(pump(store.clone(), queue, pumping, std::future::pending()));
    let backend = Backend(Arc::new(engine));
    let told = || (store.answers.load(Ordering::Relaxed), store.pauses.load(Ordering::Relaxed));
    let submit = || backend.submit(vec![Submission::new("lane", "kind")]);

    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(told(), (0, 0), "nothing was done yet");
    for _ in 0..3 {
        submit().await.unwrap();
    }
    let (_, pauses) = told();
    assert_eq!(pauses, 0, "the next one may be on its way");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(told(), (3, 1));
    submit().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(told(), (4, 2));
}
