//! Flows that change while they run: members add nodes, wait for them, and are run again.

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait, Handle};
use ff_core::contracts::{
    EdgePolicy, EventType, ExtendFlowArgs, FailureClass, FlowEdge, FlowNode, FlowStatus,
    ForkFlowArgs, OnSatisfied, RecordStepOutcome, ReplayFlowArgs, SubmitFlowResult,
    WaitChildrenResult,
};
use ff_core::engine::EngineConfig;
use ff_core::engine_backend::{FlowOperations, StepOperations};
use ff_core::limits::Limits;
use ff_core::state::PublicState;
use ff_core::types::ExecutionId;

use super::flow_graph::{
    Planted, claim_all, complete_all, describe, graph, parents_of, plant, settle, states, take,
    with_policy,
};
use super::{Fixture, code, failure, item, retries};

/// Nodes and edges by names, as for a whole graph. Only these names are nodes of the call.
fn addition(nodes: &str, edges: &str) -> ExtendFlowArgs {
    let node = |name| FlowNode::new(name, item().policy(retries(0, 0)));
    let edge = |word: &str| {
        let (from, to) = word.split_once('>').expect("an edge");
        FlowEdge::new(from, to)
    };
    ExtendFlowArgs {
        nodes: nodes.split_whitespace().map(node).collect(),
        edges: edges.split_whitespace().map(edge).collect(),
    }
}

pub(super) async fn extend(
    f: &Fixture,
    handle: &Handle,
    nodes: &str,
    edges: &str,
) -> Vec<ExecutionId> {
    match f.backend.extend_flow(handle, addition(nodes, edges)).await.unwrap() {
        SubmitFlowResult::Created { execution_ids, .. } => execution_ids,
        other => panic!("expected new nodes, got {other:?}"),
    }
}

/// The flow with the nodes that were added to it.
pub(super) fn grown(flow: Planted, names: &str, ids: Vec<ExecutionId>) -> Planted {
    let mut flow = flow;
    flow.names.extend(names.split_whitespace().map(str::to_owned));
    flow.ids.extend(ids);
    flow
}

pub async fn extend_with_nodes(f: &Fixture) {
    let flow = plant(f, graph("a>b")).await;
    let handle = take(f, &flow, "a").await;
    let ids = extend(f, &handle, "x y", "x>y a>x y>b").await;
    let flow = grown(flow, "x y", ids.clone());
    use PublicState::{Waiting, WaitingChildren};
    assert_eq!(states(f, &flow, "x y b").await, [WaitingChildren; 3]);
    let again = f.backend.extend_flow(&handle, addition("x y", "x>y a>x y>b")).await.unwrap();
    let repeated = SubmitFlowResult::Duplicate { flow_id: flow.id, execution_ids: ids };
    assert_eq!(again, repeated, "a repeated call changes nothing");
    let other = f.backend.extend_flow(&handle, addition("x z", "")).await;
    assert_eq!(code(&other), "execution_id_reused", "a name is used once in a flow");
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(states(f, &flow, "x b").await, [Waiting, WaitingChildren]);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(states(f, &flow, "b").await, [Waiting]);
    assert_eq!(complete_all(f).await, 1);
    let ended = describe(f, &flow).await;
    assert_eq!((ended.status, ended.node_count, ended.edge_count), (FlowStatus::Completed, 4, 4));
    assert_eq!(ended.graph_revision, 2);
}

pub async fn late_edges(f: &Fixture) {
    let flow = plant(f, graph("done failed runner target")).await;
    let claimed = claim_all(f).await;
    let handle = |name: &str| {
        let found = claimed.iter().find(|one| one.execution_id == *flow.node(name));
        found.expect("it was handed out").handle.clone()
    };
    f.backend.complete(&handle("done"), None).await.unwrap();
    f.backend.fail(&handle("failed"), failure(FailureClass::Fatal)).await.unwrap();
    let (runner, target) = (handle("runner"), handle("target"));
    let ids =
        extend(f, &runner, "now never later", "done>now failed>never done>later runner>later")
            .await;
    let flow = grown(flow, "now never later", ids);
    use PublicState::{Skipped, Waiting, WaitingChildren};
    let seen = states(f, &flow, "now never later").await;
    assert_eq!(seen, [Waiting, Skipped, WaitingChildren], "ended parents are counted at once");
    f.backend.complete(&runner, None).await.unwrap();
    assert_eq!(states(f, &flow, "later").await, [Waiting]);
    f.backend.complete(&target, None).await.unwrap();
    assert_eq!(complete_all(f).await, 2);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Failed);
}

pub async fn extend_with_what_is_skipped_at_once(f: &Fixture) {
    let flow = plant(f, graph("failed runner")).await;
    let claimed = claim_all(f).await;
    let handle = |name: &str| {
        let found = claimed.iter().find(|one| one.execution_id == *flow.node(name));
        found.expect("it was handed out").handle.clone()
    };
    f.backend.fail(&handle("failed"), failure(FailureClass::Fatal)).await.unwrap();
    let runner = handle("runner");
    let ids = extend(f, &runner, "never kept", "failed>never").await;
    let flow = grown(flow, "never kept", ids);
    use PublicState::{Skipped, Waiting};
    assert_eq!(states(f, &flow, "never kept").await, [Skipped, Waiting]);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Running, "others have not ended");
    assert_eq!(complete_all(f).await, 1, "what was added is handed out");
    f.backend.complete(&runner, None).await.unwrap();
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Failed);
}

pub async fn nobody_waits_for_itself(f: &Fixture) {
    let flow = plant(f, graph("a")).await;
    let a = take(f, &flow, "a").await;
    let ids = extend(f, &a, "x", "").await;
    let flow = grown(flow, "x", ids);
    let waits = f.backend.wait_children(&a).await.unwrap();
    assert_eq!(waits, WaitChildrenResult::Waiting { open: 1 });
    let x = take(f, &flow, "x").await;
    let ids = extend(f, &x, "y", "a>y").await;
    let flow = grown(flow, "y", ids);
    let waits = f.backend.wait_children(&x).await.unwrap();
    assert_eq!(waits, WaitChildrenResult::Ended, "y waits for a, which waits for x");
    f.backend.complete(&x, None).await.unwrap();
    assert_eq!(complete_all(f).await, 1, "a goes on");
    assert_eq!(complete_all(f).await, 1, "and then y");
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
}

pub async fn extend_refusals(f: &Fixture) {
    let flow = plant(f, graph("a b>c>d started lone")).await;
    let other = plant(f, graph("foreign")).await;
    let claimed = claim_all(f).await;
    let handle = |name: &str| {
        let found = claimed.iter().find(|one| one.execution_id == *flow.node(name));
        found.expect("it was handed out").handle.clone()
    };
    let a = handle("a");
    for (nodes, edges, part) in [
        ("", "d>c", "a cycle"),
        ("n", "d>n n>c", "a cycle"),
        ("n", "n>n", "depends on itself"),
        ("n", "n>started", "has started"),
        ("n", "nobody>n", "which is no node"),
        ("n", "b>c b>n", "is there twice"),
        ("", "b>c b>c", "is there twice"),
        ("", "", "no nodes"),
    ] {
        let refused = f.backend.extend_flow(&a, addition(nodes, edges)).await;
        assert_eq!(code(&refused), "invalid_graph", "{nodes:?} {edges:?}");
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(part), "{part:?} is not among: {text}");
    }
    let mut args = addition("n", "");
    args.edges.push(FlowEdge::new(other.node("foreign").as_str(), "n"));
    assert_eq!(code(&f.backend.extend_flow(&a, args).await), "invalid_graph");
    assert_eq!(describe(f, &flow).await.node_count, 6, "nothing was added");
    f.backend.complete(&a, None).await.unwrap();
    let late = f.backend.extend_flow(&a, addition("n", "")).await;
    assert_eq!(code(&late), "execution_not_active", "only the holder may");
    let (_, solo) = f.start(item().priority(9)).await;
    assert_eq!(code(&f.backend.extend_flow(&solo, addition("n", "")).await), "not_in_flow");
}

/// The answer to edges alone may be lost, too.
pub async fn edges_once(f: &Fixture) {
    let flow = plant(f, graph("runner b c>d")).await;
    let claimed = claim_all(f).await;
    let found = |name: &str| claimed.iter().find(|one| one.execution_id == *flow.node(name));
    let handle = |name: &str| found(name).expect("it was handed out").handle.clone();
    let runner = handle("runner");
    let edges = || addition("", "runner>d b>d");
    let created = f.backend.extend_flow(&runner, edges()).await.unwrap();
    assert!(matches!(created, SubmitFlowResult::Created { .. }), "{created:?}");
    let duplicate = SubmitFlowResult::Duplicate { flow_id: flow.id, execution_ids: Vec::new() };
    assert_eq!(f.backend.extend_flow(&runner, edges()).await.unwrap(), duplicate);
    let some = f.backend.extend_flow(&runner, addition("", "b>d b>c")).await;
    assert_eq!(code(&some), "invalid_graph", "some of them are new");
    f.backend.complete(&handle("b"), None).await.unwrap();
    f.backend.complete(&handle("c"), None).await.unwrap();
    assert_eq!(f.backend.extend_flow(&runner, edges()).await.unwrap(), duplicate);
    assert_eq!(describe(f, &flow).await.edge_count, 3);
    f.backend.complete(&runner, None).await.unwrap();
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
}

pub fn small_flows() -> EngineConfig {
    let limits = Limits { flow_nodes: 4, flow_edges: 3, ..Limits::default() };
    EngineConfig { limits, ..EngineConfig::default() }
}

/// However many calls bring them, a flow has no more nodes and edges than one call may.
pub async fn grows_to_the_limits(f: &Fixture) {
    let flow = plant(f, graph("a>b")).await;
    let a = take(f, &flow, "a").await;
    let refused = f.backend.extend_flow(&a, addition("x y z", "")).await.unwrap_err();
    assert!(refused.to_string().contains("5 nodes, the limit is 4"), "{refused}");
    let refused = f.backend.extend_flow(&a, addition("x", "a>x b>x x>b")).await.unwrap_err();
    assert!(refused.to_string().contains("4 edges, the limit is 3"), "{refused}");
    extend(f, &a, "x y", "a>x x>y").await;
    let refused = f.backend.extend_flow(&a, addition("z", "")).await;
    assert_eq!(code(&refused), "invalid_graph");
    assert_eq!(code(&f.backend.extend_flow(&a, addition("", "a>y")).await), "invalid_graph");
    let seen = describe(f, &flow).await;
    assert_eq!((seen.node_count, seen.edge_count), (4, 3));
    f.backend.complete(&a, None).await.unwrap();
    assert_eq!(complete_all(f).await, 2);
    assert_eq!(complete_all(f).await, 1);
}

/// Nobody is told of anything in a cancelled flow, so nobody waits there.
pub async fn waits_in_a_cancelled_flow(f: &Fixture) {
    use CancelFlowPolicy::{CancelPending, FlowOnly};
    for (policy, ends) in
        [(CancelPending, PublicState::Cancelled), (FlowOnly, PublicState::Waiting)]
    {
        let flow = plant(f, graph("parent")).await;
        let handle = take(f, &flow, "parent").await;
        let ids = extend(f, &handle, "x", "").await;
        let flow = grown(flow, "x", ids);
        f.backend.cancel_flow(&flow.id, policy, CancelFlowWait::NoWait).await.unwrap();
        assert_eq!(states(f, &flow, "parent x").await, [PublicState::Active, ends]);
        let waits = f.backend.wait_children(&handle).await.unwrap();
        assert_eq!(waits, WaitChildrenResult::Waiting { open: 1 });
        // A repeat, unless a sweeper was quicker and nobody waits any more.
        match f.backend.wait_children(&handle).await {
            Ok(repeated) => assert_eq!(repeated, waits),
            gone => assert_eq!(code(&gone), "execution_not_active"),
        }
        assert_eq!(code(&f.backend.complete(&handle, None).await), "execution_not_active");
        settle(f).await;
        assert_eq!(states(f, &flow, "parent x").await, [ends; 2], "{policy:?}");
        if policy == FlowOnly {
            let why = f.backend.explain(flow.node("parent")).await.unwrap();
            assert_eq!(why.rule, "flow_ended");
        }
        assert!(f.try_claim().await.is_none());
        // Whoever waits for the cancellation has nobody left to wait for.
        let wait = CancelFlowWait::WaitTimeout(std::time::Duration::from_secs(60));
        f.backend.cancel_flow(&flow.id, policy, wait).await.unwrap();
    }
}

pub async fn waits_for_children(f: &Fixture) {
    let flow = plant(f, graph("parent>after")).await;
    let handle = take(f, &flow, "parent").await;
    let nothing = f.backend.wait_children(&handle).await.unwrap();
    assert_eq!(nothing, WaitChildrenResult::Ended, "there is nothing to wait for");
    let ids = extend(f, &handle, "x y behind", "parent>behind").await;
    let flow = grown(flow, "x y behind", ids);
    let waiting = WaitChildrenResult::Waiting { open: 2 };
    assert_eq!(f.backend.wait_children(&handle).await.unwrap(), waiting);
    assert_eq!(f.backend.wait_children(&handle).await.unwrap(), waiting, "a repeat tells the same");
    assert_eq!(states(f, &flow, "parent").await, [PublicState::WaitingChildren]);
    assert_eq!(code(&f.backend.complete(&handle, None).await), "execution_not_active");
    let children = claim_all(f).await;
    assert_eq!(children.len(), 2, "the parent is put down, and what waits for it is not ready");
    f.backend.fail(&children[0].handle, failure(FailureClass::Fatal)).await.unwrap();
    assert_eq!(states(f, &flow, "parent").await, [PublicState::WaitingChildren]);
    f.backend.complete(&children[1].handle, None).await.unwrap();
    let again = f.claim().await;
    assert_eq!(again.execution_id, *flow.node("parent"), "it comes back when they have ended");
    assert_eq!(again.attempt_index, 0, "the same attempt goes on");
    assert_eq!(f.backend.wait_children(&again.handle).await.unwrap(), WaitChildrenResult::Ended);
    f.backend.complete(&again.handle, None).await.unwrap();
    use EventType::{Claimed, Completed, Submitted, Unblocked, WaitingChildren};
    let events = f.events(flow.node("parent")).await;
    assert_eq!(events, [Submitted, Claimed, WaitingChildren, Unblocked, Claimed, Completed]);
    assert_eq!(complete_all(f).await, 2);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Failed);
}

pub async fn replay_one(f: &Fixture) {
    let any = EdgePolicy::AnyOf { on_satisfied: OnSatisfied::LetRun };
    let flow = plant(f, with_policy(graph("a>c b>c c>d"), "c", any)).await;
    let a = take(f, &flow, "a").await;
    f.backend.complete(&a, None).await.unwrap();
    f.replay(flow.node("a")).await.unwrap();
    // What the first run has decided stays, and the second one is counted once.
    let seen = states(f, &flow, "a c").await;
    assert_eq!(seen, [PublicState::Waiting, PublicState::Waiting]);
    f.advance(60_000).await;
    while complete_all(f).await > 0 {}
    let ended = describe(f, &flow).await;
    assert_eq!((ended.status, ended.counts.len()), (FlowStatus::Completed, 1));
    // A member of an ended flow that runs again opens it again.
    f.replay(flow.node("d")).await.unwrap();
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Open);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
}

pub async fn replay_skipped(f: &Fixture) {
    let flow = plant(f, graph("a>c b>c")).await;
    let claimed = claim_all(f).await;
    for one in &claimed {
        if one.execution_id == *flow.node("a") {
            f.backend.complete(&one.handle, None).await.unwrap();
        } else {
            f.backend.fail(&one.handle, failure(FailureClass::Fatal)).await.unwrap();
        }
    }
    use PublicState::{Skipped, Waiting, WaitingChildren};
    assert_eq!(states(f, &flow, "c").await, [Skipped]);
    settle(f).await;
    f.replay(flow.node("c")).await.unwrap();
    assert_eq!(states(f, &flow, "c").await, [WaitingChildren], "it waits for its parents again");
    assert!(f.try_claim().await.is_none());
    f.replay(flow.node("b")).await.unwrap();
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(states(f, &flow, "c").await, [Waiting]);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
}

pub async fn replay_from(f: &Fixture) {
    let flow = plant(f, graph("a>b>c>d x>d")).await;
    assert_eq!(complete_all(f).await, 2);
    let b = take(f, &flow, "b").await;
    f.backend.fail(&b, failure(FailureClass::Fatal)).await.unwrap();
    settle(f).await;
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Failed);
    let args = |name: &str| ReplayFlowArgs { execution_id: flow.node(name).clone() };
    let replayed = f.backend.replay_flow_from(args("b")).await.unwrap();
    let expected: Vec<_> = ["b", "c", "d"].map(|name| flow.node(name).clone()).into();
    assert_eq!(replayed.replayed, expected);
    use PublicState::{Completed, Waiting, WaitingChildren};
    let seen = states(f, &flow, "a x b c d").await;
    assert_eq!(seen, [Completed, Completed, Waiting, WaitingChildren, WaitingChildren]);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Open);
    assert_eq!(code(&f.backend.replay_flow_from(args("b")).await), "execution_not_terminal");
    for _ in 0..3 {
        assert_eq!(complete_all(f).await, 1);
    }
    let ended = describe(f, &flow).await;
    assert_eq!((ended.status, ended.counts), (FlowStatus::Completed, [(Completed, 5)].into()));
    let solo = f.submit(item()).await;
    let args = ReplayFlowArgs { execution_id: solo };
    assert_eq!(code(&f.backend.replay_flow_from(args).await), "not_in_flow");
}

pub async fn fork(f: &Fixture) {
    let flow = plant(f, graph("a>b>d c>d")).await;
    assert_eq!(complete_all(f).await, 2);
    let b = take(f, &flow, "b").await;
    f.backend.fail(&b, failure(FailureClass::Fatal)).await.unwrap();
    settle(f).await;
    let before = f.picture(flow.node("b")).await;
    let args = ForkFlowArgs {
        execution_id: flow.node("b").clone(),
        flow_id: None,
        input_payload: Some(b"better".to_vec()),
        steps_up_to: None,
        creator_identity: "me".into(),
    };
    let forked = f.backend.fork_flow(args.clone()).await.unwrap();
    let taken = ForkFlowArgs { flow_id: Some(forked.flow_id()), ..args };
    assert_eq!(code(&f.backend.fork_flow(taken).await), "flow_id_reused", "one fork, not two");
    assert_eq!(f.picture(flow.node("b")).await, before, "the old flow is untouched");
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Failed);
    let new = f.backend.describe_flow(&forked.flow_id()).await.unwrap().unwrap();
    assert_eq!((new.node_count, new.edge_count), (2, 2));
    assert_eq!(new.forked_from, Some(flow.id));
    assert_eq!(new.forked_from_execution.as_ref(), Some(flow.node("b")));
    let claimed = f.claim().await;
    assert_eq!(&*claimed.payload, b"better");
    assert_eq!(claimed.execution_id, forked.execution_ids()[0]);
    f.backend.complete(&claimed.handle, None).await.unwrap();
    let last = f.claim().await;
    let parents = parents_of(f, &last.execution_id).await;
    let mut names: Vec<_> = parents.iter().map(|parent| parent.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["b", "c"], "parents that stayed in the old flow are known");
    f.backend.complete(&last.handle, None).await.unwrap();
    let ended = f.backend.describe_flow(&forked.flow_id()).await.unwrap().unwrap();
    assert_eq!(ended.status, FlowStatus::Completed);
}

pub async fn fork_with_steps(f: &Fixture) {
    let flow = plant(f, graph("a>b")).await;
    let a = take(f, &flow, "a").await;
    for (name, result) in [("draw", 1), ("cut", 2), ("glue", 3)] {
        f.backend.record_step(&a, name, vec![result]).await.unwrap();
    }
    f.backend.complete(&a, None).await.unwrap();
    let args = |name: &str| ForkFlowArgs {
        execution_id: flow.node("a").clone(),
        flow_id: None,
        input_payload: None,
        steps_up_to: Some(name.to_owned()),
        creator_identity: String::new(),
    };
    assert_eq!(code(&f.backend.fork_flow(args("paint")).await), "invalid_input");
    complete_all(f).await;
    let forked = f.backend.fork_flow(args("cut")).await.unwrap();
    let again = f.claim().await;
    assert_eq!(again.execution_id, forked.execution_ids()[0]);
    let steps = again.steps.iter().map(|step| (&*step.name, &step.result[..], step.sequence));
    assert_eq!(steps.collect::<Vec<_>>(), [("draw", &[1][..], 1), ("cut", &[2], 2)]);
    let known = f.backend.record_step(&again.handle, "cut", vec![9]).await.unwrap();
    assert!(matches!(known, RecordStepOutcome::Kept { sequence: 2, .. }), "{known:?}");
    let next = f.backend.record_step(&again.handle, "glue", vec![9]).await.unwrap();
    assert!(matches!(next, RecordStepOutcome::Recorded { sequence: 3, .. }), "{next:?}");
    let old = f.backend.list_steps(flow.node("a"), 0, 10).await.unwrap();
    assert_eq!(old.last().map(|step| step.result.to_vec()), Some(vec![3]), "it keeps its own");
    f.backend.complete(&again.handle, None).await.unwrap();
    assert_eq!(complete_all(f).await, 1);
}
