//! The contract's schema and behaviours on SQLite, with rows written by hand as its users do.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ff_backend_sqlite::SqliteBackend;
use ff_core::backend::{CancelFlowPolicy, CancelFlowWait, CapabilitySet, ClaimPolicy, Handle};
use ff_core::contracts::{
    Actor, CancelExecutionArgs, CancelExecutionResult, CancelFlowArgs, CancelFlowHeader,
    CancelFlowResult, ChangePriorityArgs, ChangePriorityResult, CreateExecutionArgs,
    CreateExecutionResult, ReplayExecutionArgs, ReplayExecutionResult, RevokeLeaseArgs,
    RevokeLeaseResult, Stamp, Submission, SubmitOutcome,
};
use ff_core::engine_backend::{Acting, EngineBackend};
use ff_core::engine_error::{ContentionKind, EngineError, StateKind};
use ff_core::state::PublicState;
use ff_core::types::{
    CancelSource, ExecutionId, FlowId, LaneId, LeaseEpoch, Namespace, TimestampMs, WorkerId,
    WorkerInstanceId,
};
use uuid::Uuid;

async fn backend() -> Arc<SqliteBackend> {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let thread = std::thread::current().id();
    let uri = format!("file:contract-{nanos}-{thread:?}?mode=memory&cache=shared");
    SqliteBackend::new(&uri).await.expect("open")
}

fn id() -> (ExecutionId, Uuid) {
    let uuid = Uuid::new_v4();
    (ExecutionId::parse(&format!("{{fp:0}}:{uuid}")).unwrap(), uuid)
}

async fn create(backend: &SqliteBackend, id: &ExecutionId) {
    let args = CreateExecutionArgs {
        execution_id: id.clone(),
        namespace: Namespace::new("default"),
        lane_id: LaneId::new("default"),
        execution_kind: "op".into(),
        input_payload: vec![],
        payload_encoding: None,
        priority: 0,
        creator_identity: "test".into(),
        idempotency_key: None,
        tags: Default::default(),
        policy: None,
        delay_until: None,
        execution_deadline_at: None,
        partition_id: 0,
        now: TimestampMs::now(),
    };
    let created = backend.create_execution(args).await.expect("create");
    assert!(matches!(created, CreateExecutionResult::Created { .. }));
}

async fn create_runnable(backend: &SqliteBackend) -> (ExecutionId, Uuid) {
    let (id, uuid) = id();
    create(backend, &id).await;
    sqlx::query(
        "UPDATE ff_exec_core SET lifecycle_phase = 'runnable', public_state = 'pending', \
         attempt_state = 'initial' WHERE partition_key = 0 AND execution_id = ?1",
    )
    .bind(uuid)
    .execute(backend.pool_for_test())
    .await
    .expect("make it runnable");
    (id, uuid)
}

async fn claim(backend: &SqliteBackend) -> Handle {
    let worker = WorkerInstanceId::new("w1-i1");
    let policy = ClaimPolicy::new(WorkerId::new("w1"), worker, 30_000, None);
    let lane = LaneId::new("default");
    let claimed = backend.claim(&lane, &CapabilitySet::default(), policy).await.expect("claim");
    claimed.expect("there is work")
}

async fn create_and_claim(backend: &SqliteBackend) -> (ExecutionId, Uuid, Handle) {
    let (id, uuid) = create_runnable(backend).await;
    let handle = claim(backend).await;
    (id, uuid, handle)
}

async fn phase(backend: &SqliteBackend, uuid: Uuid) -> String {
    let sql = "SELECT lifecycle_phase FROM ff_exec_core WHERE partition_key = 0 \
               AND execution_id = ?1";
    sqlx::query_scalar(sql).bind(uuid).fetch_one(backend.pool_for_test()).await.expect("phase")
}

async fn count(backend: &SqliteBackend, table: &str, subject: Uuid) -> i64 {
    let sql = format!("SELECT count(*) FROM {table} WHERE execution_id = ?1 AND partition_key = 0");
    let query = sqlx::query_scalar(&sql).bind(subject.to_string());
    query.fetch_one(backend.pool_for_test()).await.expect("count")
}

async fn rows_of_flow(backend: &SqliteBackend, table: &str, flow: FlowId) -> i64 {
    let sql = format!("SELECT count(*) FROM {table} WHERE flow_id = ?1");
    sqlx::query_scalar(&sql).bind(flow.0).fetch_one(backend.pool_for_test()).await.expect("count")
}

fn cancel_args(id: &ExecutionId, source: CancelSource) -> CancelExecutionArgs {
    CancelExecutionArgs {
        execution_id: id.clone(),
        reason: "test".into(),
        source,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now: TimestampMs::now(),
    }
}

#[tokio::test]
async fn cancel_ends_a_claimed_execution_once() {
    let backend = backend().await;
    let (id, uuid, _) = create_and_claim(&backend).await;
    let args = cancel_args(&id, CancelSource::OperatorOverride);
    let (first, second) =
        tokio::join!(backend.cancel_execution(args.clone()), backend.cancel_execution(args));
    for cancelled in [first, second] {
        let CancelExecutionResult::Cancelled { public_state, .. } = cancelled.expect("cancel");
        assert_eq!(public_state, PublicState::Cancelled);
    }
    assert_eq!(phase(&backend, uuid).await, "cancelled");
    assert_eq!(count(&backend, "ff_operator_event", uuid).await, 0);
    assert_eq!(count(&backend, "ff_lease_event", uuid).await, 2);
}

#[tokio::test]
async fn cancel_by_a_holder_needs_its_fence() {
    let backend = backend().await;
    let (id, _, _) = create_and_claim(&backend).await;
    let mut args = cancel_args(&id, CancelSource::LeaseHolder);
    let refused = backend.cancel_execution(args.clone()).await.unwrap_err();
    assert!(matches!(refused, EngineError::Validation { .. }), "{refused:?}");
    args.lease_epoch = Some(LeaseEpoch(999_999));
    let refused = backend.cancel_execution(args).await.unwrap_err();
    assert!(matches!(refused, EngineError::State(StateKind::StaleLease)), "{refused:?}");
}

async fn revoke(backend: &SqliteBackend, id: &ExecutionId, worker: &str) -> RevokeLeaseResult {
    let args = RevokeLeaseArgs {
        execution_id: id.clone(),
        expected_lease_id: None,
        worker_instance_id: WorkerInstanceId::new(worker),
        reason: "test".into(),
    };
    backend.revoke_lease(args).await.expect("revoke")
}

#[tokio::test]
async fn revoke_takes_the_lease_of_the_named_worker_only() {
    let backend = backend().await;
    let (waiting, _) = create_runnable(&backend).await;
    let reason = |r: &RevokeLeaseResult| match r {
        RevokeLeaseResult::AlreadySatisfied { reason } => reason.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&revoke(&backend, &waiting, "w1-i1").await), "no_active_lease");
    let handle = claim(&backend).await;
    let (id, uuid) = (handle.execution_id(), handle.execution_id().uuid());
    let other = revoke(&backend, &id, "w2-i1").await;
    assert_eq!(reason(&other), "different_worker_instance_id");
    let revoked = revoke(&backend, &id, "w1-i1").await;
    assert!(matches!(revoked, RevokeLeaseResult::Revoked { .. }), "{revoked:?}");
    assert_eq!(count(&backend, "ff_lease_event", uuid).await, 2);
    assert_eq!(phase(&backend, uuid).await, "runnable");
}

#[tokio::test]
async fn priority_changes_only_while_it_waits() {
    let backend = backend().await;
    let (fresh, _) = id();
    create(&backend, &fresh).await;
    let args = |id: &ExecutionId| ChangePriorityArgs {
        execution_id: id.clone(),
        new_priority: 42,
        lane_id: LaneId::new("another"),
        now: TimestampMs::now(),
    };
    let refused = backend.change_priority(args(&fresh)).await.unwrap_err();
    let not_eligible = EngineError::Contention(ContentionKind::ExecutionNotEligible);
    assert_eq!(refused.code(), not_eligible.code());

    let (id, uuid) = create_runnable(&backend).await;
    let changed = backend.change_priority(args(&id)).await.expect("change");
    assert!(matches!(changed, ChangePriorityResult::Changed { .. }));
    let sql = "SELECT priority FROM ff_exec_core WHERE execution_id = ?1";
    let priority: i64 =
        sqlx::query_scalar(sql).bind(uuid).fetch_one(backend.pool_for_test()).await.unwrap();
    assert_eq!(priority, 42);
    assert_eq!(count(&backend, "ff_operator_event", uuid).await, 1);
}

#[tokio::test]
async fn replay_reopens_a_finished_execution() {
    let backend = backend().await;
    let (id, uuid, handle) = create_and_claim(&backend).await;
    let args = |id: &ExecutionId| ReplayExecutionArgs {
        execution_id: id.clone(),
        now: TimestampMs::now(),
    };
    let refused = backend.replay_execution(args(&id)).await.unwrap_err();
    assert!(matches!(refused, EngineError::State(StateKind::ExecutionNotTerminal)));
    backend.complete(&handle, None).await.expect("complete");
    assert_eq!(phase(&backend, uuid).await, "terminal");
    let replayed = backend.replay_execution(args(&id)).await.expect("replay");
    assert_eq!(replayed, ReplayExecutionResult::Replayed { public_state: PublicState::Waiting });
    assert_eq!(phase(&backend, uuid).await, "runnable");
    let sql = "SELECT json_extract(raw_fields, '$.replay_count') FROM ff_exec_core \
               WHERE execution_id = ?1";
    let replays: i64 =
        sqlx::query_scalar(sql).bind(uuid).fetch_one(backend.pool_for_test()).await.unwrap();
    assert_eq!(replays, 1);
    assert_eq!(count(&backend, "ff_operator_event", uuid).await, 1);
}

#[tokio::test]
async fn replay_of_a_skipped_member_resets_its_edge_groups() {
    let backend = backend().await;
    let (id, uuid, _) = create_and_claim(&backend).await;
    let pool = backend.pool_for_test();
    let flow = Uuid::new_v4();
    let sql = "UPDATE ff_exec_core SET lifecycle_phase = 'terminal', public_state = 'skipped', \
               flow_id = ?1 WHERE execution_id = ?2";
    sqlx::query(sql).bind(flow).bind(uuid).execute(pool).await.unwrap();
    let sql = "UPDATE ff_attempt SET outcome = 'skipped' WHERE execution_id = ?1";
    sqlx::query(sql).bind(uuid).execute(pool).await.unwrap();
    let sql = "INSERT INTO ff_edge (partition_key, flow_id, edge_id, upstream_eid, \
               downstream_eid, policy, policy_version) VALUES (0, ?1, ?2, ?3, ?4, '{}', 0)";
    let (edge, upstream) = (Uuid::new_v4(), Uuid::new_v4());
    let insert = sqlx::query(sql).bind(flow).bind(edge).bind(upstream).bind(uuid);
    insert.execute(pool).await.unwrap();
    let sql = "INSERT INTO ff_edge_group (partition_key, flow_id, downstream_eid, policy, \
               k_target, success_count, fail_count, skip_count, running_count) \
               VALUES (0, ?1, ?2, '{}', 1, 3, 5, 7, 2)";
    sqlx::query(sql).bind(flow).bind(uuid).execute(pool).await.unwrap();

    let args = ReplayExecutionArgs { execution_id: id, now: TimestampMs::now() };
    let replayed = backend.replay_execution(args).await.expect("replay");
    let public_state = PublicState::WaitingChildren;
    assert_eq!(replayed, ReplayExecutionResult::Replayed { public_state });
    let sql = "SELECT success_count, fail_count, skip_count, running_count FROM ff_edge_group \
               WHERE downstream_eid = ?1";
    let counts: (i64, i64, i64, i64) =
        sqlx::query_as(sql).bind(uuid).fetch_one(pool).await.unwrap();
    assert_eq!(counts, (3, 0, 0, 0));
    let sql = "SELECT details FROM ff_operator_event WHERE execution_id = ?1";
    let details: String =
        sqlx::query_scalar(sql).bind(uuid.to_string()).fetch_one(pool).await.unwrap();
    assert!(details.contains("skipped_flow_member"), "{details}");
}

async fn flow_with_members(backend: &SqliteBackend, members: usize) -> (FlowId, Vec<Uuid>) {
    let flow = FlowId::new();
    let pool = backend.pool_for_test();
    let sql = "INSERT INTO ff_flow_core (partition_key, flow_id, graph_revision, \
               public_flow_state, created_at_ms, raw_fields) VALUES (0, ?1, 0, 'open', 1, '{}')";
    sqlx::query(sql).bind(flow.0).execute(pool).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..members {
        let id = Uuid::new_v4();
        let sql = "INSERT INTO ff_exec_core (partition_key, execution_id, flow_id, lane_id, \
                   attempt_index, lifecycle_phase, ownership_state, eligibility_state, \
                   public_state, attempt_state, priority, created_at_ms, raw_fields) VALUES \
                   (0, ?1, ?2, 'default', 0, 'active', 'leased', 'not_applicable', 'running', \
                   'running_attempt', 0, 1, '{}')";
        sqlx::query(sql).bind(id).bind(flow.0).execute(pool).await.unwrap();
        ids.push(id);
    }
    (flow, ids)
}

fn header_args(flow: FlowId) -> CancelFlowArgs {
    CancelFlowArgs {
        flow_id: flow,
        reason: "stop".into(),
        cancellation_policy: "cancel_all".into(),
        now: TimestampMs::now(),
    }
}

#[tokio::test]
async fn header_cancel_leaves_a_backlog_that_acks_drain() {
    let backend = backend().await;
    let (flow, ids) = flow_with_members(&backend, 3).await;
    let header = backend.cancel_flow_header(header_args(flow)).await.expect("cancel");
    let CancelFlowHeader::Cancelled { cancellation_policy, member_execution_ids } = header else {
        panic!("{header:?}");
    };
    assert_eq!(cancellation_policy, "cancel_all");
    assert_eq!(member_execution_ids.len(), 3);
    assert_eq!(rows_of_flow(&backend, "ff_cancel_backlog", flow).await, 1);
    assert_eq!(rows_of_flow(&backend, "ff_cancel_backlog_member", flow).await, 3);
    assert_eq!(count(&backend, "ff_operator_event", flow.0).await, 1);
    for id in ids {
        assert_eq!(phase(&backend, id).await, "cancelled");
        assert_eq!(count(&backend, "ff_operator_event", id).await, 0);
    }
    for (acked, member) in member_execution_ids.iter().enumerate() {
        let member = ExecutionId::parse(member).unwrap();
        backend.ack_cancel_member(&flow, &member).await.expect("ack");
        let left = 2 - acked as i64;
        assert_eq!(rows_of_flow(&backend, "ff_cancel_backlog_member", flow).await, left);
        let header = i64::from(left > 0);
        assert_eq!(rows_of_flow(&backend, "ff_cancel_backlog", flow).await, header);
    }
    let again = backend.cancel_flow_header(header_args(flow)).await.expect("again");
    assert!(matches!(again, CancelFlowHeader::AlreadyTerminal { .. }), "{again:?}");
}

#[tokio::test]
async fn header_cancel_of_an_ended_flow_tells_what_is_stored() {
    let backend = backend().await;
    let flow = FlowId::new();
    let sql = "INSERT INTO ff_flow_core (partition_key, flow_id, graph_revision, \
               public_flow_state, created_at_ms, raw_fields) VALUES (0, ?1, 0, 'cancelled', 1, \
               '{\"cancellation_policy\":\"flow_only\",\"cancel_reason\":\"prior\"}')";
    sqlx::query(sql).bind(flow.0).execute(backend.pool_for_test()).await.unwrap();
    let told = backend.cancel_flow_header(header_args(flow)).await.expect("cancel");
    let expected = CancelFlowHeader::AlreadyTerminal {
        stored_cancellation_policy: Some("flow_only".into()),
        stored_cancel_reason: Some("prior".into()),
        member_execution_ids: vec![],
    };
    assert_eq!(told, expected);
    let (stranger, _) = id();
    backend.ack_cancel_member(&FlowId::new(), &stranger).await.expect("nothing to do");
}

#[tokio::test]
async fn cancel_flow_reaches_its_members_and_erases_outcomes() {
    let backend = backend().await;
    let (flow, ids) = flow_with_members(&backend, 1).await;
    let sql = "INSERT INTO ff_attempt (partition_key, execution_id, attempt_index, lease_epoch, \
               outcome) VALUES (0, ?1, 0, 1, 'retry')";
    sqlx::query(sql).bind(ids[0]).execute(backend.pool_for_test()).await.unwrap();
    let policy = CancelFlowPolicy::CancelAll;
    let done = backend.cancel_flow(&flow, policy, CancelFlowWait::WaitIndefinite).await;
    assert!(matches!(done.expect("cancel"), CancelFlowResult::Cancelled { .. }));
    let sql = "SELECT outcome FROM ff_attempt WHERE execution_id = ?1";
    let query = sqlx::query_scalar(sql).bind(ids[0]);
    let outcome: Option<String> = query.fetch_one(backend.pool_for_test()).await.unwrap();
    assert_eq!(outcome, None);
    let missing = backend.cancel_flow(&FlowId::new(), policy, CancelFlowWait::NoWait).await;
    assert!(matches!(missing, Err(EngineError::NotFound { entity: "flow" })));
}

#[tokio::test]
async fn the_same_uuid_under_another_partition_is_refused_alone() {
    let backend = backend().await;
    let (id, uuid) = id();
    create(&backend, &id).await;
    let twin = ExecutionId::parse(&format!("{{fp:1}}:{uuid}")).unwrap();
    let items = vec![Submission::new("l", "k"), Submission::new("l", "k").id(twin.clone())];
    let outcomes = backend.submit(items).await.expect("the call itself is fine");
    assert!(matches!(outcomes[0], SubmitOutcome::Created { .. }));
    let SubmitOutcome::Refused(error) = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
    assert_eq!(error.code(), "execution_id_reused");
    assert!(backend.describe_execution(&twin).await.unwrap().is_none());
}

#[tokio::test]
async fn a_row_that_cannot_be_read_stops_nobody_else() {
    let backend = backend().await;
    let (_, broken) = create_runnable(&backend).await;
    let (_, _) = create_runnable(&backend).await;
    let sql = "UPDATE ff_exec_core SET home_partition = -5 WHERE execution_id = ?1";
    sqlx::query(sql).bind(broken).execute(backend.pool_for_test()).await.unwrap();
    let handle = claim(&backend).await;
    assert_ne!(handle.execution_id().uuid(), broken);
    backend.complete(&handle, None).await.expect("complete");
}

#[tokio::test]
async fn an_attempt_that_was_put_there_by_hand_is_taken_over() {
    let backend = backend().await;
    let (_, uuid) = create_runnable(&backend).await;
    let sql = "INSERT INTO ff_attempt (partition_key, execution_id, attempt_index, lease_epoch, \
               outcome) VALUES (0, ?1, 0, 7, 'retry')";
    sqlx::query(sql).bind(uuid).execute(backend.pool_for_test()).await.unwrap();
    let handle = claim(&backend).await;
    assert_eq!((handle.attempt_index(), handle.lease_epoch()), (0, LeaseEpoch(8)));
}

/// What an execution's lease events say, and when they happened.
async fn lease_events(backend: &SqliteBackend, id: Uuid) -> Vec<(String, i64, Option<String>)> {
    let sql = "SELECT event_type, occurred_at_ms, instance_tag FROM ff_lease_event \
               WHERE execution_id = ?1 ORDER BY event_id";
    let query = sqlx::query_as(sql).bind(id.to_string());
    query.fetch_all(backend.pool_for_test()).await.expect("lease events")
}

fn revoke_args(id: &ExecutionId, expected: Option<String>) -> RevokeLeaseArgs {
    RevokeLeaseArgs {
        execution_id: id.clone(),
        expected_lease_id: expected,
        worker_instance_id: WorkerInstanceId::new(""),
        reason: "test".into(),
    }
}

/// As somebody writes a lease who knows no expiry.
async fn clear_expiry(backend: &SqliteBackend, id: Uuid) {
    let sql = "UPDATE ff_attempt SET lease_expires_at_ms = NULL WHERE execution_id = ?1";
    sqlx::query(sql).bind(id).execute(backend.pool_for_test()).await.expect("clear");
}

#[tokio::test]
async fn a_lease_is_active_without_an_expiry() {
    let backend = backend().await;
    let (id, uuid, _) = create_and_claim(&backend).await;
    clear_expiry(&backend, uuid).await;
    let lease_id = format!("sqlite:{uuid}:0:1");
    let revoked = backend.revoke_lease(revoke_args(&id, Some(lease_id.clone()))).await;
    let lease_epoch = "2".to_owned();
    assert_eq!(revoked.expect("revoke"), RevokeLeaseResult::Revoked { lease_id, lease_epoch });
    claim(&backend).await;
    clear_expiry(&backend, uuid).await;
    let tag = "UPDATE ff_exec_core SET tags = '{\"cairn.instance_id\": \"i-7\"}'";
    sqlx::query(tag).execute(backend.pool_for_test()).await.expect("tag");
    let args = cancel_args(&id, CancelSource::OperatorOverride);
    let args = CancelExecutionArgs { now: TimestampMs(1_234_567), ..args };
    backend.cancel_execution(args).await.expect("cancel");
    let events = lease_events(&backend, uuid).await;
    let words: Vec<_> = events.iter().map(|(word, ..)| word.as_str()).collect();
    assert_eq!(words, ["acquired", "revoked", "acquired", "revoked"]);
    assert_eq!(events[3], ("revoked".to_owned(), 1_234_567, Some("i-7".to_owned())));
}

#[tokio::test]
async fn a_header_ends_no_lease_and_leaves_nothing_to_revoke() {
    let backend = backend().await;
    let (flow, _) = flow_with_members(&backend, 0).await;
    let (id, uuid) = create_runnable(&backend).await;
    let join = "UPDATE ff_exec_core SET flow_id = ?1";
    sqlx::query(join).bind(flow.0).execute(backend.pool_for_test()).await.expect("join");
    claim(&backend).await;
    let args = CancelFlowArgs { now: TimestampMs(1_234_567), ..header_args(flow) };
    backend.cancel_flow_header(args).await.expect("cancel");
    assert_eq!(phase(&backend, uuid).await, "cancelled");
    let revoked = backend.revoke_lease(revoke_args(&id, None)).await.expect("revoke");
    let reason = "no_active_lease".to_owned();
    assert_eq!(revoked, RevokeLeaseResult::AlreadySatisfied { reason });
    let events = lease_events(&backend, uuid).await;
    let words: Vec<_> = events.iter().map(|(word, ..)| word.as_str()).collect();
    assert_eq!(words, ["acquired"], "the header writes no lease event, nor does the revoke");
    let sql = "SELECT occurred_at_ms, details FROM ff_operator_event WHERE execution_id = ?1";
    let query = sqlx::query_as(sql).bind(flow.0.to_string());
    let (at, details): (i64, String) =
        query.fetch_one(backend.pool_for_test()).await.expect("the event");
    assert_eq!(at, 1_234_567);
    assert!(details.contains("\"member_count\":1") && !details.contains("asked_at"), "{details}");
}

#[tokio::test]
async fn completions_are_named_as_the_reference_names_them() {
    let backend = backend().await;
    let (_, uuid, handle) = create_and_claim(&backend).await;
    backend.complete(&handle, None).await.expect("complete");
    let sql = "SELECT outcome FROM ff_completion_event WHERE execution_id = ?1";
    let query = sqlx::query_scalar(sql).bind(uuid.to_string());
    let outcome: String = query.fetch_one(backend.pool_for_test()).await.expect("the event");
    assert_eq!(outcome, "success");
}

/// Words that only other programs write are read as what they mean, and such work is handed out.
#[tokio::test]
async fn rows_with_words_of_the_reference_are_worked_on() {
    let backend = backend().await;
    for (phase, eligibility) in [("eligible", "eligible_now"), ("runnable", "pending_claim")] {
        let uuid = Uuid::new_v4();
        let sql = "INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, \
                   attempt_index, lifecycle_phase, ownership_state, eligibility_state, \
                   public_state, attempt_state, priority, created_at_ms, raw_fields) VALUES \
                   (0, ?1, 'default', 0, ?2, 'unowned', ?3, 'waiting', 'pending', 0, 1, '{}')";
        let insert = sqlx::query(sql).bind(uuid).bind(phase).bind(eligibility);
        insert.execute(backend.pool_for_test()).await.unwrap();
        backend.engine().sweep().await.expect("sweep");
        assert_eq!(claim(&backend).await.execution_id().uuid(), uuid);
    }
}

/// The log names the caller of a server; the contract's table has the contract's details alone.
#[tokio::test]
async fn details_have_only_what_the_contract_names() {
    let backend = backend().await;
    let (id, uuid) = create_runnable(&backend).await;
    let actor = Actor { token_name: Some("ops".into()), ..Actor::default() };
    let acting = Acting::new(backend.clone(), Stamp::operator(&actor));
    let (lane_id, now) = (LaneId::new("default"), TimestampMs(1_234_567));
    let args = ChangePriorityArgs { execution_id: id, new_priority: 7, lane_id, now };
    acting.change_priority(args).await.expect("change");
    let sql = "SELECT details FROM ff_operator_event WHERE execution_id = ?1";
    let query = sqlx::query_scalar(sql).bind(uuid.to_string());
    let details: String = query.fetch_one(backend.pool_for_test()).await.expect("the event");
    let details: serde_json::Value = serde_json::from_str(&details).expect("JSON");
    assert_eq!(details, serde_json::json!({ "old_priority": 0, "new_priority": 7 }));
}
