//! Graphs that do not fit into one transaction: wide, deep, and cancelled in chunks.

use std::time::Duration;

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait};
use ff_core::contracts::{
    CancelFlowArgs, CancelFlowHeader, CancelFlowResult, EdgePolicy, FailureClass, FlowEdge,
    FlowNode, FlowStatus, ListExecutionsArgs, OnSatisfied, ParentResultsArgs, SubmitFlowArgs,
};
use ff_core::engine::EngineConfig;
use ff_core::engine_backend::{CounterOperations, FlowOperations};
use ff_core::rows::BacklogMemberRow;
use ff_core::state::PublicState;
use ff_core::store::{Query, Scan};

use super::flow_graph::{
    Planted, claim_all, complete_all, describe, graph, parents_of, plant, settle, states, take,
    with_policy,
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
    let wait = CancelFlowWait::WaitTimeout(Duration::from_secs(60));
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

/// Nothing is swept unless the exercise says so.
pub fn swept_by_hand() -> EngineConfig {
    EngineConfig { manual_sweeps: true, ..EngineConfig::default() }
}

/// The children of a member are still being told of its end when their flow is cancelled.
pub async fn cancelled_amid_a_cascade(f: &Fixture) {
    const WIDTH: usize = 3_000;
    for fails in [false, true] {
        let flow = plant(f, fan(WIDTH)).await;
        let first = take(f, &flow, "first").await;
        match fails {
            false => f.backend.complete(&first, None).await.unwrap(),
            true => drop(f.backend.fail(&first, failure(FailureClass::Fatal)).await.unwrap()),
        }
        let (policy, wait) = (CancelFlowPolicy::CancelAll, CancelFlowWait::NoWait);
        f.backend.cancel_flow(&flow.id, policy, wait).await.unwrap();
        settle(f).await;
        let seen = describe(f, &flow).await;
        assert_eq!(seen.status, FlowStatus::Cancelled);
        assert!(!seen.counts.contains_key(&PublicState::WaitingChildren), "{seen:?}");
        assert_eq!(f.backend.recount_flow(&flow.id, false).await.unwrap(), [], "nothing is left");
    }
}

/// Two things are left to do about one member since two moments, and both are due.
pub async fn told_once(f: &Fixture) {
    let children = (0..1_100).map(|at| format!("x>n{at}")).collect::<Vec<_>>().join(" ");
    let any = EdgePolicy::AnyOf { on_satisfied: OnSatisfied::CancelRemaining };
    let args = graph(&format!("a>x b>x {children} x>child other>child"));
    let flow = plant(f, with_policy(args, "x", any)).await;
    let first = take(f, &flow, "a").await;
    f.backend.complete(&first, None).await.unwrap();
    f.clock.advance(Duration::from_millis(1));
    let x = take(f, &flow, "x").await;
    f.backend.complete(&x, None).await.unwrap();
    settle(f).await;
    use PublicState::{Cancelled, WaitingChildren};
    assert_eq!(states(f, &flow, "b child").await, [Cancelled, WaitingChildren], "one of two");
    assert_eq!(f.backend.recount_flow(&flow.id, false).await.unwrap(), []);
}

async fn cancel_header(f: &Fixture, flow: &Planted) -> CancelFlowHeader {
    let args = CancelFlowArgs {
        flow_id: flow.id,
        reason: "not needed".into(),
        cancellation_policy: "mine".into(),
        now: f.now(),
    };
    f.backend.cancel_flow_header(args).await.unwrap()
}

/// Whom a header that was cancelled before names.
async fn left(f: &Fixture, flow: &Planted) -> Vec<String> {
    match cancel_header(f, flow).await {
        CancelFlowHeader::AlreadyTerminal { member_execution_ids, .. } => member_execution_ids,
        other => panic!("it was cancelled before: {other:?}"),
    }
}

pub async fn backlog_is_drained(f: &Fixture) {
    let flow = plant(f, fan(1_200)).await;
    assert_eq!(complete_all(f).await, 1);
    settle(f).await;
    let CancelFlowHeader::Cancelled { member_execution_ids, .. } = cancel_header(f, &flow).await
    else {
        panic!("the flow lived");
    };
    let mut wire: Vec<_> = flow.ids.iter().map(|id| id.as_str().to_owned()).collect();
    wire.sort_unstable();
    let everybody = wire.clone();
    wire.retain(|id| id != flow.node("first").as_str());
    assert_eq!(member_execution_ids, wire, "whoever has not ended, and nobody else");
    assert_eq!(left(f, &flow).await, wire, "the rest of them is reached later");
    settle(f).await;
    assert_eq!(left(f, &flow).await, wire, "everybody waits for an acknowledgement");
    let counts = [(PublicState::Completed, 1), (PublicState::Cancelled, 1_201)].into();
    assert_eq!(describe(f, &flow).await.counts, counts);
    f.backend.ack_cancel_member(&flow.id, flow.node("last")).await.unwrap();
    f.advance(29_000).await;
    assert_eq!(left(f, &flow).await.len(), 1_200);
    f.advance(1_000).await;
    assert_eq!(left(f, &flow).await, everybody, "the backlog is empty: all members are named");
}

/// The patience with a backlog is over before the last members were reached.
pub async fn late_backlog_is_drained(f: &Fixture) {
    let flow = plant(f, fan(2_500)).await;
    cancel_header(f, &flow).await;
    // Somebody of those who were reached at once is off the backlog.
    let first = flow.ids.iter().min().expect("it has members");
    f.backend.ack_cancel_member(&flow.id, first).await.unwrap();
    f.advance(31_000).await;
    let scans = vec![Scan::of::<BacklogMemberRow>(Vec::new()).limit(10)];
    let query = Query::Records { keys: Vec::new(), scans };
    assert!(f.backend.engine().query(query).await.unwrap().records.is_empty(), "nobody is left");
    assert_eq!(left(f, &flow).await.len(), 2_502);
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
    args.nodes[WIDTH].work = item().policy(retries(0, 0)).delay(Duration::from_secs(60));
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
