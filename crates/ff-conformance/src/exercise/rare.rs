//! Ways between states that no other exercise takes.

use std::time::Duration;

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait};
use ff_core::condition::ResumeCondition;
use ff_core::contracts::{
    EventType, FailureClass, FlowNode, ReplayFlowArgs, Submission, SuspendArgs,
};
use ff_core::engine_backend::{FlowOperations, LimitOperations, SuspensionOperations};
use ff_core::state::PublicState;

use super::flow_graph::{complete_all, graph, plant, states, take};
use super::flow_grow::extend;
use super::quota::rate;
use super::{Fixture, claim_from, failure, item};

const MINUTE: Duration = Duration::from_secs(60);

pub async fn expired_runs_again(f: &Fixture) {
    let id = f.submit(item().deadline(MINUTE)).await;
    f.advance(60_000).await;
    assert_eq!(f.state(&id).await, PublicState::Expired);
    f.replay(&id).await.unwrap();
    assert_eq!(f.claim().await.execution_id, id);
}

/// A deadline ends work whatever it waits for.
pub async fn deadline_of_blocked_work(f: &Fixture) {
    let mut args = graph("first");
    args.nodes.push(FlowNode::new("second", item().deadline(MINUTE)));
    args.edges.extend(graph("first>second").edges);
    let flow = plant(f, args).await;
    f.backend.put_quota(rate(1, 3_600_000)).await.unwrap();
    f.claim().await;
    let limited = f.submit(item().deadline(MINUTE)).await;
    assert!(f.try_claim().await.is_none());
    assert_eq!(f.state(&limited).await, PublicState::RateLimited);
    f.advance(60_000).await;
    assert_eq!(f.state(&limited).await, PublicState::Expired);
    assert_eq!(states(f, &flow, "second").await, [PublicState::Expired]);
}

/// Members are held wherever a cancellation of their flow alone finds them.
pub async fn held_from_every_wait(f: &Fixture) {
    let mut args = graph("one two");
    args.nodes.push(FlowNode::new("late", item().delay(MINUTE)));
    let flow = plant(f, args).await;
    f.backend.put_quota(rate(1, 3_600_000)).await.unwrap();
    let claimed = f.claim().await;
    assert!(f.try_claim().await.is_none());
    let wait = SuspendArgs::new(ResumeCondition::OperatorOnly);
    f.backend.suspend(&claimed.handle, wait).await.unwrap();
    let mut seen = states(f, &flow, "one two late").await;
    seen.sort_unstable();
    use PublicState::{Delayed, RateLimited, Suspended, Waiting};
    assert_eq!(seen, [Delayed, RateLimited, Suspended]);
    let (policy, wait) = (CancelFlowPolicy::FlowOnly, CancelFlowWait::NoWait);
    f.backend.cancel_flow(&flow.id, policy, wait).await.unwrap();
    assert_eq!(states(f, &flow, "one two late").await, [Waiting; 3]);
    for name in ["one", "two", "late"] {
        assert_eq!(f.events(flow.node(name)).await.last(), Some(&EventType::Held), "{name}");
    }
}

/// Whatever became of the nodes behind a replayed one, they wait for it again.
pub async fn replay_behind_every_end(f: &Fixture) {
    let mut args = graph("a>b");
    args.nodes.push(FlowNode::new("c", item().deadline(MINUTE)));
    args.edges.extend(graph("a>c").edges);
    let flow = plant(f, args).await;
    let a = take(f, &flow, "a").await;
    f.backend.complete(&a, None).await.unwrap();
    let b = take(f, &flow, "b").await;
    f.backend.fail(&b, failure(FailureClass::Fatal)).await.unwrap();
    f.advance(60_000).await;
    use PublicState::{Expired, Failed, Waiting, WaitingChildren};
    assert_eq!(states(f, &flow, "b c").await, [Failed, Expired]);
    let args = ReplayFlowArgs { execution_id: flow.node("a").clone() };
    f.backend.replay_flow_from(args).await.unwrap();
    assert_eq!(states(f, &flow, "a b c").await, [Waiting, WaitingChildren, WaitingChildren]);
}

/// A member that waits for a worker or a time is given a parent.
pub async fn blocked_late(f: &Fixture) {
    let mut args = graph("runner");
    args.nodes.push(FlowNode::new("target", item().delay(MINUTE)));
    args.nodes.push(FlowNode::new("ready", Submission::new("other", "kind")));
    let flow = plant(f, args).await;
    let runner = take(f, &flow, "runner").await;
    extend(f, &runner, "extra", "extra>target extra>ready").await;
    let blocked = [PublicState::WaitingChildren; 2];
    assert_eq!(states(f, &flow, "target ready").await, blocked);
    f.backend.complete(&runner, None).await.unwrap();
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(f.backend.claim_many(claim_from("other")).await.unwrap().len(), 1);
}
