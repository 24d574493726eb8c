//! Counters that somebody has written to by hand are found, and mended so that work goes on.

use ff_core::contracts::{
    Drift, ExtendFlowArgs, FlowNode, FlowStatus, ListFlowsArgs, PutQuotaArgs, WaitChildrenResult,
};
use ff_core::engine_backend::{
    CounterOperations, FlowOperations, LimitOperations, TimerOperations,
};
use ff_core::engine_error::EngineError;
use ff_core::operations::Operation;
use ff_core::rows::{
    AnyKey, ChildrenKey, ChildrenRow, EdgeGroupKey, EdgeGroupRow, Endings, FlowKey, FlowRow,
    LimitStateRow, Record, Standing,
};
use ff_core::state::PublicState;
use ff_core::store::{Change, Needs, Query, Scan, World, Write};
use ff_core::types::FlowId;

use super::flow_graph::{Planted, describe, graph, plant, take};
use super::{Fixture, budget, code, item, quota};

/// Whatever an exercise has done, every counter says how many there are, and whatever waits for a
/// time has a timer.
pub(super) async fn check(f: &Fixture) {
    assert_eq!(f.backend.check_timers(false).await.unwrap().missing, []);
    assert_eq!(f.backend.recount_limits(false).await.unwrap(), []);
    let mut args = ListFlowsArgs { limit: 1_000, ..ListFlowsArgs::default() };
    loop {
        let page = f.backend.list_flows(args.clone()).await.unwrap();
        for flow in page.flows {
            let recount = f.backend.recount_flow(&flow.flow_id, false).await;
            match recount {
                // The exercise has left something to do.
                Err(error) => assert_eq!(error.code(), "cascade_running", "{error}"),
                Ok(drifts) => assert_eq!(drifts, [], "of flow {}", flow.flow_id),
            }
        }
        args.cursor = page.next_cursor;
        if args.cursor.is_none() {
            return;
        }
    }
}

/// Writes rows as nobody should.
pub(super) struct ByHand {
    pub flows: Vec<FlowRow>,
    pub change: Change,
    pub keys: Vec<AnyKey>,
}

impl Operation for ByHand {
    type Reply = ();

    const NAME: &'static str = "by_hand";

    fn needs(&self, needs: &mut Needs) {
        needs.flows.extend(self.flows.iter().map(|flow| flow.key));
        needs.records.extend(self.keys.iter().cloned());
    }

    fn decide(&self, _: &World) -> Result<((), Change), EngineError> {
        Ok(((), self.change.clone()))
    }
}

async fn write_flow(f: &Fixture, flow: FlowRow) {
    let mut change = Change::default();
    change.flows.push(Write::Update(flow.clone()));
    let by_hand = ByHand { flows: vec![flow], change, keys: Vec::new() };
    f.backend.engine().run(None, by_hand).await.unwrap();
}

pub(super) async fn write_record<R: Record>(f: &Fixture, key: &R::Key, row: &R) {
    let mut change = Change::default();
    change.update(row);
    let by_hand = ByHand { flows: Vec::new(), change, keys: vec![R::erase_key(key)] };
    f.backend.engine().run(None, by_hand).await.unwrap();
}

async fn record<R: Record>(f: &Fixture, key: &R::Key) -> R {
    let query = Query::Records { keys: vec![R::erase_key(key)], scans: Vec::new() };
    let rows = f.backend.engine().query(query).await.unwrap();
    rows.records::<R>().unwrap().remove(0)
}

fn key_of(f: &Fixture, flow: &Planted) -> FlowKey {
    FlowKey { partition: f.backend.engine().store().flow_partition(&flow.id), id: flow.id.0 }
}

fn told(drifts: &[Drift]) -> Vec<(&str, i64, i64)> {
    drifts.iter().map(|drift| (&*drift.counter, drift.stored, drift.counted)).collect()
}

async fn complete(f: &Fixture, flow: &Planted, name: &str) {
    let handle = take(f, flow, name).await;
    f.backend.complete(&handle, None).await.unwrap();
}

pub async fn of_flows(f: &Fixture) {
    let flow = plant(f, graph("a>b>d c>d")).await;
    complete(f, &flow, "a").await;
    complete(f, &flow, "b").await;
    let key = key_of(f, &flow);
    let group_key = EdgeGroupKey { flow: key, downstream: flow.node("d").key().id };
    let group: EdgeGroupRow = record(f, &group_key).await;
    assert_eq!((group.succeeded, group.running), (1, 1));
    write_record(f, &group_key, &EdgeGroupRow { succeeded: 0, running: 2, ..group }).await;
    f.advance(60_000).await;
    complete(f, &flow, "c").await;
    assert!(f.try_claim().await.is_none(), "it waits for a parent that has ended");

    let wrong = f.backend.recount_flow(&flow.id, false).await.unwrap();
    assert_eq!(told(&wrong), [("succeeded", 1, 2)]);
    assert!(wrong[0].subject.contains(flow.node("d").as_str()));
    assert!(f.try_claim().await.is_none(), "looking changes nothing");
    assert_eq!(f.backend.recount_flow(&flow.id, true).await.unwrap(), wrong);
    assert_eq!(f.backend.recount_flow(&flow.id, true).await.unwrap(), []);

    let header = f.backend.engine().query(Query::Flow(key)).await.unwrap().flows.remove(0);
    let ended = Endings { completed: 1, ..header.ended };
    write_flow(f, FlowRow { ended, ..header }).await;
    complete(f, &flow, "d").await;
    assert_ne!(describe(f, &flow).await.status, FlowStatus::Completed);
    let wrong = f.backend.recount_flow(&flow.id, true).await.unwrap();
    assert_eq!(told(&wrong), [("completed", 2, 4)]);
    assert_eq!(describe(f, &flow).await.status, FlowStatus::Completed);
    assert_eq!(code(&f.backend.recount_flow(&FlowId::new(), true).await), "not_found");
}

pub async fn of_nodes_that_were_added(f: &Fixture) {
    let flow = plant(f, graph("a")).await;
    let handle = take(f, &flow, "a").await;
    let args = ExtendFlowArgs { nodes: vec![FlowNode::new("child", item())], edges: Vec::new() };
    f.backend.extend_flow(&handle, args).await.unwrap();
    let waiting = f.backend.wait_children(&handle).await.unwrap();
    assert_eq!(waiting, WaitChildrenResult::Waiting { open: 1 });
    let key = ChildrenKey { execution: flow.node("a").key() };
    let children: ChildrenRow = record(f, &key).await;
    write_record(f, &key, &ChildrenRow { added: 2, ..children }).await;
    let child = f.claim().await;
    f.backend.complete(&child.handle, None).await.unwrap();
    assert!(f.try_claim().await.is_none(), "it waits for a node that nobody has added");
    let wrong = f.backend.recount_flow(&flow.id, true).await.unwrap();
    assert_eq!(told(&wrong), [("added", 2, 1)]);
    assert_eq!(f.claim().await.execution_id, *flow.node("a"));
}

pub(super) async fn states(f: &Fixture) -> Vec<LimitStateRow> {
    let scans = vec![Scan::of::<LimitStateRow>(Vec::new()).limit(10)];
    let rows = f.backend.engine().query(Query::Records { keys: Vec::new(), scans }).await.unwrap();
    rows.records().unwrap()
}

pub async fn of_quotas(f: &Fixture) {
    let one = PutQuotaArgs { concurrency: Some(1), ..quota::quota("cap") };
    f.backend.put_quota(one).await.unwrap();
    let (_, handle) = f.start(item()).await;
    assert_eq!(f.backend.recount_limits(true).await.unwrap(), [], "one is in use, and counted");
    f.backend.complete(&handle, None).await.unwrap();
    let mut state = states(f).await.remove(0);
    let Standing::Quota(permits) = &mut state.standing.0 else { panic!("a quota's key") };
    permits.in_use = 1;
    write_record(f, &state.key, &state).await;
    let id = f.submit(item()).await;
    assert!(f.try_claim().await.is_none());
    f.advance(3_600_000).await;
    assert_eq!(f.state(&id).await, PublicState::RateLimited, "nobody will give that back");

    let wrong = f.backend.recount_limits(false).await.unwrap();
    assert_eq!(told(&wrong), [("in_use", 1, 0)]);
    assert_eq!(f.state(&id).await, PublicState::RateLimited, "looking changes nothing");
    assert_eq!(f.backend.recount_limits(true).await.unwrap(), wrong);
    f.advance(1).await;
    assert_eq!(f.claim().await.execution_id, id);
}

pub async fn of_budgets(f: &Fixture) {
    f.backend.put_budget(budget::budget(10, 4)).await.unwrap();
    let (_, first) = f.start(budget::charged_item()).await;
    assert_eq!(f.backend.recount_limits(true).await.unwrap(), [], "what is reserved is counted");
    let mut state = states(f).await.remove(0);
    let Standing::Budget(account) = &mut state.standing.0 else { panic!("a budget") };
    let reserved = account.reserved["tokens"];
    account.reserved.insert("tokens".into(), 10);
    write_record(f, &state.key, &state).await;
    let id = f.submit(budget::charged_item()).await;
    assert!(f.try_claim().await.is_none(), "there is no room, it seems");

    let wrong = f.backend.recount_limits(true).await.unwrap();
    assert_eq!(told(&wrong), [("reserved tokens", 10, i64::try_from(reserved).unwrap())]);
    f.advance(1).await;
    assert_eq!(f.claim().await.execution_id, id);
    f.backend.complete(&first, None).await.unwrap();

    let mut state = states(f).await.remove(0);
    state.set_waiting(3);
    write_record(f, &state.key, &state).await;
    assert_eq!(told(&f.backend.recount_limits(true).await.unwrap()), [("waiting", 3, 0)]);
}
