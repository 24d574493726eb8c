//! Rows that were damaged by SQL: reads show them as unreadable and go on.

use std::time::Duration;

use ff_core::contracts::{
    BulkFilter, EventFilter, EventType, FlowGraphArgs, FlowNode, ListExecutionsArgs, ListFlowsArgs,
    ListSchedulesArgs, PutScheduleArgs, ScheduleId, ScheduleSnapshot, ScheduleTemplate, Submission,
    SubmitFlowArgs, Timing,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{BulkOperations, EngineBackend, FlowOperations, ScheduleOperations};
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, Namespace};

use crate::exercise::{claim_from, code};

/// Damages rows of every kind that reads list, and reads them. `sql` runs a statement.
pub async fn rows_are_shown<B: EngineBackend>(backend: &B, sql: impl AsyncFn(String)) {
    executions(backend, &sql).await;
    members(backend, &sql).await;
    schedules(backend, &sql).await;
    events(backend, &sql).await;
}

async fn submit(backend: &impl EngineBackend, lane: &str, kind: &str) -> ExecutionId {
    let outcomes = backend.submit(vec![Submission::new(lane, kind)]).await.unwrap();
    outcomes[0].execution_id().unwrap().clone()
}

async fn executions<B: EngineBackend>(backend: &B, sql: &impl AsyncFn(String)) {
    let whole = submit(backend, "first", "whole").await;
    let damage = [
        ("lifecycle_phase", "'bogus'", "unknown word \"bogus\""),
        ("attempt_index", "-1", "-1 is out of range"),
        ("reclaim_count", "-2", "-2 is out of range"),
    ];
    for (column, value, told) in damage {
        let id = submit(backend, "first", column).await;
        let set = format!("UPDATE ff_exec_core SET {column} = {value}");
        sql(format!("{set} WHERE execution_kind = '{column}'")).await;

        let page = backend.list_executions(ListExecutionsArgs::default()).await.unwrap();
        let shown = page.executions.iter().find(|row| row.execution_id == id).expect("it is there");
        let why = format!("{column} cannot be read: {told}");
        assert_eq!(shown.unreadable.as_deref(), Some(&*why));
        assert_eq!(shown.execution_kind, column, "what can be read of it is shown");
        let seen = backend.describe_execution(&id).await.unwrap().expect("it is there");
        assert_eq!(seen.unreadable.as_deref(), Some(&*why));
        assert_eq!(backend.history(&id, 0, 10).await.unwrap().len(), 1);
        assert!(backend.payload(&id).await.unwrap().is_some());
        assert_eq!(code(&backend.explain(&id).await), "corruption", "nothing is made up");
    }
    let page = backend.list_executions(ListExecutionsArgs::default()).await.unwrap();
    let whole_row = page.executions.iter().find(|row| row.execution_id == whole);
    assert_eq!(whole_row.expect("it is there").unreadable, None);
    let preview = backend.preview_bulk(BulkFilter::default()).await.unwrap();
    assert_eq!((preview.matched, preview.sample.len()), (4, 4));
    assert_eq!(preview.sample.iter().filter(|row| row.unreadable.is_some()).count(), 3);
    let counts = backend.counts().await.unwrap();
    assert_eq!(counts[0].counts[&PublicState::Waiting], 4);
    let claimed = backend.claim_many(claim_from("first")).await.unwrap();
    assert_eq!(claimed[0].execution_id, whole, "claims pass over what they cannot read");

    sql("UPDATE ff_attempt SET lease_epoch = -1".to_owned()).await;
    let seen = backend.describe_execution(&whole).await.unwrap().expect("it is there");
    let why = seen.unreadable.expect("its attempt cannot be read");
    assert!(why.starts_with("attempt 0: lease_epoch cannot be read"), "{why}");
}

async fn members<B: EngineBackend>(backend: &B, sql: &impl AsyncFn(String)) {
    let args = SubmitFlowArgs {
        namespace: Namespace::new("default"),
        flow_kind: "kind".into(),
        nodes: ["a", "b"].map(|name| FlowNode::new(name, Submission::new("flow", name))).to_vec(),
        ..SubmitFlowArgs::default()
    };
    let flow_id = backend.submit_flow(args).await.unwrap().flow_id();
    let set = "UPDATE ff_exec_core SET lifecycle_phase = 'bogus'";
    sql(format!("{set} WHERE lane_id = 'flow' AND execution_kind = 'b'")).await;
    let seen = backend.describe_flow(&flow_id).await.unwrap().expect("it is there");
    assert_eq!(seen.node_count, 2);
    let args = FlowGraphArgs { flow_id, cursor: None, limit: 0 };
    let graph = backend.flow_graph(args).await.unwrap();
    let shown: Vec<_> = graph.nodes.iter().map(|node| node.unreadable.is_some()).collect();
    assert_eq!(shown.iter().filter(|damaged| **damaged).count(), 1);
    assert_eq!(shown.len(), 2);

    sql("UPDATE ff_flow_core SET node_count = -1".to_owned()).await;
    let page = backend.list_flows(ListFlowsArgs::default()).await.unwrap();
    let why = page.flows[0].unreadable.as_deref().unwrap_or_default();
    assert!(why.starts_with("node_count cannot be read"), "{why}");
    assert!(backend.describe_flow(&flow_id).await.unwrap().expect("it is").unreadable.is_some());
}

async fn schedules<B: EngineBackend>(backend: &B, sql: &impl AsyncFn(String)) {
    for name in ["a", "b", "c"] {
        let id = ScheduleId::new("default", name);
        let template = ScheduleTemplate::new("third", "kind");
        let timing = Timing::every(Duration::from_secs(3_600));
        backend.put_schedule(PutScheduleArgs::new(id, timing, template)).await.unwrap();
    }
    sql("UPDATE ff_schedule SET definition = '{}' WHERE schedule_name = 'b'".to_owned()).await;
    let args = ListSchedulesArgs { limit: 2, ..ListSchedulesArgs::default() };
    let page = backend.list_schedules(args).await.unwrap();
    let name = |row: &ScheduleSnapshot| row.definition.schedule_id.name.clone();
    let names: Vec<_> = page.schedules.iter().map(name).collect();
    assert_eq!(names, ["a", "c"], "the page is as long as it may be");
    assert_eq!((page.unreadable.len(), page.next_cursor), (1, None));
    assert_eq!(page.unreadable[0].table, "ff_schedule");
}

async fn events<B: EngineBackend>(backend: &B, sql: &impl AsyncFn(String)) {
    let id = submit(backend, "fourth", "logged").await;
    sql("UPDATE ff_event SET event_type = 'odd' WHERE lane_id = 'fourth'".to_owned()).await;
    let history = backend.history(&id, 0, 10).await.unwrap();
    assert_eq!(history[0].event_type, EventType::Unreadable);
    assert_eq!(
        history[0].details["unreadable"],
        "event_type cannot be read: unknown event \"odd\""
    );
    let log = backend.subscribe(EventFilter::default(), StartAt::Oldest).await;
    let mut log = log.unwrap();
    loop {
        let event = log.next().await.unwrap();
        if event.event_type == EventType::Unreadable {
            assert_eq!(event.execution_id, Some(id));
            break;
        }
    }
}
