//! Operator control: priorities, replays, and flows that are cancelled in two steps.

use ff_core::contracts::{
    Actor, CancelFlowArgs, CancelFlowHeader, ChangePriorityArgs, ChangePriorityResult,
    ReplayExecutionArgs, ReplayExecutionResult, Stamp,
};
use ff_core::engine_backend::{Acting, EngineBackend};
use ff_core::engine_error::{ContentionKind, EngineError, StateKind};
use ff_core::partition::{PartitionConfig, flow_partition};
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, FlowId, LaneId, TimestampMs};
use uuid::Uuid;

use super::{Fixture, Flow, Seed, State};

fn priority(id: &ExecutionId, to: i32) -> ChangePriorityArgs {
    ChangePriorityArgs {
        execution_id: id.clone(),
        new_priority: to,
        lane_id: LaneId::new("default"),
        now: TimestampMs::now(),
    }
}

fn replay(id: &ExecutionId) -> ReplayExecutionArgs {
    ReplayExecutionArgs { execution_id: id.clone(), now: TimestampMs::now() }
}

fn header(flow: &FlowId, policy: &str) -> CancelFlowArgs {
    CancelFlowArgs {
        flow_id: *flow,
        reason: "asked for".into(),
        cancellation_policy: policy.into(),
        now: TimestampMs::now(),
    }
}

impl Fixture {
    /// The details of the one event of this type.
    async fn details(&self, partition: i16, subject: Uuid, event_type: &str) -> serde_json::Value {
        assert_eq!(self.operator_events(subject, event_type).await, 1);
        let sql = "SELECT details FROM ff_operator_event WHERE partition_key = $1 \
                   AND execution_id = $2 AND event_type = $3";
        let query = sqlx::query_scalar(sql).bind(i32::from(partition));
        let query = query.bind(subject.to_string()).bind(event_type);
        query.fetch_one(&self.pool).await.expect("the event")
    }

    async fn cancelled_flow(&self) -> (Flow, Vec<String>) {
        let seed = Seed {
            phase: "active",
            eligibility: "not_applicable",
            public: "running",
            attempt: "running_attempt",
            ..Seed::default()
        };
        let flow = self.insert_flow("active", 2, &seed).await;
        let cancelled = self.backend.cancel_flow_header(header(&flow.id, "cancel_all")).await;
        match cancelled.expect("cancel") {
            CancelFlowHeader::Cancelled { cancellation_policy, member_execution_ids } => {
                assert_eq!(cancellation_policy, "cancel_all");
                assert_eq!(member_execution_ids.len(), 2);
                (flow, member_execution_ids)
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn change_priority_happy_path_emits_operator_event() {
    let f = Fixture::new().await;
    let (id, partition, uuid) = f.insert_solo(&Seed::default()).await;
    let changed = f.backend.change_priority(priority(&id, 5000)).await.expect("change");
    assert!(matches!(changed, ChangePriorityResult::Changed { .. }));
    let sql = "SELECT priority FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2";
    let query = sqlx::query_scalar(sql).bind(partition).bind(uuid);
    let stored: i32 = query.fetch_one(&f.pool).await.expect("the execution");
    assert_eq!(stored, 5000);
    let details = f.details(partition, uuid, "priority_changed").await;
    assert_eq!((&details["old_priority"], &details["new_priority"]), (&100.into(), &5000.into()));
}

/// The log names the caller of a server; the contract's table has the contract's details alone.
#[tokio::test]
async fn details_have_only_what_the_contract_names() {
    let f = Fixture::new().await;
    let (id, partition, uuid) = f.insert_solo(&Seed::default()).await;
    let actor = Actor { token_name: Some("ops".into()), ..Actor::default() };
    let acting = Acting::new(f.backend.clone(), Stamp::operator(&actor));
    let args = ChangePriorityArgs { now: TimestampMs(1_234_567), ..priority(&id, 7) };
    acting.change_priority(args).await.expect("change");
    let details = f.details(partition, uuid, "priority_changed").await;
    assert_eq!(details, serde_json::json!({ "old_priority": 100, "new_priority": 7 }));
}

#[tokio::test]
async fn change_priority_terminal_is_not_eligible() {
    let f = Fixture::new().await;
    let seed = Seed { phase: "terminal", public: "success", ..Seed::default() };
    let (id, _, uuid) = f.insert_solo(&seed).await;
    let refused = f.backend.change_priority(priority(&id, 5000)).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Contention(ContentionKind::ExecutionNotEligible)),
        "{refused:?}"
    );
    assert_eq!(f.operator_events(uuid, "priority_changed").await, 0);
}

#[tokio::test]
async fn change_priority_wrong_eligibility_state_is_not_eligible() {
    let f = Fixture::new().await;
    let seed = Seed { eligibility: "blocked_by_dependencies", ..Seed::default() };
    let (id, ..) = f.insert_solo(&seed).await;
    let refused = f.backend.change_priority(priority(&id, 5000)).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Contention(ContentionKind::ExecutionNotEligible)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn replay_execution_normal_branch_in_place_mutate() {
    let f = Fixture::new().await;
    let seed = Seed {
        phase: "terminal",
        eligibility: "not_applicable",
        public: "success",
        attempt: "attempt_terminal",
        ..Seed::default()
    };
    let (id, partition, uuid) = f.insert_solo(&seed).await;
    f.insert_attempt(partition, uuid, 3, "success").await;
    let replayed = f.backend.replay_execution(replay(&id)).await.expect("replay");
    assert_eq!(replayed, ReplayExecutionResult::Replayed { public_state: PublicState::Waiting });
    let expected = State {
        lifecycle_phase: "runnable".into(),
        eligibility_state: "eligible_now".into(),
        public_state: "waiting".into(),
        attempt_index: 0,
    };
    assert_eq!(f.state(partition, uuid).await, expected);
    let sql = "SELECT raw_fields FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2";
    let query = sqlx::query_scalar(sql).bind(partition).bind(uuid);
    let raw: serde_json::Value = query.fetch_one(&f.pool).await.expect("the execution");
    assert_eq!(raw["replay_count"].as_i64(), Some(1));
    let sql = "SELECT outcome, lease_epoch FROM ff_attempt WHERE partition_key = $1 \
               AND execution_id = $2";
    let query = sqlx::query_as(sql).bind(partition).bind(uuid);
    let attempts: Vec<(Option<String>, i64)> = query.fetch_all(&f.pool).await.expect("attempts");
    assert_eq!(attempts, [(None, 4)]);
    assert_eq!(f.details(partition, uuid, "replayed").await["branch"], "normal");
}

#[tokio::test]
async fn replay_execution_skipped_flow_member_resets_edge_group_counters() {
    let f = Fixture::new().await;
    let flow = Uuid::new_v4();
    let seed = Seed {
        flow: Some(flow),
        phase: "terminal",
        eligibility: "not_applicable",
        public: "skipped",
        attempt: "attempt_terminal",
        ..Seed::default()
    };
    let (id, partition, uuid) = f.insert_solo(&seed).await;
    f.insert_attempt(partition, uuid, 1, "skipped").await;
    let edge = "INSERT INTO ff_edge (partition_key, flow_id, edge_id, upstream_eid, \
                downstream_eid, policy, policy_version) \
                VALUES ($1, $2, $3, $4, $5, '{}'::jsonb, 0)";
    let edge = sqlx::query(edge).bind(partition).bind(flow).bind(Uuid::new_v4());
    let edge = edge.bind(Uuid::new_v4()).bind(uuid);
    edge.execute(&f.pool).await.expect("insert an edge");
    let group = "INSERT INTO ff_edge_group (partition_key, flow_id, downstream_eid, policy, \
                 k_target, success_count, fail_count, skip_count, running_count) \
                 VALUES ($1, $2, $3, '{}'::jsonb, 1, 2, 1, 1, 1)";
    let group = sqlx::query(group).bind(partition).bind(flow).bind(uuid);
    group.execute(&f.pool).await.expect("insert a group");

    let replayed = f.backend.replay_execution(replay(&id)).await.expect("replay");
    let public_state = PublicState::WaitingChildren;
    assert_eq!(replayed, ReplayExecutionResult::Replayed { public_state });
    let sql = "SELECT success_count, fail_count, skip_count, running_count FROM ff_edge_group \
               WHERE partition_key = $1 AND flow_id = $2 AND downstream_eid = $3";
    let query = sqlx::query_as(sql).bind(partition).bind(flow).bind(uuid);
    let counts: (i32, i32, i32, i32) = query.fetch_one(&f.pool).await.expect("the group");
    assert_eq!(counts, (2, 0, 0, 0));
    let expected = State {
        lifecycle_phase: "runnable".into(),
        eligibility_state: "blocked_by_dependencies".into(),
        public_state: "waiting_children".into(),
        attempt_index: 0,
    };
    assert_eq!(f.state(partition, uuid).await, expected);
    let details = f.details(partition, uuid, "replayed").await;
    assert_eq!(details["branch"], "skipped_flow_member");
    assert_eq!(details["groups_reset"].as_i64(), Some(1));
}

#[tokio::test]
async fn replay_execution_non_terminal_is_not_terminal() {
    let f = Fixture::new().await;
    let seed = Seed { phase: "active", public: "running", ..Seed::default() };
    let (id, ..) = f.insert_solo(&seed).await;
    let refused = f.backend.replay_execution(replay(&id)).await.unwrap_err();
    assert!(matches!(refused, EngineError::State(StateKind::ExecutionNotTerminal)), "{refused:?}");
}

#[tokio::test]
async fn cancel_flow_header_creates_backlog_rows() {
    let f = Fixture::new().await;
    let (flow, _) = f.cancelled_flow().await;
    assert_eq!(f.rows_of_flow("ff_cancel_backlog", &flow).await, 1);
    assert_eq!(f.rows_of_flow("ff_cancel_backlog_member", &flow).await, 2);
    assert_eq!(f.operator_events(flow.id.0, "flow_cancel_requested").await, 1);
    for member in &flow.members {
        assert_eq!(f.state(flow.partition, *member).await.lifecycle_phase, "cancelled");
    }
}

#[tokio::test]
async fn cancel_flow_header_already_terminal_is_idempotent() {
    let f = Fixture::new().await;
    let flow = FlowId::new();
    let partition = flow_partition(&flow, &PartitionConfig::default()).index as i16;
    let stored = serde_json::json!({"cancellation_policy": "flow_only", "cancel_reason": "prior"});
    let sql = "INSERT INTO ff_flow_core (partition_key, flow_id, graph_revision, \
               public_flow_state, created_at_ms, raw_fields) \
               VALUES ($1, $2, 0, 'cancelled', 1, $3)";
    let insert = sqlx::query(sql).bind(partition).bind(flow.0).bind(stored);
    insert.execute(&f.pool).await.expect("insert a flow");
    match f.backend.cancel_flow_header(header(&flow, "cancel_all")).await.expect("cancel") {
        CancelFlowHeader::AlreadyTerminal {
            stored_cancellation_policy,
            stored_cancel_reason,
            member_execution_ids,
        } => {
            assert_eq!(stored_cancellation_policy.as_deref(), Some("flow_only"));
            assert_eq!(stored_cancel_reason.as_deref(), Some("prior"));
            assert!(member_execution_ids.is_empty());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn ack_cancel_member_drains_and_deletes_parent_when_last() {
    let f = Fixture::new().await;
    let (flow, members) = f.cancelled_flow().await;
    for (acked, member) in members.iter().enumerate() {
        let member = ExecutionId::parse(member).expect("the wire form");
        f.backend.ack_cancel_member(&flow.id, &member).await.expect("ack");
        let left = 1 - acked as i64;
        assert_eq!(f.rows_of_flow("ff_cancel_backlog_member", &flow).await, left);
        assert_eq!(f.rows_of_flow("ff_cancel_backlog", &flow).await, left);
    }
    let sql = "SELECT count(*) FROM ff_operator_event WHERE execution_id = $1";
    for member in &flow.members {
        let query = sqlx::query_scalar(sql).bind(member.to_string());
        let events: i64 = query.fetch_one(&f.pool).await.expect("count");
        assert_eq!(events, 0);
    }
}

#[tokio::test]
async fn ack_cancel_member_idempotent_on_missing() {
    let f = Fixture::new().await;
    let stranger = ExecutionId::parse(&format!("{{fp:0}}:{}", Uuid::new_v4())).unwrap();
    f.backend.ack_cancel_member(&FlowId::new(), &stranger).await.expect("nothing to do");
}
