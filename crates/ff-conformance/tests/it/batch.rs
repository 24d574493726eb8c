//! Operations that share a transaction see what those before them have done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ff_conformance::exercise::claim_from;
use ff_core::contracts::{FlowEdge, FlowNode, SetTagsArgs, Submission, SubmitFlowArgs};
use ff_core::engine::EngineConfig;
use ff_core::engine::clock::ManualClock;
use ff_core::engine_backend::{EngineBackend, FlowOperations};
use ff_core::operations::execution::{Complete, SetTags};
use ff_core::operations::timer::{Retain, Retention};
use ff_core::store::memory::MemoryBackend;
use ff_core::store::{Batch, Job};
use ff_core::types::Namespace;
use tokio::sync::oneshot;

#[tokio::test]
async fn what_was_forgotten_is_gone_for_the_next_operation() {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let config = EngineConfig { retention: Retention::FOREVER, ..EngineConfig::default() };
    let backend = MemoryBackend::new(clock.clone(), config);
    let outcome = backend.submit(vec![Submission::new("lane", "kind")]).await.unwrap().remove(0);
    let id = outcome.execution_id().unwrap().clone();
    let claimed = backend.claim_many(claim_from("lane")).await.unwrap().remove(0);
    backend.complete(&claimed.handle, None).await.unwrap();
    clock.advance(Duration::from_secs(60));

    let old = Retention { max_age_ms: Some(1_000), max_finished: None };
    let (retained, _) = oneshot::channel();
    let (tagged, mut answer) = oneshot::channel();
    let tags = BTreeMap::from([("a.b".to_owned(), Some("c".to_owned()))]);
    let tag = SetTags { args: SetTagsArgs { execution_id: id.clone(), tags } };
    let mut batch = Batch::new(vec![
        Job::new(Retain { scan: old.scan(100).unwrap() }, None, retained),
        Job::new(tag, None, tagged),
    ]);
    backend.store().transact_now(&mut batch, true).unwrap();
    batch.answer();
    assert_eq!(answer.try_recv().unwrap().unwrap_err().code(), "not_found");
    assert!(backend.describe_execution(&id).await.unwrap().is_none());
}

#[tokio::test]
async fn a_child_is_handed_out_by_the_transaction_that_ends_its_parent() {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let backend = MemoryBackend::new(clock, EngineConfig::default());
    let node = |name: &str| FlowNode::new(name, Submission::new("lane", "kind"));
    let args = SubmitFlowArgs {
        namespace: Namespace::new("default"),
        nodes: vec![node("parent"), node("child")],
        edges: vec![FlowEdge::new("parent", "child")],
        ..SubmitFlowArgs::default()
    };
    let flow = backend.submit_flow(args).await.unwrap();
    let parent = backend.claim_many(claim_from("lane")).await.unwrap().remove(0);
    let mut waits = claim_from("lane");
    waits.wait = Duration::from_secs(60);
    let waiter = backend.clone();
    let claim = tokio::spawn(async move { waiter.claim_many(waits).await });
    // Until the claim has found nothing and has left itself with the bells.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }

    let (completed, mut answer) = oneshot::channel();
    let complete = Complete { handle: parent.handle, result: None };
    let mut batch = Batch::new(vec![Job::new(complete, None, completed)]);
    backend.store().transact_now(&mut batch, true).unwrap();
    assert_eq!(batch.len(), 2, "the claim was decided behind the completion");
    batch.answer();
    answer.try_recv().unwrap().unwrap();
    let claimed = claim.await.unwrap().unwrap();
    assert_eq!(claimed[0].execution_id, flow.execution_ids()[1]);
}
