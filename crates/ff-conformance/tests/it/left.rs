//! Whoever asks for work and goes away leaves nothing behind but work that waits again, whenever it
//! went.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ff_conformance::exercise::claim_from;
use ff_core::contracts::{Submission, SubmitOutcome};
use ff_core::engine::clock::ManualClock;
use ff_core::engine::{Engine, EngineConfig, Queue};
use ff_core::engine_backend::EngineBackend;
use ff_core::state::PublicState;
use ff_core::store::Batch;
use ff_core::store::memory::MemoryStore;
use ff_core::types::ExecutionId;

/// An engine whose queue is emptied by hand.
struct Bed {
    backend: Arc<ByHand>,
    queue: Queue,
    store: Arc<MemoryStore>,
}

struct ByHand(Engine);

impl EngineBackend for ByHand {
    fn engine(&self) -> &Engine {
        &self.0
    }
}

impl Bed {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new(Arc::new(ManualClock::new(1_800_000_000_000))));
        let (engine, queue) = Engine::new(store.clone(), EngineConfig::default());
        Self { backend: Arc::new(ByHand(engine)), queue, store }
    }

    /// Commits whatever waits, and says how much that was. Nobody is answered yet.
    fn commit(&mut self) -> Batch {
        let jobs = std::iter::from_fn(|| self.queue.try_recv().ok()).collect();
        let mut batch = Batch::new(jobs);
        self.store.transact_now(&mut batch, true).unwrap();
        batch
    }

    async fn submit(&mut self) -> ExecutionId {
        let backend = self.backend.clone();
        let mut submit = pin!(backend.submit(vec![Submission::new("lane", "kind")]));
        assert!(!is_ready(&mut submit).await);
        self.commit().answer();
        match submit.await.unwrap().remove(0) {
            SubmitOutcome::Created { execution_id, .. } => execution_id,
            other => panic!("{other:?}"),
        }
    }

    /// The put-back is in the queue; once it is done, the next claim has the work.
    async fn is_put_back(&mut self, id: &ExecutionId) {
        let batch = self.commit();
        assert_eq!(batch.len(), 1, "the lease is given back");
        batch.answer();
        let snapshot = self.backend.describe_execution(id).await.unwrap().unwrap();
        assert_eq!(snapshot.public_state, PublicState::Waiting);
        let backend = self.backend.clone();
        let mut next = pin!(backend.claim_many(claim_from("lane")));
        assert!(!is_ready(&mut next).await);
        self.commit().answer();
        let claimed = next.await.unwrap();
        assert_eq!(claimed[0].execution_id, *id);
        assert_eq!(claimed[0].attempt_index, 0, "nothing was begun, so nothing has failed");
    }
}

async fn is_ready<F: Future>(future: &mut std::pin::Pin<&mut F>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// The transaction is under way when the caller goes.
#[tokio::test]
async fn during_the_commit() {
    let mut bed = Bed::new();
    let id = bed.submit().await;
    let backend = bed.backend.clone();
    let batch = {
        let mut claim = pin!(backend.claim_many(claim_from("lane")));
        assert!(!is_ready(&mut claim).await);
        bed.commit()
    };
    batch.answer();
    bed.is_put_back(&id).await;
}

/// The answer has come, and nobody has looked at it.
#[tokio::test]
async fn after_the_answer() {
    let mut bed = Bed::new();
    let id = bed.submit().await;
    let backend = bed.backend.clone();
    {
        let mut claim = pin!(backend.claim_many(claim_from("lane")));
        assert!(!is_ready(&mut claim).await);
        bed.commit().answer();
    }
    bed.is_put_back(&id).await;
}

/// The claim waits with the bells, and whoever brings work decides it.
#[tokio::test]
async fn while_it_waits_for_work() {
    let mut bed = Bed::new();
    let (waiting, bringing) = (bed.backend.clone(), bed.backend.clone());
    let mut args = claim_from("lane");
    args.wait = Duration::from_secs(60);
    let (batch, id) = {
        let mut claim = pin!(waiting.claim_many(args));
        assert!(!is_ready(&mut claim).await);
        bed.commit().answer();
        assert!(!is_ready(&mut claim).await, "there is nothing yet");
        let mut submit = pin!(bringing.submit(vec![Submission::new("lane", "kind")]));
        assert!(!is_ready(&mut submit).await);
        let batch = bed.commit();
        assert_eq!(batch.len(), 2, "the claim is decided with the submission");
        let id = bed.store.read(|tables| tables.executions.keys().next().copied());
        (batch, id.unwrap().execution_id())
    };
    batch.answer();
    bed.is_put_back(&id).await;
}

/// Before the transaction, it takes nothing.
#[tokio::test]
async fn before_the_commit() {
    let mut bed = Bed::new();
    let id = bed.submit().await;
    let backend = bed.backend.clone();
    {
        let mut claim = pin!(backend.claim_many(claim_from("lane")));
        assert!(!is_ready(&mut claim).await);
    }
    bed.commit().answer();
    assert!(bed.queue.try_recv().is_err(), "there is nothing to give back");
    let snapshot = bed.backend.describe_execution(&id).await.unwrap().unwrap();
    assert_eq!(snapshot.public_state, PublicState::Waiting);
}
