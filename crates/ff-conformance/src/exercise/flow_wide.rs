//! Graphs that do not fit into one transaction: wide, deep, and cancelled in chunks.

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait};
use ff_core::contracts::{
    CancelFlowArgs, CancelFlowHeader, CancelFlowResult, FailureClass, FlowEdge, FlowNode,
    FlowStatus, ListExecutionsArgs, ParentResultsArgs, SubmitFlowArgs,
};
use ff_core::engine_backend::FlowOperations;
use ff_core::state::PublicState;

use super::flow_graph::{
    claim_all, complete_all, describe, graph, parents_of, plant, settle, take,
};
use super::{Fixture, claim_from, code, failure, item, retries};

/// One node, so many behind it, and one behind all of them.
fn fan(width: usize) -> SubmitFlowArgs {
    let node = |name: String| FlowNode::new(name, item().policy(retries(0, 0)));
    let mut args = graph("");
    args.nodes.push(node("first".into()));
    args.nodes.extend((0..width).map(|at| node(format!("n{at}"))));
    args.nodes.push(node("last".into()));
    for at in 0..width {
        args.edges.push(FlowEdge::new("first", format!("n{at}")));
        args.edges.push(FlowEdge::new(format!("n{at}"), "last"));
    }
    args
}

fn chain(depth: usize) -> SubmitFlowArgs {
    let node = |at| FlowNode::new(format!("n{at}"), item().policy(retries(0, 0)));
    let edge = |at| FlowEdge::new(format!("n{at}"), format!("n{}", at + 1));
    let mut args = graph("");
    args.nodes = (0..depth).map(node).collect();
    args.edges = (0..depth - 1).map(edge).collect();
    args
}

pub async fn fan_out_and_in(f: &Fixture) {
    let flow = plant(f, fan(1_300)).await;
    assert_eq!(complete_all(f).await, 1);
    settle(f).await;
    assert_eq!(complete_with(f, b"done").await, 1_300, "every child was told");
    assert_eq!(complete_all(f).await, 1);
    let ended = describe(f, &flow).await;
    assert_eq!(ended.status, FlowStatus::Completed);
    assert_eq!(ended.counts, [(PublicState::Completed, 1_302)].into());
}

pub async fn wide_failure(f: &Fixture) {
    let flow = plant(f, fan(600)).await;
    let first = take(f, &flow, "first").await;
    f.backend.fail(&first, failure(FailureClass::Fatal)).await.unwrap();
    settle(f).await;
    let ended = describe(f, &flow).await;
    assert_eq!(ended.status, FlowStatus::Failed);
    assert_eq!(ended.counts, [(PublicState::Failed, 1), (PublicState::Skipped, 601)].into());
}

pub async fn deep_skip(f: &Fixture) {
    let flow = plant(f, chain(300)).await;
    let first = take(f, &flow, "n0").await;
    f.backend.fail(&first, failure(FailureClass::Fatal)).await.unwrap();
    settle(f).await;
    let ended = describe(f, &flow).await;
    assert_eq!(ended.counts, [(PublicState::Failed, 1), (PublicState::Skipped, 299)].into());
    assert_eq!(ended.status, FlowStatus::Failed);
}

async fn cancelled(f: &Fixture, policy: CancelFlowPolicy) -> SubmitFlowArgs {
    let args = fan(2_500);
    let flow = plant(f, args.clone()).await;
    let first = take(f, &flow, "first").await;
    let scheduled = f.backend.cancel_flow(&flow.id, policy, CancelFlowWait::NoWait).await.unwrap();
    let CancelFlowResult::CancellationScheduled { member_count, member_execution_ids, .. } =
        scheduled
    else {
        panic!("a large flow is cancelled in chunks");
    };
    assert_eq!((member_count, member_execution_ids.len()), (2_502, 1_000));
    assert!(f.try_claim().await.is_none(), "nothing of a cancelled flow is handed out");
    let other = f.submit(item()).await;
    assert_eq!(f.claim().await.execution_id, other, "other work goes on between the chunks");
    let wait = CancelFlowWait::WaitTimeout(std::time::Duration::from_secs(60));
    settle(f).await;
    if policy != CancelFlowPolicy::CancelAll {
        f.backend.complete(&first, None).await.expect("running members finish");
    }
    let again = f.backend.cancel_flow(&flow.id, policy, wait).await.unwrap();
    assert!(matches!(again, CancelFlowResult::Cancelled { .. }));
    let seen = describe(f, &flow).await;
    assert_eq!(seen.status, FlowStatus::Cancelled);
    use PublicState::{Cancelled, Completed, Waiting};
    let expected = match policy {
        CancelFlowPolicy::CancelAll => [(Cancelled, 2_502)].into(),
        CancelFlowPolicy::CancelPending => [(Completed, 1), (Cancelled, 2_501)].into(),
        CancelFlowPolicy::FlowOnly => [(Completed, 1), (Waiting, 2_501)].into(),
    };
    assert_eq!(seen.counts, expected, "{policy:?}");
    assert!(f.try_claim().await.is_none());
    args
}

pub async fn cancel_in_chunks(f: &Fixture) {
    cancelled(f, CancelFlowPolicy::CancelAll).await;
}

pub async fn cancel_pending_in_chunks(f: &Fixture) {
    cancelled(f, CancelFlowPolicy::CancelPending).await;
}

pub async fn hold_in_chunks(f: &Fixture) {
    cancelled(f, CancelFlowPolicy::FlowOnly).await;
}

pub async fn backlog_is_drained(f: &Fixture) {
    let flow = plant(f, fan(1_200)).await;
    let args = |reason: &str| CancelFlowArgs {
        flow_id: flow.id,
        reason: reason.into(),
        cancellation_policy: "mine".into(),
        now: f.now(),
    };
    let header = f.backend.cancel_flow_header(args("first")).await.unwrap();
    let CancelFlowHeader::Cancelled { member_execution_ids, .. } = header else {
        panic!("the flow lived");
    };
    assert_eq!(member_execution_ids.len(), 1_000, "the first of them at once");
    let left = || async {
        match f.backend.cancel_flow_header(args("again")).await.unwrap() {
            CancelFlowHeader::AlreadyTerminal { member_execution_ids, .. } => member_execution_ids,
            other => panic!("it was cancelled before: {other:?}"),
        }
    };
    settle(f).await;
    assert_eq!(left().await.len(), 1_202, "everybody waits for an acknowledgement");
    assert_eq!(describe(f, &flow).await.counts, [(PublicState::Cancelled, 1_202)].into());
    f.backend.ack_cancel_member(&flow.id, flow.node("first")).await.unwrap();
    f.advance(29_000).await;
    assert_eq!(left().await.len(), 1_201);
    f.advance(1_000).await;
    assert_eq!(left().await.len(), 1_000, "the backlog is empty: the members themselves are named");
}

/// The lanes and the batches do not care how an execution came to be a member.
pub async fn many_flows(f: &Fixture) {
    for _ in 0..50 {
        plant(f, chain(4)).await;
    }
    for _ in 0..4 {
        assert_eq!(complete_all(f).await, 50);
    }
    let states = vec![PublicState::Completed];
    let list = ListExecutionsArgs { states, limit: 1_000, ..ListExecutionsArgs::default() };
    assert_eq!(f.backend.list_executions(list).await.unwrap().executions.len(), 200);
    let mut args = claim_from("lane");
    args.max = 1;
    assert!(f.backend.claim_many(args).await.unwrap().is_empty());
}

/// So many nodes, and one behind all of them that has their results in its input.
fn merging(width: usize) -> SubmitFlowArgs {
    let mut args = fan(width);
    args.nodes.remove(0);
    args.edges.retain(|edge| edge.from != "first");
    args.nodes[width].merge_results = true;
    args
}

async fn complete_with(f: &Fixture, result: &[u8]) -> usize {
    let mut ended = 0;
    loop {
        let claimed = claim_all(f).await;
        for one in &claimed {
            f.backend.complete(&one.handle, Some(result.to_vec())).await.unwrap();
        }
        ended += claimed.len();
        if claimed.len() < 1_000 {
            return ended;
        }
    }
}

pub async fn thousands_of_parents(f: &Fixture) {
    const WIDTH: usize = 2_200;
    let mut args = merging(WIDTH);
    args.nodes[WIDTH].work = item().policy(retries(0, 0)).delay(std::time::Duration::from_secs(60));
    let flow = plant(f, args).await;
    assert_eq!(complete_with(f, b"7").await, WIDTH);
    f.advance(60_000).await;
    let last = f.claim().await;
    let input: serde_json::Value = serde_json::from_slice(&last.payload).unwrap();
    let told = input["parents"].as_object().unwrap();
    assert_eq!(told.len(), WIDTH);
    assert!(told.values().all(|parent| parent["result"] == 7));

    let parents = parents_of(f, flow.node("last")).await;
    let names: std::collections::BTreeSet<_> = parents.iter().map(|one| &one.name).collect();
    assert_eq!((parents.len(), names.len()), (WIDTH, WIDTH), "each of them once");
    let args = ParentResultsArgs { limit: 3, ..ParentResultsArgs::new(last.execution_id.clone()) };
    let first = f.backend.parent_results(args.clone()).await.unwrap();
    assert_eq!(first.parents, parents[..3]);
    let next = ParentResultsArgs { after: first.next_after, ..args };
    assert_eq!(f.backend.parent_results(next.clone()).await.unwrap().parents, parents[3..6]);
    let none = ParentResultsArgs { limit: 1_001, ..next };
    assert_eq!(code(&f.backend.parent_results(none).await), "invalid_input");
}

pub async fn large_results_of_parents(f: &Fixture) {
    const LARGE: usize = 1024 * 1024;
    let flow = plant(f, merging(12)).await;
    assert_eq!(complete_with(f, &vec![b'1'; LARGE]).await, 12);
    assert!(f.try_claim().await.is_none(), "it cannot be given what it asked for");
    let refused = f.snapshot(flow.node("last")).await;
    assert_eq!(refused.public_state, PublicState::Failed);
    assert_eq!(refused.failure_category.as_deref(), Some("parents_too_large"));
    assert!(refused.failure_reason.unwrap().contains("1048576"));

    let args = ParentResultsArgs::new(flow.node("last").clone());
    let first = f.backend.parent_results(args).await.unwrap();
    assert_eq!(first.parents.len(), 8, "no page is much larger than eight of them");
    assert!(first.next_after.is_some());
    assert_eq!(parents_of(f, flow.node("last")).await.len(), 12);
}
