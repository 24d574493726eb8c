//! Flows are forgotten with their members, and not before the last of them.

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait};
use ff_core::contracts::{ListExecutionsArgs, ListFlowsArgs, SubmitFlowArgs, SubmitFlowResult};
use ff_core::engine_backend::FlowOperations;
use ff_core::rows::{CascadeRow, ChildrenRow, EdgeGroupRow, EdgeRow, Record};
use ff_core::store::{Query, Scan};

use super::flow_graph::{complete_all, graph, plant, settle, take};
use super::retention::HOUR_MS;
use super::{Fixture, LEASE_MS};

async fn rows<R: Record>(f: &Fixture) -> usize {
    let scans = vec![Scan::of::<R>(Vec::new())];
    let found = f.backend.engine().query(Query::Records { keys: Vec::new(), scans }).await;
    found.unwrap().records.len()
}

/// Headers, members, edges and groups that are left.
async fn left(f: &Fixture) -> [usize; 4] {
    let flows = f.backend.list_flows(ListFlowsArgs::default()).await.unwrap().flows.len();
    let list = ListExecutionsArgs { limit: 1_000, ..ListExecutionsArgs::default() };
    let members = f.backend.list_executions(list).await.unwrap().executions.len();
    assert_eq!(rows::<CascadeRow>(f).await, 0, "nothing is under way");
    assert_eq!(rows::<ChildrenRow>(f).await, 0);
    [flows, members, rows::<EdgeRow>(f).await, rows::<EdgeGroupRow>(f).await]
}

async fn advance(f: &Fixture, ms: u64) {
    f.advance(ms).await;
    settle(f).await;
}

pub async fn with_their_members(f: &Fixture) {
    let keyed = || SubmitFlowArgs { idempotency_key: Some("key".into()), ..graph("a>b>c") };
    let flow = plant(f, keyed()).await;
    assert_eq!(complete_all(f).await, 1);
    advance(f, HOUR_MS / 2).await;
    assert_eq!(complete_all(f).await, 1);
    advance(f, HOUR_MS).await;
    assert_eq!(left(f).await, [1, 3, 2, 2], "members are kept as long as their flow lives");
    assert_eq!(complete_all(f).await, 1);
    advance(f, HOUR_MS - 1).await;
    assert_eq!(left(f).await[0], 1, "the age of a flow counts from its end");
    advance(f, 1).await;
    assert_eq!(left(f).await, [0; 4]);
    assert!(f.backend.describe_flow(&flow.id).await.unwrap().is_none());
    let again = f.backend.submit_flow(keyed()).await.unwrap();
    assert!(matches!(again, SubmitFlowResult::Created { .. }), "its key went with it: {again:?}");
}

/// A flow that was cancelled is over before its members are.
pub async fn not_before_the_last_member(f: &Fixture) {
    let flow = plant(f, graph("a>b")).await;
    let first = take(f, &flow, "a").await;
    let policy = CancelFlowPolicy::CancelPending;
    f.backend.cancel_flow(&flow.id, policy, CancelFlowWait::NoWait).await.unwrap();
    for _ in 0..(2 * HOUR_MS / u64::from(LEASE_MS / 2)) {
        f.backend.renew_many(std::slice::from_ref(&first)).await.unwrap();
        f.advance(u64::from(LEASE_MS / 2)).await;
    }
    settle(f).await;
    let [flows, members, edges, groups] = left(f).await;
    assert_eq!((flows, edges, groups), (1, 1, 1), "one of them still runs");
    assert!(members > 0);
    f.backend.complete(&first, None).await.unwrap();
    advance(f, HOUR_MS).await;
    assert_eq!(left(f).await, [0; 4]);
}

/// Members that a cancellation holds are never handed out again, so they go with their flow.
pub async fn with_members_that_are_held(f: &Fixture) {
    let flow = plant(f, graph("a>b c>d")).await;
    advance(f, 2 * HOUR_MS).await;
    let policy = CancelFlowPolicy::FlowOnly;
    f.backend.cancel_flow(&flow.id, policy, CancelFlowWait::NoWait).await.unwrap();
    advance(f, HOUR_MS - 1).await;
    assert_eq!(left(f).await, [1, 4, 2, 2], "their age counts from the cancellation");
    assert!(f.try_claim().await.is_none());
    advance(f, 1).await;
    assert_eq!(left(f).await, [0; 4]);
}

/// A member that ran when its flow was cancelled is held when a claim meets it again.
pub async fn with_members_that_come_back(f: &Fixture) {
    let flow = plant(f, graph("a>b")).await;
    take(f, &flow, "a").await;
    let policy = CancelFlowPolicy::FlowOnly;
    f.backend.cancel_flow(&flow.id, policy, CancelFlowWait::NoWait).await.unwrap();
    f.advance(u64::from(LEASE_MS)).await;
    assert!(f.try_claim().await.is_none());
    advance(f, HOUR_MS).await;
    assert_eq!(left(f).await, [0; 4]);
}

pub async fn in_chunks(f: &Fixture) {
    let mut words = String::new();
    for at in 0..1_300 {
        words.push_str(&format!("first>n{at} "));
    }
    let flow = plant(f, graph(&words)).await;
    let policy = CancelFlowPolicy::CancelAll;
    f.backend.cancel_flow(&flow.id, policy, CancelFlowWait::NoWait).await.unwrap();
    settle(f).await;
    advance(f, HOUR_MS).await;
    assert_eq!(left(f).await, [0; 4]);
}
