//! Steps and streams between two engines on one schema: what one of them remembers of an execution
//! counts for nothing once the other one has changed it, and each can follow what the other says.

use std::time::Duration;

use ff_core::contracts::{
    AppendFramesArgs, CloseReason, FrameInput, ReadStreamArgs, RecordStepOutcome, RevokeLeaseArgs,
    Submission,
};
use ff_core::engine_backend::{EngineBackend, StepOperations, StreamOperations};
use ff_core::types::WorkerInstanceId;

use crate::database::{Schema, claim_from};

const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_other_engine_did_counts_for_steps() {
    let schema = Schema::new();
    let (own, other) = (schema.open().await, schema.open().await);
    for round in 0..ROUNDS {
        own.submit(vec![Submission::new("steps", "test")]).await.expect("submit");
        let claim = claim_from("steps", 1, Duration::from_secs(10));
        let one = own.claim_many(claim).await.expect("claim").remove(0);
        let recorded = own.record_step(&one.handle, "first", vec![1]).await.expect("record");
        assert!(matches!(recorded, RecordStepOutcome::Recorded { sequence: 1, .. }));
        // The other one goes on where this one stopped, and back.
        let elsewhere = other.record_step(&one.handle, "second", vec![2]).await.expect("record");
        assert!(matches!(elsewhere, RecordStepOutcome::Recorded { sequence: 2, .. }));
        let known = own.record_step(&one.handle, "second", vec![9]).await.expect("record");
        assert!(matches!(known, RecordStepOutcome::Kept { sequence: 2, .. }), "{known:?}");
        let third = own.record_step(&one.handle, "third", vec![3]).await.expect("record");
        assert!(matches!(third, RecordStepOutcome::Recorded { sequence: 3, .. }), "{third:?}");
        if round % 2 == 0 {
            let args = RevokeLeaseArgs {
                execution_id: one.execution_id.clone(),
                expected_lease_id: None,
                worker_instance_id: WorkerInstanceId::new(""),
                reason: "asked for".into(),
            };
            other.revoke_lease(args).await.expect("revoke");
        } else {
            other.complete(&one.handle, None).await.expect("complete");
        }
        let late = own.record_step(&one.handle, "late", vec![4]).await;
        assert!(late.is_err(), "round {round}: {late:?}");
        let frames = vec![FrameInput::new("late", b"late".to_vec())];
        let late = own.append_frames(&one.handle, AppendFramesArgs { frames, append_id: None });
        assert!(late.await.is_err(), "round {round}");
        let steps = own.list_steps(&one.execution_id, 0, 10).await.expect("list");
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["first", "second", "third"]);
        if round % 2 == 0 {
            let claim = claim_from("steps", 1, Duration::from_secs(10));
            let again = other.claim_many(claim).await.expect("claim").remove(0);
            assert_eq!(again.steps, steps.items);
            other.complete(&again.handle, None).await.expect("complete");
        }
    }
    own.close().await;
    other.close().await;
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_followed_on_the_other_engine() {
    let schema = Schema::new();
    let (own, other) = (schema.open().await, schema.open().await);
    own.submit(vec![Submission::new("stream", "test")]).await.expect("submit");
    let claim = claim_from("stream", 1, Duration::from_secs(10));
    let one = own.claim_many(claim).await.expect("claim").remove(0);
    let mut args =
        ReadStreamArgs { wait_ms: 30_000, ..ReadStreamArgs::new(one.execution_id.clone()) };
    for said in 0..3_u8 {
        let reading = tokio::spawn({
            let (other, args) = (other.clone(), args.clone());
            async move { other.read_stream(args).await.expect("read") }
        });
        let frames = vec![FrameInput::new("said", vec![said])];
        let append = AppendFramesArgs { frames, append_id: None };
        own.append_frames(&one.handle, append).await.expect("append");
        let page = reading.await.expect("read");
        assert_eq!(page.frames.len(), 1);
        assert_eq!(*page.frames[0].payload, [said]);
        args.from = page.next;
    }
    let reading = tokio::spawn({
        let (other, args) = (other.clone(), args.clone());
        async move { other.read_stream(args).await.expect("read") }
    });
    own.complete(&one.handle, None).await.expect("complete");
    let end = reading.await.expect("read").closed.expect("closed");
    assert_eq!(end.reason, CloseReason::AttemptSuccess);
    own.close().await;
    other.close().await;
    schema.drop().await;
}
