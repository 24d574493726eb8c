//! Cancelling flows. No call creates one yet, so their rows are planted by an operation of our own.

use std::sync::Arc;

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait};
use ff_core::contracts::{
    CancelFlowArgs, CancelFlowHeader, CancelFlowResult, Event, EventFilter, EventType,
    RevokeLeaseResult, Submission,
};
use ff_core::engine::StartAt;
use ff_core::engine_error::EngineError;
use ff_core::operations::Operation;
use ff_core::rows::{Endings, EventRow, ExecutionRow, FlowKey, FlowRow, FlowState};
use ff_core::state::PublicState;
use ff_core::store::{Change, Needs, Query, World, Write};
use ff_core::types::{ExecutionId, ExecutionKey, FlowId, TimestampMs};
use uuid::Uuid;

use super::{Fixture, LANE, code, item, revoke_args};

/// Inserts a flow and its members.
struct Plant {
    flow: FlowRow,
    members: Vec<ExecutionRow>,
}

impl Operation for Plant {
    type Reply = ();

    const NAME: &'static str = "plant";

    fn needs(&self, _: &mut Needs) {}

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let event = |row: &ExecutionRow| EventRow::about(row, EventType::Submitted, world.now);
        let change = Change {
            flows: vec![Write::Insert(self.flow.clone())],
            events: self.members.iter().map(event).collect(),
            executions: self.members.iter().cloned().map(Write::Insert).collect(),
            ..Change::default()
        };
        Ok(((), change))
    }
}

/// An open flow with members that wait in the lane.
async fn plant(f: &Fixture, members: usize) -> (FlowId, Vec<ExecutionId>) {
    let id = FlowId::new();
    let engine = f.backend.engine();
    let partition = engine.store().flow_partition(&id);
    let template = f.submit(Submission::new("template", "kind")).await;
    let rows = engine.query(Query::Execution(template.key())).await.unwrap();
    let lane: Arc<str> = LANE.into();
    let member = |_| ExecutionRow {
        key: ExecutionKey { partition, id: Uuid::now_v7() },
        flow_id: Some(id.0),
        lane: lane.clone(),
        ..rows.executions[0].clone()
    };
    let members: Vec<_> = (0..members).map(member).collect();
    let ids = members.iter().map(|row| row.key.execution_id()).collect();
    let flow = FlowRow {
        key: FlowKey { partition, id: id.0 },
        namespace: "default".into(),
        kind: "".into(),
        graph_revision: 0,
        state: FlowState::Open,
        created_at: f.now(),
        terminal_at: None,
        nodes: 0,
        edges: 0,
        ended: Endings::default(),
        raw_fields: "{}".into(),
    };
    engine.run(None, Plant { flow, members }).await.unwrap();
    (id, ids)
}

async fn states(f: &Fixture, ids: &[ExecutionId]) -> Vec<PublicState> {
    let mut states = Vec::new();
    for id in ids {
        states.push(f.state(id).await);
    }
    states
}

async fn cancel(f: &Fixture, flow: &FlowId, policy: CancelFlowPolicy) -> Vec<String> {
    let cancelled = f.backend.cancel_flow(flow, policy, CancelFlowWait::NoWait).await.unwrap();
    let CancelFlowResult::Cancelled { cancellation_policy, member_execution_ids } = cancelled
    else {
        panic!("a small flow is cancelled at once");
    };
    assert_eq!(cancellation_policy, policy.as_str());
    member_execution_ids
}

fn wire(ids: &[ExecutionId]) -> Vec<String> {
    let mut wire: Vec<_> = ids.iter().map(|id| id.as_str().to_owned()).collect();
    wire.sort_unstable();
    wire
}

pub async fn cancel_all(f: &Fixture) {
    let (flow, ids) = plant(f, 3).await;
    let running = f.claim().await;
    assert_eq!(cancel(f, &flow, CancelFlowPolicy::CancelAll).await, wire(&ids));
    assert_eq!(states(f, &ids).await, [PublicState::Cancelled; 3]);
    assert_eq!(code(&f.backend.complete(&running.handle, None).await), "execution_not_active");
    assert!(f.try_claim().await.is_none());
    // Nobody is running any more, so waiting for the members ends at once.
    let wait = CancelFlowWait::WaitIndefinite;
    let again = f.backend.cancel_flow(&flow, CancelFlowPolicy::CancelAll, wait).await.unwrap();
    let cancellation_policy = "cancel_all".to_owned();
    let member_execution_ids = wire(&ids);
    let expected = CancelFlowResult::Cancelled { cancellation_policy, member_execution_ids };
    assert_eq!(again, expected, "a repeat tells the same");
}

pub async fn cancel_pending(f: &Fixture) {
    let (flow, ids) = plant(f, 2).await;
    let running = f.claim().await;
    assert_eq!(cancel(f, &flow, CancelFlowPolicy::CancelPending).await, wire(&ids));
    let mut seen = states(f, &ids).await;
    seen.sort_unstable();
    assert_eq!(seen, [PublicState::Active, PublicState::Cancelled]);
    f.backend.complete(&running.handle, None).await.expect("running members finish");
}

pub async fn flow_only(f: &Fixture) {
    let (flow, ids) = plant(f, 2).await;
    let running = f.claim().await;
    cancel(f, &flow, CancelFlowPolicy::FlowOnly).await;
    assert!(f.try_claim().await.is_none(), "a member was handed out after the cancel");
    let waiting = ids.iter().find(|id| **id != running.execution_id).unwrap();
    assert_eq!(f.backend.explain(waiting).await.unwrap().rule, "flow_ended");
    // A member whose lease runs out comes back to the lane; it must not be handed out either.
    f.advance(60_000).await;
    assert!(f.try_claim().await.is_none());
    assert!(f.try_claim().await.is_none());
    let other = f.submit(item()).await;
    assert_eq!(f.claim().await.execution_id, other, "held members stand in nobody's way");
}

pub async fn header_and_acks(f: &Fixture) {
    let (flow, ids) = plant(f, 2).await;
    let args = |reason: &str| CancelFlowArgs {
        flow_id: flow,
        reason: reason.into(),
        cancellation_policy: "my_policy".into(),
        now: f.now(),
    };
    let header = f.backend.cancel_flow_header(args("first")).await.unwrap();
    let cancellation_policy = "my_policy".to_owned();
    let member_execution_ids = wire(&ids);
    assert_eq!(header, CancelFlowHeader::Cancelled { cancellation_policy, member_execution_ids });
    assert_eq!(states(f, &ids).await, [PublicState::Cancelled; 2]);
    let left = |ids: &[ExecutionId]| CancelFlowHeader::AlreadyTerminal {
        stored_cancellation_policy: Some("my_policy".into()),
        stored_cancel_reason: Some("first".into()),
        member_execution_ids: wire(ids),
    };
    assert_eq!(f.backend.cancel_flow_header(args("second")).await.unwrap(), left(&ids));
    for _ in 0..2 {
        f.backend.ack_cancel_member(&flow, &ids[0]).await.unwrap();
        let again = f.backend.cancel_flow_header(args("third")).await.unwrap();
        assert_eq!(again, left(&ids[1..]), "only the unacknowledged are left");
    }
    f.backend.ack_cancel_member(&flow, &ids[1]).await.unwrap();
    let again = f.backend.cancel_flow_header(args("fourth")).await.unwrap();
    assert_eq!(again, left(&ids), "with an empty backlog every member is named");
}

/// The event by which a flow's cancellation was asked for.
async fn request(f: &Fixture, flow: FlowId) -> Event {
    let event_types = vec![EventType::FlowCancelRequested];
    let filter = EventFilter { flow_id: Some(flow), event_types, ..EventFilter::default() };
    let mut events = f.backend.subscribe(filter, StartAt::Oldest).await.unwrap();
    events.try_next().await.unwrap().expect("the flow was cancelled")
}

/// More members than one transaction reaches are all counted, and end at the caller's time.
pub async fn counts_every_member(f: &Fixture) {
    let (flow, ids) = plant(f, 1_500).await;
    f.cancel_execution(&ids[0]).await.unwrap();
    let asked_at = TimestampMs(f.now().0 - 7);
    let args = CancelFlowArgs {
        flow_id: flow,
        reason: "asked for".into(),
        cancellation_policy: "cancel_all".into(),
        now: asked_at,
    };
    let header = f.backend.cancel_flow_header(args).await.unwrap();
    let CancelFlowHeader::Cancelled { member_execution_ids, .. } = header else {
        panic!("{header:?}");
    };
    assert_eq!(member_execution_ids.len(), 1_499);
    assert_eq!(request(f, flow).await.details["member_count"], 1_499);
    f.backend.engine().sweep().await.unwrap();
    for id in [&ids[1], &ids[1_499]] {
        assert_eq!(f.snapshot(id).await.finished_at, Some(asked_at), "{id}");
    }

    let (flow, _) = plant(f, 1_100).await;
    let wait = CancelFlowWait::NoWait;
    let scheduled = f.backend.cancel_flow(&flow, CancelFlowPolicy::CancelAll, wait).await.unwrap();
    let counted =
        matches!(scheduled, CancelFlowResult::CancellationScheduled { member_count: 1_100, .. });
    assert!(counted, "the flow's own rows are counted");
    assert_eq!(request(f, flow).await.details["member_count"], 1_100);
}

/// The header leaves the attempt as it is, with its worker; that is no lease any more.
pub async fn revoke_after_header(f: &Fixture) {
    let (flow, ids) = plant(f, 1).await;
    f.claim().await;
    let args = CancelFlowArgs {
        flow_id: flow,
        reason: String::new(),
        cancellation_policy: "cancel_all".into(),
        now: f.now(),
    };
    f.backend.cancel_flow_header(args).await.unwrap();
    let before = f.picture(&ids[0]).await;
    let revoked = f.backend.revoke_lease(revoke_args(&ids[0])).await.unwrap();
    let reason = "no_active_lease".to_owned();
    assert_eq!(revoked, RevokeLeaseResult::AlreadySatisfied { reason });
    assert_eq!(f.picture(&ids[0]).await, before);
}

pub async fn unknown_flow(f: &Fixture) {
    let flow = FlowId::new();
    let all = CancelFlowPolicy::CancelAll;
    let refused = f.backend.cancel_flow(&flow, all, CancelFlowWait::NoWait).await;
    assert_eq!(code(&refused), "not_found");
    let args = CancelFlowArgs {
        flow_id: flow,
        reason: String::new(),
        cancellation_policy: String::new(),
        now: f.now(),
    };
    assert_eq!(code(&f.backend.cancel_flow_header(args).await), "not_found");
    f.backend.ack_cancel_member(&flow, &super::new_id()).await.unwrap();
}
