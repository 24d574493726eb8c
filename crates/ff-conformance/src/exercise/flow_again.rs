//! Parts of flows that are run again, and again: what parents have said counts as often as it
//! should.

use ff_core::contracts::{
    EdgePolicy, FailureClass, FlowStatus, ForkFlowArgs, OnSatisfied, ReplayFlowArgs,
    SubmitFlowResult,
};
use ff_core::engine_backend::{CounterOperations, FlowOperations};
use ff_core::state::PublicState;

use super::flow_graph::{
    Planted, claim_all, complete_all, describe, graph, plant, settle, states, with_policy,
};
use super::flow_grow::{extend, grown};
use super::retention::HOUR_MS;
use super::{Fixture, code, failure, retries};

/// Whoever of these can be claimed fails, the others complete.
async fn end_all(f: &Fixture, flow: &Planted, failing: &str) {
    let claimed = claim_all(f).await;
    assert!(!claimed.is_empty(), "there is something to claim");
    for one in claimed {
        if failing.split_whitespace().any(|name| *flow.node(name) == one.execution_id) {
            f.backend.fail(&one.handle, failure(FailureClass::Fatal)).await.unwrap();
        } else {
            f.backend.complete(&one.handle, None).await.unwrap();
        }
    }
    settle(f).await;
}

fn fork_args(flow: &Planted, name: &str) -> ForkFlowArgs {
    ForkFlowArgs {
        execution_id: flow.node(name).clone(),
        flow_id: None,
        input_payload: None,
        steps_up_to: None,
        creator_identity: String::new(),
    }
}

/// A node with all behind it as a flow of its own; its nodes have the names that they had.
async fn fork(f: &Fixture, flow: &Planted, name: &str, names: &str) -> Planted {
    let forked = match f.backend.fork_flow(fork_args(flow, name)).await.unwrap() {
        SubmitFlowResult::Created { flow_id, execution_ids } => {
            let names = names.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(names.len(), execution_ids.len());
            Planted { id: flow_id, names, ids: execution_ids }
        }
        other => panic!("expected a new flow, got {other:?}"),
    };
    assert_eq!(describe(f, &forked).await.forked_from, Some(flow.id));
    forked
}

async fn replay_from(f: &Fixture, flow: &Planted, name: &str) -> Vec<String> {
    let args = ReplayFlowArgs { execution_id: flow.node(name).clone() };
    let replayed = f.backend.replay_flow_from(args).await.unwrap().replayed;
    let name = |id| flow.names[flow.ids.iter().position(|known| known == id).unwrap()].clone();
    replayed.iter().map(name).collect()
}

fn quorum(k: u32) -> EdgePolicy {
    EdgePolicy::Quorum { k, on_satisfied: OnSatisfied::LetRun }
}

pub async fn fork_of_a_fork(f: &Fixture) {
    let flow = plant(f, graph("a>b>d c>d")).await;
    assert_eq!(complete_all(f).await, 2);
    end_all(f, &flow, "b").await;
    let first = fork(f, &flow, "b", "b d").await;
    end_all(f, &first, "b").await;
    assert_eq!(describe(f, &first).await.status, FlowStatus::Failed);
    let second = fork(f, &first, "b", "b d").await;
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(complete_all(f).await, 1, "its other parent has completed two flows ago");
    assert_eq!(describe(f, &second).await.status, FlowStatus::Completed);
    // A parent that is run again meanwhile has not ended.
    f.replay(flow.node("c")).await.unwrap();
    let text = f.backend.fork_flow(fork_args(&second, "b")).await.unwrap_err().to_string();
    assert!(text.contains("has not ended"), "{text}");
}

pub async fn replay_in_a_fork(f: &Fixture) {
    let flow = plant(f, with_policy(graph("a>c b>c"), "c", quorum(2))).await;
    end_all(f, &flow, "b").await;
    let forked = fork(f, &flow, "b", "b c").await;
    end_all(f, &forked, "b").await;
    assert_eq!(states(f, &forked, "c").await, [PublicState::Skipped]);
    assert_eq!(replay_from(f, &forked, "b").await, ["b", "c"]);
    assert_eq!(f.backend.recount_flow(&forked.id, false).await.unwrap(), []);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(complete_all(f).await, 1, "the parent that stayed outside has completed");
    assert_eq!(describe(f, &forked).await.status, FlowStatus::Completed);
}

/// The parent that stayed outside was forgotten with its flow, and counts as it did.
pub async fn replay_behind_a_forgotten_flow(f: &Fixture) {
    let flow = plant(f, with_policy(graph("a>c b>c"), "c", quorum(2))).await;
    end_all(f, &flow, "b").await;
    f.advance(HOUR_MS / 2).await;
    let forked = fork(f, &flow, "b", "b c").await;
    end_all(f, &forked, "b").await;
    f.advance(HOUR_MS / 2).await;
    settle(f).await;
    assert!(f.backend.describe_flow(&flow.id).await.unwrap().is_none());
    let refused = f.backend.fork_flow(fork_args(&forked, "b")).await.unwrap_err().to_string();
    assert!(refused.contains("was forgotten"), "{refused}");
    assert_eq!(replay_from(f, &forked, "b").await, ["b", "c"]);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(describe(f, &forked).await.status, FlowStatus::Completed);
}

/// The parent that stayed outside runs again in its own flow, which is nobody's business here.
pub async fn replay_beside_an_open_parent(f: &Fixture) {
    let flow = plant(f, graph("a>c b>c")).await;
    assert_eq!(complete_all(f).await, 2);
    assert_eq!(complete_all(f).await, 1);
    let forked = fork(f, &flow, "a", "a c").await;
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(complete_all(f).await, 1);
    f.replay(flow.node("b")).await.unwrap();
    assert_eq!(replay_from(f, &forked, "a").await, ["a", "c"]);
    assert_eq!(f.backend.recount_flow(&forked.id, false).await.unwrap(), []);
    assert_eq!(complete_all(f).await, 2);
    assert_eq!(complete_all(f).await, 1, "the last node of the fork");
    assert_eq!(describe(f, &forked).await.status, FlowStatus::Completed);
}

/// A child was replayed, so that what its parents had said before is forgotten; then one of them is
/// replayed with all behind it.
pub async fn replay_after_a_replay(f: &Fixture) {
    let flow = plant(f, graph("a>c b>c c>d")).await;
    end_all(f, &flow, "a b").await;
    f.advance(1).await;
    f.replay(flow.node("c")).await.unwrap();
    assert_eq!(states(f, &flow, "c").await, [PublicState::WaitingChildren]);
    assert_eq!(replay_from(f, &flow, "a").await, ["a", "d"]);
    assert_eq!(f.backend.recount_flow(&flow.id, false).await.unwrap(), []);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(states(f, &flow, "c").await, [PublicState::WaitingChildren], "it waits for b");
    f.replay(flow.node("b")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(complete_all(f).await, 1);
    }
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
}

/// A parent fails with so many children that some are told later. One of them has been skipped by
/// another parent and replayed before it hears of it.
pub async fn late_failures_stay_forgotten(f: &Fixture) {
    let children = (0..300).map(|at| format!("wide>n{at}")).collect::<Vec<_>>().join(" ");
    let flow = plant(f, graph(&format!("{children} wide>child other>child"))).await;
    let claimed = claim_all(f).await;
    let other = claimed.iter().find(|one| one.execution_id == *flow.node("other")).unwrap();
    let wide = claimed.iter().find(|one| one.execution_id == *flow.node("wide")).unwrap();
    f.backend.fail(&other.handle, failure(FailureClass::Fatal)).await.unwrap();
    assert_eq!(states(f, &flow, "child").await, [PublicState::Skipped]);
    settle(f).await;
    f.backend.fail(&wide.handle, failure(FailureClass::Fatal)).await.unwrap();
    assert_eq!(states(f, &flow, "n299").await, [PublicState::WaitingChildren], "it is told later");
    f.clock.advance(std::time::Duration::from_millis(1));
    f.replay(flow.node("child")).await.unwrap();
    settle(f).await;
    let seen = states(f, &flow, "n299 child").await;
    assert_eq!(seen, [PublicState::Skipped, PublicState::WaitingChildren]);
    f.replay(flow.node("wide")).await.unwrap();
    f.replay(flow.node("other")).await.unwrap();
    assert_eq!(complete_all(f).await, 2);
    settle(f).await;
    assert_eq!(complete_all(f).await, 1, "the child runs");
}

/// A late edge from a parent that is run again: what the parent had said before was never counted
/// for it, so it is not taken back.
pub async fn late_edge_to_a_reopened_parent(f: &Fixture) {
    let children = (0..1_100).map(|at| format!("wide>n{at}")).collect::<Vec<_>>().join(" ");
    let flow = plant(f, graph(&format!("{children} done runner"))).await;
    let claimed = claim_all(f).await;
    let handle = |name: &str| {
        let found = claimed.iter().find(|one| one.execution_id == *flow.node(name));
        found.expect("it was handed out").handle.clone()
    };
    f.backend.complete(&handle("wide"), None).await.unwrap();
    f.backend.complete(&handle("done"), None).await.unwrap();
    settle(f).await;
    f.replay(flow.node("wide")).await.unwrap();
    let runner = handle("runner");
    let ids = extend(f, &runner, "late", "wide>late done>late").await;
    let flow = grown(flow, "late", ids);
    settle(f).await;
    f.backend.complete(&runner, None).await.unwrap();
    while complete_all(f).await > 0 {
        settle(f).await;
    }
    assert_eq!(states(f, &flow, "late").await, [PublicState::Completed]);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
}

pub async fn replays_of_flows_are_capped(f: &Fixture) {
    let mut args = graph("a>b>c");
    args.nodes[1].work.policy =
        Some(ff_core::policy::ExecutionPolicy { max_replay_count: Some(1), ..retries(0, 0) });
    let flow = plant(f, args).await;
    for _ in 0..3 {
        assert_eq!(complete_all(f).await, 1);
    }
    assert_eq!(replay_from(f, &flow, "b").await, ["b", "c"]);
    for _ in 0..2 {
        assert_eq!(complete_all(f).await, 1);
    }
    for name in ["a", "b"] {
        let args = ReplayFlowArgs { execution_id: flow.node(name).clone() };
        let refused = f.backend.replay_flow_from(args).await;
        assert_eq!(code(&refused), "max_replays_exhausted", "from {name}");
    }
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed, "nothing was changed");
    assert_eq!(replay_from(f, &flow, "c").await, ["c"]);
}
