//! Graphs: accepted as a whole, advanced by every end, and ended by themselves.

use std::collections::BTreeSet;
use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::contracts::{
    ClaimedExecution, EdgeGroupSnapshot, EdgeGroupState, EdgePolicy, EventType, FailureClass,
    FlowEdge, FlowGraph, FlowGraphArgs, FlowNode, FlowSnapshot, FlowStatus, ListFlowsArgs,
    OnSatisfied, ParentResult, ParentResultsArgs, SubmitFlowArgs, SubmitFlowResult,
};
use ff_core::engine_backend::FlowOperations;
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, FlowId, Namespace};

use super::{Fixture, LANE, claim_from, code, failure, item, retries};

/// A graph by names: "a>b" is an edge, a name alone is a node.
pub fn graph(words: &str) -> SubmitFlowArgs {
    let mut args = SubmitFlowArgs {
        namespace: Namespace::new("default"),
        flow_kind: "kind".into(),
        ..SubmitFlowArgs::default()
    };
    for word in words.split_whitespace() {
        let names: Vec<&str> = word.split('>').collect();
        for name in &names {
            if !args.nodes.iter().any(|node| node.name == *name) {
                args.nodes.push(FlowNode::new(*name, item().policy(retries(0, 0))));
            }
        }
        for ends in names.windows(2) {
            args.edges.push(FlowEdge::new(ends[0], ends[1]));
        }
    }
    args
}

/// The same with a policy for one of the nodes.
pub fn with_policy(mut args: SubmitFlowArgs, name: &str, policy: EdgePolicy) -> SubmitFlowArgs {
    let node = args.nodes.iter_mut().find(|node| node.name == name).expect("a node of the graph");
    node.policy = policy;
    args
}

/// A flow that was accepted, and its nodes by their names.
pub struct Planted {
    pub id: FlowId,
    pub names: Vec<String>,
    pub ids: Vec<ExecutionId>,
}

impl Planted {
    pub fn node(&self, name: &str) -> &ExecutionId {
        let at = self.names.iter().position(|known| known == name).expect("a node of the graph");
        &self.ids[at]
    }
}

pub async fn plant(f: &Fixture, args: SubmitFlowArgs) -> Planted {
    let names = args.nodes.iter().map(|node| node.name.clone()).collect();
    match f.backend.submit_flow(args).await.unwrap() {
        SubmitFlowResult::Created { flow_id, execution_ids } => {
            Planted { id: flow_id, names, ids: execution_ids }
        }
        other => panic!("expected a new flow, got {other:?}"),
    }
}

/// The states of nodes, in the order of these names.
pub async fn states(f: &Fixture, flow: &Planted, names: &str) -> Vec<PublicState> {
    let mut states = Vec::new();
    for name in names.split_whitespace() {
        states.push(f.state(flow.node(name)).await);
    }
    states
}

pub async fn describe(f: &Fixture, flow: &Planted) -> FlowSnapshot {
    f.backend.describe_flow(&flow.id).await.unwrap().expect("the flow exists")
}

pub async fn read_graph(f: &Fixture, flow: &Planted) -> FlowGraph {
    let args = FlowGraphArgs { flow_id: flow.id, cursor: None, limit: 0 };
    f.backend.flow_graph(args).await.unwrap()
}

/// What a node with parents waits for.
async fn group(f: &Fixture, flow: &Planted, name: &str) -> EdgeGroupSnapshot {
    let nodes = read_graph(f, flow).await.nodes;
    let node = nodes.into_iter().find(|node| node.name == name).expect("a node of the graph");
    node.group.expect("it has parents")
}

/// Claims until this node is handed out; the others that are met on the way are given back as
/// they came, for they are claimed by the caller later.
pub async fn take(f: &Fixture, flow: &Planted, name: &str) -> Handle {
    let wanted = flow.node(name);
    for claimed in claim_all(f).await {
        if claimed.execution_id == *wanted {
            return claimed.handle;
        }
    }
    panic!("{name} was not handed out");
}

pub async fn claim_all(f: &Fixture) -> Vec<ClaimedExecution> {
    let mut args = claim_from(LANE);
    args.max = 1_000;
    f.backend.claim_many(args).await.unwrap()
}

/// Everything that can be claimed, completed; how many there were.
pub async fn complete_all(f: &Fixture) -> usize {
    let claimed = claim_all(f).await;
    for one in &claimed {
        f.backend.complete(&one.handle, Some(one.execution_id.as_str().into())).await.unwrap();
    }
    claimed.len()
}

async fn fail(f: &Fixture, handle: &Handle) {
    f.backend.fail(handle, failure(FailureClass::Fatal)).await.unwrap();
}

/// Lets the sweeper go on with whatever cascades have left.
pub async fn settle(f: &Fixture) {
    f.backend.engine().sweep().await.unwrap();
}

const LET_RUN: OnSatisfied = OnSatisfied::LetRun;

pub async fn chain(f: &Fixture) {
    let flow = plant(f, graph("a>b>c")).await;
    let states_of = |names| states(f, &flow, names);
    use PublicState::{Completed, Waiting, WaitingChildren};
    assert_eq!(states_of("a b c").await, [Waiting, WaitingChildren, WaitingChildren]);
    assert_eq!(f.backend.explain(flow.node("b")).await.unwrap().rule, "dependencies");
    for (at, expected) in ["a", "b", "c"].iter().enumerate() {
        assert_eq!(describe(f, &flow).await.status, FlowStatus::Open);
        let claimed = f.claim().await;
        assert_eq!(claimed.execution_id, *flow.node(expected));
        assert!(f.try_claim().await.is_none(), "{at}: a child ran before its parent");
        assert_eq!(describe(f, &flow).await.status, FlowStatus::Running);
        f.backend.complete(&claimed.handle, None).await.unwrap();
    }
    assert_eq!(states_of("a b c").await, [Completed; 3]);
    let ended = describe(f, &flow).await;
    assert_eq!(ended.status, FlowStatus::Completed);
    assert_eq!(ended.finished_at, Some(f.now()));
    assert_eq!(ended.counts, [(Completed, 3)].into());
    let events = f.events(flow.node("b")).await;
    use EventType::{Claimed, Submitted, Unblocked};
    assert_eq!(events, [Submitted, Unblocked, Claimed, EventType::Completed]);
}

pub async fn diamond(f: &Fixture) {
    let flow = plant(f, graph("a>b>d a>c>d")).await;
    assert_eq!(complete_all(f).await, 1);
    let both = claim_all(f).await;
    assert_eq!(both.len(), 2);
    f.backend.complete(&both[0].handle, None).await.unwrap();
    assert_eq!(states(f, &flow, "d").await, [PublicState::WaitingChildren], "one of two");
    f.backend.complete(&both[1].handle, None).await.unwrap();
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
}

pub async fn failure_skips(f: &Fixture) {
    let flow = plant(f, graph("a>b>c>d x>d e")).await;
    let handle = take(f, &flow, "a").await;
    fail(f, &handle).await;
    settle(f).await;
    use PublicState::{Failed, Skipped};
    assert_eq!(states(f, &flow, "a b c d").await, [Failed, Skipped, Skipped, Skipped]);
    let snapshot = f.snapshot(flow.node("c")).await;
    assert_eq!(snapshot.failure_reason.as_deref(), Some("dependency_impossible"));
    assert_eq!(f.events(flow.node("b")).await, [EventType::Submitted, EventType::Skipped]);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Running, "the others go on");
    f.advance(60_000).await;
    assert_eq!(complete_all(f).await, 2);
    let ended = describe(f, &flow).await;
    assert_eq!(ended.status, FlowStatus::Failed);
    assert_eq!(ended.counts, [(PublicState::Completed, 2), (Failed, 1), (Skipped, 3)].into());
}

pub async fn cancelled_and_expired_count_as_failed(f: &Fixture) {
    let flow = plant(f, graph("a>b")).await;
    f.cancel_execution(flow.node("a")).await.unwrap();
    settle(f).await;
    use PublicState::{Cancelled, Expired, Skipped};
    assert_eq!(states(f, &flow, "a b").await, [Cancelled, Skipped]);
    let mut args = graph("a>b");
    args.nodes[0].work = item().deadline(Duration::from_secs(5));
    let flow = plant(f, args).await;
    f.advance(5_000).await;
    assert_eq!(states(f, &flow, "a b").await, [Expired, Skipped]);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Failed);
    // A member that is cancelled while it waits takes those behind it along.
    let flow = plant(f, graph("a>b>c")).await;
    f.cancel_execution(flow.node("b")).await.unwrap();
    settle(f).await;
    assert_eq!(states(f, &flow, "b c").await, [Cancelled, Skipped]);
    assert_eq!(group(f, &flow, "b").await.state, EdgeGroupState::Cancelled);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Failed);
}

pub async fn any_of(f: &Fixture) {
    let any = EdgePolicy::AnyOf { on_satisfied: LET_RUN };
    let flow = plant(f, with_policy(graph("a>d b>d c>d"), "d", any)).await;
    let claimed = claim_all(f).await;
    fail(f, &claimed[0].handle).await;
    assert_eq!(states(f, &flow, "d").await, [PublicState::WaitingChildren]);
    f.backend.complete(&claimed[1].handle, None).await.unwrap();
    assert_eq!(states(f, &flow, "d").await, [PublicState::Waiting]);
    f.backend.complete(&claimed[2].handle, None).await.expect("the others run on");
    assert_eq!(complete_all(f).await, 1, "it is handed out once");
    let group = group(f, &flow, "d").await;
    let counted = (group.state, group.succeeded, group.failed, group.skipped, group.parents);
    assert_eq!(counted, (EdgeGroupState::Satisfied, 2, 1, 0, 3), "late parents are counted");
    // None of them completes: it never runs.
    let flow = plant(f, with_policy(graph("a>d b>d"), "d", any)).await;
    for claimed in claim_all(f).await {
        fail(f, &claimed.handle).await;
    }
    assert_eq!(states(f, &flow, "d").await, [PublicState::Skipped]);
}

pub async fn quorum_cancels_the_rest(f: &Fixture) {
    let quorum = EdgePolicy::Quorum { k: 2, on_satisfied: OnSatisfied::CancelRemaining };
    let flow = plant(f, with_policy(graph("a>e b>e c>e d>e"), "e", quorum)).await;
    let claimed = claim_all(f).await;
    f.backend.complete(&claimed[0].handle, None).await.unwrap();
    assert_eq!(states(f, &flow, "e").await, [PublicState::WaitingChildren]);
    f.backend.complete(&claimed[1].handle, None).await.unwrap();
    settle(f).await;
    let mut counts = describe(f, &flow).await.counts;
    let expected =
        [(PublicState::Waiting, 1), (PublicState::Completed, 2), (PublicState::Cancelled, 2)];
    assert_eq!(counts, expected.into());
    assert_eq!(code(&f.backend.complete(&claimed[2].handle, None).await), "execution_not_active");
    assert_eq!(complete_all(f).await, 1);
    let ended = describe(f, &flow).await;
    assert_eq!(ended.status, FlowStatus::Completed, "losers of a race are no failure");
    counts = ended.counts;
    assert_eq!(counts[&PublicState::Cancelled], 2);
}

pub async fn quorum_becomes_impossible(f: &Fixture) {
    let quorum = EdgePolicy::Quorum { k: 2, on_satisfied: LET_RUN };
    let flow = plant(f, with_policy(graph("a>d b>d c>d"), "d", quorum)).await;
    let claimed = claim_all(f).await;
    fail(f, &claimed[0].handle).await;
    assert_eq!(states(f, &flow, "d").await, [PublicState::WaitingChildren]);
    fail(f, &claimed[1].handle).await;
    assert_eq!(states(f, &flow, "d").await, [PublicState::Skipped]);
    f.backend.complete(&claimed[2].handle, None).await.unwrap();
    assert_eq!(f.events(flow.node("d")).await, [EventType::Submitted, EventType::Skipped]);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Failed);
}

pub async fn refused_as_a_whole(f: &Fixture) {
    let mut args = graph("a>b>c>a x>x");
    args.edges.push(FlowEdge::new("a", "b"));
    args.edges.push(FlowEdge::new("a", "nobody"));
    args.nodes.push(FlowNode::new("a", item()));
    args.nodes.push(FlowNode::new("bad", item().tag("NoTag", "")));
    let args = with_policy(args, "c", EdgePolicy::Quorum { k: 5, on_satisfied: LET_RUN });
    let refused = f.backend.submit_flow(args).await;
    assert_eq!(code(&refused), "invalid_graph");
    let text = refused.unwrap_err().to_string();
    for part in [
        "two nodes are named \"a\"",
        "node \"bad\"",
        "\"nobody\", which is no node",
        "\"x\" depends on itself",
        "is there twice",
        "a cycle:",
        "waits for 5 of its 1 parents",
    ] {
        assert!(text.contains(part), "{part:?} is not among: {text}");
    }
    assert!(f.try_claim().await.is_none(), "nothing of it was kept");
    let none = f.backend.submit_flow(graph("")).await;
    assert_eq!(code(&none), "invalid_graph");
    let mut args = graph("a");
    args.nodes[0].work.idempotency = item().idempotency_key("own").idempotency;
    assert_eq!(code(&f.backend.submit_flow(args).await), "invalid_graph");
}

pub async fn limits(f: &Fixture) {
    let mut args = graph("a");
    args.nodes = (0..10_001).map(|at| FlowNode::new(format!("n{at}"), item())).collect();
    let text = f.backend.submit_flow(args).await.unwrap_err().to_string();
    assert!(text.contains("10001 nodes, the limit is 10000"), "{text}");
    let mut args = graph("a b");
    args.edges = (0..100_001).map(|_| FlowEdge::new("a", "b")).collect();
    let text = f.backend.submit_flow(args).await.unwrap_err().to_string();
    assert!(text.contains("100001 edges, the limit is 100000"), "{text}");
}

pub async fn idempotent_by_key(f: &Fixture) {
    let keyed = |words: &str, key: &str| SubmitFlowArgs {
        idempotency_key: Some(key.into()),
        ..graph(words)
    };
    let flow = plant(f, keyed("a>b", "order-1")).await;
    let again = f.backend.submit_flow(keyed("a>b", "order-1")).await.unwrap();
    let ids = flow.ids.clone();
    assert_eq!(again, SubmitFlowResult::Duplicate { flow_id: flow.id, execution_ids: ids });
    let other = f.backend.submit_flow(keyed("a>c", "order-1")).await;
    assert_eq!(code(&other), "idempotency_key_reused");
    assert_ne!(plant(f, keyed("a>b", "order-2")).await.id, flow.id);
    let chosen = |words: &str| SubmitFlowArgs {
        flow_id: Some(FlowId(uuid::Uuid::from_u128(7))),
        ..graph(words)
    };
    plant(f, chosen("a")).await;
    assert!(matches!(
        f.backend.submit_flow(chosen("a")).await,
        Ok(SubmitFlowResult::Duplicate { .. })
    ));
    assert_eq!(code(&f.backend.submit_flow(chosen("b")).await), "flow_id_reused");
    let both = SubmitFlowArgs { flow_id: Some(flow.id), ..keyed("a", "order-3") };
    assert_eq!(code(&f.backend.submit_flow(both).await), "invalid_input");
    assert_eq!(complete_all(f).await, 3, "nothing was submitted twice");
}

pub async fn delays_count_from_submission(f: &Fixture) {
    let mut args = graph("a>b>c");
    args.nodes[1].work = item().delay(Duration::from_secs(60));
    args.nodes[2].work = item().delay(Duration::from_secs(1));
    let flow = plant(f, args).await;
    f.advance(30_000).await;
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(states(f, &flow, "b").await, [PublicState::Delayed]);
    f.advance(30_000).await;
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(complete_all(f).await, 1, "its delay was over before its parent ended");
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
}

pub async fn retries_do_not_tell(f: &Fixture) {
    let mut args = graph("a>b");
    args.nodes[0].work = item().policy(retries(1, 100));
    let flow = plant(f, args).await;
    let claimed = f.claim().await;
    f.backend.fail(&claimed.handle, failure(FailureClass::Retryable)).await.unwrap();
    assert_eq!(states(f, &flow, "b").await, [PublicState::WaitingChildren]);
    f.advance(100).await;
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(complete_all(f).await, 1);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
}

pub async fn reads(f: &Fixture) {
    let flow = plant(f, graph("a>b a>c b>d c>d")).await;
    let seen = describe(f, &flow).await;
    assert_eq!((seen.node_count, seen.edge_count, seen.graph_revision), (4, 4, 1));
    assert_eq!(seen.flow_kind, "kind");
    let whole = read_graph(f, &flow).await;
    assert_eq!((whole.nodes.len(), whole.edges.len()), (4, 4));
    let named = |name: &str| whole.nodes.iter().find(|node| node.name == name).unwrap();
    assert!(named("a").group.is_none());
    assert_eq!(named("d").group.as_ref().unwrap().parents, 2);
    assert_eq!(named("d").execution_id, *flow.node("d"));
    let mut pages = 0;
    let mut args = FlowGraphArgs { flow_id: flow.id, cursor: None, limit: 3 };
    let mut seen_nodes = 0;
    loop {
        let page = f.backend.flow_graph(args.clone()).await.unwrap();
        seen_nodes += page.nodes.len();
        pages += 1;
        match page.next_cursor {
            Some(cursor) => args.cursor = Some(cursor),
            None => break,
        }
    }
    assert_eq!((pages, seen_nodes), (2, 4));
    f.advance(10).await;
    let other = plant(f, graph("x")).await;
    complete_all(f).await;
    let list = |args: ListFlowsArgs| async move { f.backend.list_flows(args).await.unwrap() };
    let all = list(ListFlowsArgs::default()).await;
    let ids: Vec<_> = all.flows.iter().map(|flow| flow.flow_id).collect();
    assert_eq!(ids, [other.id, flow.id], "the newest first");
    let statuses = vec![FlowStatus::Completed];
    let done = list(ListFlowsArgs { statuses, ..ListFlowsArgs::default() }).await;
    assert_eq!(done.flows.len(), 1);
    assert_eq!(done.flows[0].ended, [(PublicState::Completed, 1)].into());
    let statuses = vec![FlowStatus::Running];
    let living = list(ListFlowsArgs { statuses, ..ListFlowsArgs::default() }).await;
    assert_eq!(living.flows[0].flow_id, flow.id);
    let page = list(ListFlowsArgs { limit: 1, ..ListFlowsArgs::default() }).await;
    let rest = ListFlowsArgs { cursor: page.next_cursor, limit: 1, ..ListFlowsArgs::default() };
    let rest = list(rest).await;
    assert_eq!(rest.flows[0].flow_id, flow.id);
    assert_eq!(rest.next_cursor, None);
    let foreign = ListFlowsArgs { namespace: Some(Namespace::new("other")), ..Default::default() };
    assert!(list(foreign).await.flows.is_empty());
    assert!(f.backend.describe_flow(&FlowId::new()).await.unwrap().is_none());
}

/// Nodes with many parents: all pages together are the graph that was submitted, node by node and
/// edge by edge, however small the pages are.
pub async fn whole_graph(f: &Fixture) {
    let parents = 150;
    let edges = (0..parents).flat_map(|at| [format!("p{at}>a"), format!("p{at}>b")]);
    let words: Vec<String> = ["first>p0".to_owned()].into_iter().chain(edges).collect();
    let args = graph(&words.join(" "));
    let submitted: BTreeSet<(String, String)> =
        args.edges.iter().map(|edge| (edge.from.clone(), edge.to.clone())).collect();
    let flow = plant(f, args).await;
    let name = |id: &ExecutionId| {
        let at = flow.ids.iter().position(|known| known == id);
        flow.names[at.expect("a node of the flow")].clone()
    };
    for limit in [1, 7, 100, 0] {
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        let mut args = FlowGraphArgs { flow_id: flow.id, cursor: None, limit };
        loop {
            let page = f.backend.flow_graph(args.clone()).await.unwrap();
            let most = if limit == 0 { 1_000 } else { limit };
            assert!(page.nodes.len() <= most && page.edges.len() <= 10 * most, "{limit}");
            nodes.extend(page.nodes.into_iter().map(|node| node.name));
            edges.extend(page.edges.iter().map(|edge| (name(&edge.from), name(&edge.to))));
            args.cursor = page.next_cursor;
            if args.cursor.is_none() {
                break;
            }
        }
        nodes.sort_unstable();
        let mut names = flow.names.clone();
        names.sort_unstable();
        assert_eq!(nodes, names, "{limit}");
        assert_eq!(edges.len(), submitted.len(), "{limit}: every edge comes once");
        assert_eq!(edges.into_iter().collect::<BTreeSet<_>>(), submitted, "{limit}");
    }
}

pub async fn parents_results(f: &Fixture) {
    let mut args = graph("a>c b>c");
    args.nodes[1].work = item().payload(br#"{"own":1}"#.to_vec());
    args.nodes[1].merge_results = true;
    let flow = plant(f, args).await;
    let claimed = claim_all(f).await;
    for one in &claimed {
        let result =
            if one.execution_id == *flow.node("a") { b"{\"n\":1}".to_vec() } else { vec![0xff] };
        f.backend.complete(&one.handle, Some(result)).await.unwrap();
    }
    let child = f.claim().await;
    let payload: serde_json::Value = serde_json::from_slice(&child.payload).unwrap();
    assert_eq!(payload["own"], 1);
    assert_eq!(payload["parents"]["a"]["result"]["n"], 1);
    assert_eq!(payload["parents"]["b"]["result"]["hex"], "ff");
    assert_eq!(payload["parents"]["b"]["state"], "completed");
    let own = f.backend.payload(flow.node("c")).await.unwrap().unwrap();
    assert_eq!(&*own, br#"{"own":1}"#, "what was submitted stays as it is");
    let parents = parents_of(f, flow.node("c")).await;
    assert_eq!(parents.len(), 2);
    let b = parents.iter().find(|parent| parent.name == "b").unwrap();
    assert_eq!(b.result.as_deref(), Some(&[0xff][..]));
    assert!(parents_of(f, flow.node("a")).await.is_empty());
}

/// Every parent of a member, page by page.
pub(super) async fn parents_of(f: &Fixture, id: &ExecutionId) -> Vec<ParentResult> {
    let mut args = ParentResultsArgs { limit: 1_000, ..ParentResultsArgs::new(id.clone()) };
    let mut parents = Vec::new();
    loop {
        let page = f.backend.parent_results(args.clone()).await.unwrap();
        assert!(page.parents.len() <= args.limit);
        parents.extend(page.parents);
        args.after = page.next_after;
        if args.after.is_none() {
            return parents;
        }
    }
}

pub async fn namespaces(f: &Fixture) {
    use ff_core::engine_backend::{EngineBackend, Namespaced};
    let flow = plant(f, graph("a>b")).await;
    let other = Namespaced::new(f.backend.clone(), Namespace::new("other"));
    assert!(other.describe_flow(&flow.id).await.unwrap().is_none());
    assert!(other.list_flows(ListFlowsArgs::default()).await.unwrap().flows.is_empty());
    let args = FlowGraphArgs { flow_id: flow.id, cursor: None, limit: 0 };
    assert_eq!(code(&other.flow_graph(args).await), "not_found");
    let parents = ParentResultsArgs::new(flow.node("b").clone());
    assert_eq!(code(&other.parent_results(parents).await), "not_found");
    assert_eq!(code(&other.submit_flow(graph("a")).await), "invalid_input");
    let own = SubmitFlowArgs { namespace: Namespace::new("other"), ..graph("a>b") };
    assert_eq!(code(&other.submit_flow(own).await), "ok");
    let policy = ff_core::backend::CancelFlowPolicy::CancelAll;
    let wait = ff_core::backend::CancelFlowWait::NoWait;
    assert_eq!(code(&other.cancel_flow(&flow.id, policy, wait).await), "not_found");
}
