//! The work of an ended execution is started anew, as an execution of its own.

use std::collections::BTreeMap;

use ff_core::contracts::{
    EventType, FailureClass, FlowEdge, FlowNode, ResubmitArgs, ResubmitResult, SetTagsArgs,
    Submission, SubmitFlowArgs,
};
use ff_core::engine_backend::{EngineBackend, FlowOperations, Namespaced};
use ff_core::engine_error::EngineError;
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, Namespace};

use super::{Fixture, code, failure, item, new_id, retries};

async fn resubmit(f: &Fixture, id: &ExecutionId) -> Result<ResubmitResult, EngineError> {
    f.backend.resubmit(ResubmitArgs::new(id.clone())).await
}

/// Resubmits what must be accepted, and names the new execution.
async fn accepted(f: &Fixture, args: ResubmitArgs) -> ExecutionId {
    match f.backend.resubmit(args).await.unwrap() {
        ResubmitResult::Created { execution_id, public_state } => {
            assert_eq!(public_state, PublicState::Waiting);
            execution_id
        }
        duplicate => panic!("expected a new execution, got {duplicate:?}"),
    }
}

async fn cancelled(f: &Fixture, item: Submission) -> ExecutionId {
    let id = f.submit(item).await;
    f.cancel_execution(&id).await.unwrap();
    id
}

pub async fn the_same_work(f: &Fixture) {
    let policy = retries(3, 1_000);
    let work = item().payload(b"{\"a\":1}".to_vec()).policy(policy).priority(7).tag("a.b", "c");
    let work = Submission { payload_encoding: Some("json".into()), ..work };
    let work = Submission { creator_identity: "creator".into(), ..work };
    let from = cancelled(f, work).await;
    let tags = BTreeMap::from([("a.late".to_owned(), Some("yes".to_owned()))]);
    f.backend.set_tags(SetTagsArgs { execution_id: from.clone(), tags }).await.unwrap();
    let before = f.picture(&from).await;
    f.advance(1_000).await;

    let id = accepted(f, ResubmitArgs::new(from.clone())).await;
    assert_ne!(id, from);
    assert_eq!(f.picture(&from).await, before, "the original stays as it ended");
    let (old, new) = (f.snapshot(&from).await, f.snapshot(&id).await);
    assert_eq!((old.resubmitted_from, new.resubmitted_from), (None, Some(from.clone())));
    assert_eq!((&new.namespace, &new.lane_id), (&old.namespace, &old.lane_id));
    assert_eq!((&new.execution_kind, &new.tags), (&old.execution_kind, &old.tags));
    assert_eq!((new.priority, &new.creator_identity), (7, &"creator".to_owned()));
    assert_eq!(new.payload_encoding.as_deref(), Some("json"));
    assert_eq!((new.created_at, new.public_state), (f.now(), PublicState::Waiting));
    assert_eq!((new.cancellation_reason, new.finished_at, new.version), (None, None, 1));
    let event = f.history(&id).await.pop().unwrap();
    assert_eq!(event.event_type, EventType::Submitted);
    assert_eq!(event.details["resubmitted_from"], from.as_str());

    let claimed = f.claim().await;
    assert_eq!((&claimed.execution_id, &claimed.payload[..]), (&id, &b"{\"a\":1}"[..]));
    f.backend.fail(&claimed.handle, failure(FailureClass::Retryable)).await.unwrap();
    assert_eq!(f.state(&id).await, PublicState::Delayed, "its policy has retries");
}

pub async fn with_another_payload(f: &Fixture) {
    let (from, handle) = f.start(item().payload(b"old".to_vec())).await;
    f.backend.complete(&handle, Some(b"result".to_vec())).await.unwrap();
    let mut args = ResubmitArgs::new(from.clone());
    args.input_payload = Some(b"[2]".to_vec());
    args.payload_encoding = Some("json".into());
    args.creator_identity = "operator".into();
    let id = accepted(f, args).await;
    assert_eq!(f.backend.payload(&id).await.unwrap().as_deref(), Some(&b"[2]"[..]));
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.payload_encoding.as_deref(), Some("json"));
    assert_eq!(seen.creator_identity, "operator");
    assert!(f.backend.result(&id).await.unwrap().is_none());
    assert_eq!(f.backend.payload(&from).await.unwrap().as_deref(), Some(&b"old"[..]));
    let large = vec![b'x'; 200_000];
    let again = ResubmitArgs { input_payload: Some(large.clone()), ..ResubmitArgs::new(id) };
    assert_eq!(code(&f.backend.resubmit(again.clone()).await), "execution_not_ended");
    let claimed = f.claim().await;
    f.backend.complete(&claimed.handle, None).await.unwrap();
    let id = accepted(f, again).await;
    f.cancel_execution(&id).await.unwrap();
    let copy = accepted(f, ResubmitArgs::new(id)).await;
    assert_eq!(f.backend.payload(&copy).await.unwrap().as_deref(), Some(&large[..]));
}

pub async fn refused(f: &Fixture) {
    let (running, _) = f.start(item()).await;
    let waiting = f.submit(item()).await;
    for id in [&running, &waiting] {
        let before = f.picture(id).await;
        assert_eq!(code(&resubmit(f, id).await), "execution_not_ended");
        assert_eq!(f.picture(id).await, before);
    }
    assert_eq!(code(&resubmit(f, &new_id()).await), "not_found");
    let foreign = cancelled(f, item().namespace("theirs")).await;
    let mine = Namespaced::new(f.backend.clone(), Namespace::new("mine"));
    let refused = mine.resubmit(ResubmitArgs::new(foreign.clone())).await;
    assert_eq!(code(&refused), "not_found");
    let payload = Some(vec![0; 1024 * 1024 + 1]);
    let args = ResubmitArgs { input_payload: payload, ..ResubmitArgs::new(foreign.clone()) };
    assert_eq!(code(&f.backend.resubmit(args).await), "payload_too_large");
    let id = accepted(f, ResubmitArgs::new(foreign)).await;
    assert_eq!(f.snapshot(&id).await.namespace.as_str(), "theirs");
}

pub async fn keys(f: &Fixture) {
    let from = cancelled(f, item().idempotency_key("its own")).await;
    let keyed = || ResubmitArgs {
        idempotency_key: Some("again".into()),
        ..ResubmitArgs::new(from.clone())
    };
    let id = accepted(f, keyed()).await;
    assert_eq!(f.snapshot(&id).await.idempotency_key.as_deref(), Some("again"));
    let repeat = f.backend.resubmit(keyed()).await.unwrap();
    assert_eq!(repeat, ResubmitResult::Duplicate { execution_id: id.clone() });
    let other = ResubmitArgs { input_payload: Some(b"other".to_vec()), ..keyed() };
    assert_eq!(code(&f.backend.resubmit(other).await), "idempotency_key_reused");
    let unkeyed = accepted(f, ResubmitArgs::new(from)).await;
    assert_eq!(f.snapshot(&unkeyed).await.idempotency_key, None);
}

pub async fn unique_keys(f: &Fixture) {
    let unique = || item().unique_until_finished("only");
    let from = cancelled(f, unique()).await;
    let id = accepted(f, ResubmitArgs::new(from.clone())).await;
    let repeat = resubmit(f, &from).await;
    assert_eq!(code(&repeat), "unique_key_held");
    assert!(repeat.unwrap_err().to_string().contains(id.as_str()));
    let outcome = f.offer(unique()).await;
    assert_eq!(outcome.execution_id(), Some(&id), "the new execution holds the key");
    let args = ResubmitArgs { idempotency_key: Some("b".into()), ..ResubmitArgs::new(from) };
    assert_eq!(code(&f.backend.resubmit(args).await), "invalid_input");
    let claimed = f.claim().await;
    assert_eq!(claimed.execution_id, id);
    f.backend.fail(&claimed.handle, failure(FailureClass::Fatal)).await.unwrap();
    f.replay(&id).await.expect("its key was given back, and it takes it again");
}

pub async fn of_a_flow_member(f: &Fixture) {
    let nodes = ["a", "b"].map(|name| FlowNode::new(name, item()));
    let args = SubmitFlowArgs {
        namespace: Namespace::new("default"),
        flow_kind: "kind".into(),
        nodes: nodes.to_vec(),
        edges: vec![FlowEdge::new("a", "b")],
        ..SubmitFlowArgs::default()
    };
    let flow = f.backend.submit_flow(args).await.unwrap();
    let claimed = f.claim().await;
    f.backend.fail(&claimed.handle, failure(FailureClass::Fatal)).await.unwrap();
    let skipped = f.snapshot(&flow.execution_ids()[1]).await;
    assert_eq!(skipped.public_state, PublicState::Skipped);
    for from in [&claimed.execution_id, &skipped.execution_id] {
        let id = accepted(f, ResubmitArgs::new(from.clone())).await;
        assert_eq!(f.snapshot(&id).await.flow_id, None, "it runs on its own");
        assert_eq!(f.claim().await.execution_id, id);
    }
}
