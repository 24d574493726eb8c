//! A panic anywhere in a transaction is answered, and the engine goes on.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;

use super::clock::ManualClock;
use super::{Engine, EngineConfig, Pumping, Shared, pump, pump_shared};
use crate::contracts::{Durability, Submission};
use crate::engine::prepare_submit;
use crate::engine_error::{EngineError, StoreError};
use crate::operations::execution::Submit;
use crate::state::PublicState;
use crate::store::memory::{MemoryStore, Tables};
use crate::store::{Batch, Bells, Query, Rows, Store};
use crate::types::{ExecutionKey, FlowId, LaneId, TimestampMs};

const NEVER: u8 = 0;
const BEFORE: u8 = 1;
const AFTER: u8 = 2;
const TIDYING: u8 = 3;

/// A memory store with a bug that shows once, when it is asked for.
struct Faulty {
    memory: MemoryStore,
    fault: AtomicU8,
    /// An execution whose changes cannot be written.
    unwritable: OnceLock<ExecutionKey>,
    distrusted: AtomicU32,
}

impl Faulty {
    fn new() -> Arc<Self> {
        Self::at(&Arc::new(ManualClock::new(1_000)))
    }

    fn at(clock: &Arc<ManualClock>) -> Arc<Self> {
        let memory = MemoryStore::new(clock.clone());
        let (fault, distrusted) = (AtomicU8::new(NEVER), AtomicU32::new(0));
        Arc::new(Self { memory, fault, unwritable: OnceLock::new(), distrusted })
    }

    /// Undoes a transaction and panics if it has changed what cannot be written.
    fn check_written(&self, before: Tables) {
        let Some(key) = self.unwritable.get() else { return };
        let unchanged = self.memory.read(|now| now.executions[key] == before.executions[key]);
        if !unchanged {
            self.memory.edit(|now| *now = before);
            panic!("the bug shows");
        }
    }

    fn panic_once(&self, fault: u8) {
        let meant = self.fault.compare_exchange(fault, NEVER, Ordering::AcqRel, Ordering::Acquire);
        assert!(meant.is_err(), "the bug shows");
    }

    fn executions(&self) -> usize {
        self.memory.read(|tables| tables.executions.len())
    }
}

#[async_trait]
impl Store for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn durability(&self) -> Durability {
        Durability::BestEffort
    }

    fn now(&self) -> TimestampMs {
        self.memory.now()
    }

    async fn sleep_until(&self, at: TimestampMs) {
        self.memory.sleep_until(at).await;
    }

    fn flow_partition(&self, _: &FlowId) -> u16 {
        0
    }

    fn solo_partition(&self, _: &LaneId) -> u16 {
        0
    }

    async fn transact(&self, batch: &mut Batch) -> Result<(), StoreError> {
        self.panic_once(BEFORE);
        let before = self.memory.dump();
        self.memory.transact(batch).await?;
        self.check_written(before);
        self.panic_once(AFTER);
        Ok(())
    }

    fn answered(&self) {
        self.panic_once(TIDYING);
    }

    fn distrust(&self) {
        self.distrusted.fetch_add(1, Ordering::AcqRel);
    }

    async fn query(&self, query: Query) -> Result<Rows, StoreError> {
        self.memory.query(query).await
    }

    fn listen(&self) -> &Arc<Bells> {
        self.memory.listen()
    }
}

fn submit(engine: &Engine) -> Submit {
    let items = vec![Submission::new("lane", "kind")];
    prepare_submit(items, &engine.config().limits, None, |_| 0).expect("within the limits")
}

/// Panics in three places, under a pump of one kind or the other.
async fn survives(engine: &Engine, store: &Faulty) {
    store.fault.store(BEFORE, Ordering::Release);
    let refused = engine.run(None, submit(engine)).await.expect_err("the bug shows");
    assert!(refused.is_panic(), "nothing was written: {refused}");
    assert_eq!(store.executions(), 0);

    store.fault.store(AFTER, Ordering::Release);
    let unknown = engine.run(None, submit(engine)).await.expect_err("the bug shows");
    assert!(matches!(unknown, EngineError::OutcomeUnknown { .. }), "{unknown}");
    assert_eq!(store.executions(), 1, "it was committed all the same");
    assert_eq!(store.distrusted.load(Ordering::Acquire), 2, "what is kept is forgotten");

    // Outside any transaction: whoever is not answered yet is told, and the pump starts again.
    store.fault.store(TIDYING, Ordering::Release);
    engine.run(None, submit(engine)).await.expect("answered before");
    engine.run(None, submit(engine)).await.expect("the pump goes on");
    assert_eq!(store.executions(), 3);
    engine.check_writing().expect("it writes");
}

#[tokio::test]
async fn a_pump_goes_on_after_panics() {
    let store = Faulty::new();
    let config = EngineConfig { manual_sweeps: true, ..EngineConfig::default() };
    let engine = Engine::start(store.clone(), config);
    survives(&engine, &store).await;
}

#[tokio::test]
async fn a_pump_among_several_goes_on_after_panics() {
    let store = Faulty::new();
    let config = EngineConfig { manual_sweeps: true, ..EngineConfig::default() };
    let (engine, queue) = Engine::new(store.clone(), config);
    tokio::spawn(pump_shared(store.clone(), Shared::new(queue), 64));
    survives(&engine, &store).await;
}

/// An engine without a writer says so, at once and in every call.
#[tokio::test]
async fn an_engine_whose_writer_has_ended_refuses_every_call() {
    let store = Faulty::new();
    let (engine, queue) = Engine::new(store, EngineConfig::default());
    let engine = Arc::new(engine);
    let asking = engine.clone();
    let waiting = tokio::spawn(async move { asking.run(None, submit(&asking)).await });
    while engine.queue.capacity() == engine.config.limits.queue {
        tokio::task::yield_now().await;
    }
    drop(queue);
    let unknown = waiting.await.expect("no panic").expect_err("nothing writes");
    assert!(matches!(unknown, EngineError::OutcomeUnknown { .. }), "{unknown}");
    assert!(engine.run(None, submit(&engine)).await.expect_err("nothing writes").is_closed());
    assert!(engine.check_writing().expect_err("readiness asks for it").is_closed());
}

/// A writer that is told to stop answers what is left and ends, also if it panics meanwhile.
#[tokio::test]
async fn a_pump_that_panics_after_it_was_stopped_ends() {
    let store = Faulty::new();
    let (engine, queue) = Engine::new(store.clone(), EngineConfig::default());
    let engine = Arc::new(engine);
    let asking = engine.clone();
    let waiting = tokio::spawn(async move { asking.run(None, submit(&asking)).await });
    while engine.queue.capacity() == engine.config.limits.queue {
        tokio::task::yield_now().await;
    }
    store.fault.store(TIDYING, Ordering::Release);
    let told = async {};
    pump(store, queue, Pumping { max_batch: 64, own_thread: false }, told).await;
    waiting.await.expect("no panic").expect("answered before");
    assert!(engine.check_writing().expect_err("it has ended").is_closed());
}

/// A timer whose change the store cannot write is put off, and the others fire.
#[tokio::test]
async fn a_timer_that_cannot_be_written_does_not_stop_the_others() {
    let clock = Arc::new(ManualClock::new(1_000));
    let store = Faulty::at(&clock);
    let config = EngineConfig { manual_sweeps: true, ..EngineConfig::default() };
    let engine = Engine::start(store.clone(), config);
    for _ in 0..5 {
        let items = vec![Submission::new("lane", "kind").delay(Duration::from_secs(1))];
        let submit = prepare_submit(items, &engine.config().limits, None, |_| 0).expect("valid");
        engine.run(None, submit).await.expect("submitted");
    }
    let timers = || store.memory.read(|tables| tables.timers.clone());
    let guilty = timers().into_values().nth(2).expect("five timers").members[0].execution;
    store.unwritable.set(guilty).expect("set once");

    clock.advance(Duration::from_secs(1));
    engine.sweep().await.expect("the others fire");
    let delayed = |tables: &Tables| {
        let rows = tables.executions.values();
        let delayed = rows.filter(|row| row.public_state == PublicState::Delayed);
        delayed.map(|row| row.key).collect::<Vec<_>>()
    };
    assert_eq!(store.memory.read(delayed), [guilty]);
    let put_off = timers().into_values().next().expect("it is armed again");
    assert_eq!(put_off.members[0].execution, guilty);
    assert!(put_off.key.due_at > store.now());
}
