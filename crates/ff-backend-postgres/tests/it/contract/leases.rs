//! Leases as operators see them: their ids, when one is active, and the rows of their events.

use ff_core::contracts::{CancelExecutionArgs, CancelFlowArgs, RevokeLeaseArgs, RevokeLeaseResult};
use ff_core::engine_error::EngineError;
use ff_core::types::{CancelSource, ExecutionId, TimestampMs, WorkerInstanceId};
use uuid::Uuid;

use super::{Fixture, Seed};

const ACTIVE: Seed<'_> = Seed {
    flow: None,
    lane: "default",
    phase: "active",
    eligibility: "not_applicable",
    public: "running",
    attempt: "running_attempt",
};

impl Fixture {
    /// A lease as the reference writes it by hand: no expiry.
    async fn insert_lease(&self, partition: i16, id: Uuid, worker: &str, epoch: i64) {
        let sql = "INSERT INTO ff_attempt (partition_key, execution_id, attempt_index, \
                   lease_epoch, worker_instance_id) VALUES ($1, $2, 0, $3, $4)";
        let insert = sqlx::query(sql).bind(partition).bind(id).bind(epoch).bind(worker);
        insert.execute(&self.pool).await.expect("insert a lease");
    }

    async fn insert_leased(&self) -> (ExecutionId, Uuid) {
        let (id, partition, uuid) = self.insert_solo(&ACTIVE).await;
        self.insert_lease(partition, uuid, "w1-i1", 3).await;
        (id, uuid)
    }

    /// Type, time and tag of an execution's lease events.
    async fn lease_events(&self, id: Uuid) -> Vec<(String, i64, Option<String>)> {
        let sql = "SELECT event_type, occurred_at_ms, instance_tag FROM ff_lease_event \
                   WHERE execution_id = $1 ORDER BY event_id";
        let query = sqlx::query_as(sql).bind(id.to_string());
        query.fetch_all(&self.pool).await.expect("lease events")
    }

    async fn revoke(&self, id: &ExecutionId, expected: Option<String>) -> RevokeLeaseResult {
        let args = RevokeLeaseArgs {
            execution_id: id.clone(),
            expected_lease_id: expected,
            worker_instance_id: WorkerInstanceId::new(""),
            reason: "asked for".into(),
        };
        self.backend.revoke_lease(args).await.expect("revoke")
    }
}

fn satisfied(reason: &str) -> RevokeLeaseResult {
    RevokeLeaseResult::AlreadySatisfied { reason: reason.into() }
}

#[tokio::test]
async fn lease_ids_begin_with_pg() {
    let f = Fixture::new().await;
    // Ids with the full name were handed out by earlier versions.
    for prefix in ["pg", "postgres"] {
        let (id, uuid) = f.insert_leased().await;
        let wrong = format!("pg:{uuid}:0:4");
        assert_eq!(f.revoke(&id, Some(wrong)).await, satisfied("lease_id_mismatch"));
        let revoked = f.revoke(&id, Some(format!("{prefix}:{uuid}:0:3"))).await;
        let (lease_id, lease_epoch) = (format!("pg:{uuid}:0:3"), "4".to_owned());
        assert_eq!(revoked, RevokeLeaseResult::Revoked { lease_id, lease_epoch });
        assert_eq!(f.revoke(&id, None).await, satisfied("no_active_lease"));
    }
}

#[tokio::test]
async fn a_lease_is_active_without_an_expiry() {
    let f = Fixture::new().await;
    let (id, uuid) = f.insert_leased().await;
    let args = CancelExecutionArgs {
        execution_id: id.clone(),
        reason: "asked for".into(),
        source: CancelSource::LeaseHolder,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now: TimestampMs(1_234_567),
    };
    let refused = f.backend.cancel_execution(args.clone()).await.unwrap_err();
    assert!(matches!(refused, EngineError::Validation { .. }), "{refused:?}");
    let tag = "UPDATE ff_exec_core SET tags = '{\"cairn.instance_id\": \"i-7\"}' \
               WHERE execution_id = $1";
    sqlx::query(tag).bind(uuid).execute(&f.pool).await.expect("tag");
    let source = CancelSource::OperatorOverride;
    f.backend.cancel_execution(CancelExecutionArgs { source, ..args }).await.expect("cancel");
    let revoked = ("revoked".to_owned(), 1_234_567, Some("i-7".to_owned()));
    assert_eq!(f.lease_events(uuid).await, [revoked]);
    let sql = "SELECT outcome, terminal_at_ms, lease_epoch, worker_instance_id \
               FROM ff_attempt WHERE execution_id = $1";
    let attempt: (Option<String>, Option<i64>, i64, Option<String>) =
        sqlx::query_as(sql).bind(uuid).fetch_one(&f.pool).await.expect("the attempt");
    assert_eq!(attempt, (Some("cancelled".into()), Some(1_234_567), 4, None));
}

#[tokio::test]
async fn a_header_ends_no_lease_and_leaves_nothing_to_revoke() {
    let f = Fixture::new().await;
    let flow = f.insert_flow("open", 1, &ACTIVE).await;
    let member = flow.members[0];
    f.insert_lease(flow.partition, member, "w1-i1", 3).await;
    let args = CancelFlowArgs {
        flow_id: flow.id,
        reason: "asked for".into(),
        cancellation_policy: "cancel_all".into(),
        now: TimestampMs(1_234_567),
    };
    f.backend.cancel_flow_header(args).await.expect("cancel");
    assert_eq!(f.lease_events(member).await, []);
    let sql = "SELECT occurred_at_ms, details FROM ff_operator_event WHERE execution_id = $1";
    let query = sqlx::query_as(sql).bind(flow.id.0.to_string());
    let (at, details): (i64, serde_json::Value) = query.fetch_one(&f.pool).await.expect("event");
    assert_eq!(at, 1_234_567);
    let expected = serde_json::json!({
        "flow_id": flow.id.0.to_string(),
        "cancellation_policy": "cancel_all",
        "reason": "asked for",
        "member_count": 1,
    });
    assert_eq!(details, expected);
    let id = ExecutionId::parse(&format!("{{fp:{}}}:{member}", flow.partition)).unwrap();
    assert_eq!(f.revoke(&id, None).await, satisfied("no_active_lease"));
    assert_eq!(f.lease_events(member).await, []);
    let sql = "SELECT lease_epoch, worker_instance_id FROM ff_attempt WHERE execution_id = $1";
    let attempt: (i64, String) =
        sqlx::query_as(sql).bind(member).fetch_one(&f.pool).await.expect("the attempt");
    assert_eq!(attempt, (3, "w1-i1".to_owned()));
}

#[tokio::test]
async fn a_reclaim_has_an_event_of_its_own() {
    let f = Fixture::new().await;
    let lane = format!("reclaimed-{}", Uuid::new_v4().simple());
    let (_, _, uuid) = f.insert_solo(&Seed { lane: &lane, ..Seed::default() }).await;
    let handle = f.claim(&lane).await.expect("the first claim");
    // As if its worker had died long ago.
    let lapse = "UPDATE ff_attempt SET lease_expires_at_ms = 1 WHERE execution_id = $1";
    sqlx::query(lapse).bind(uuid).execute(&f.pool).await.expect("lapse");
    let timer = "INSERT INTO ff_timer SELECT 1, kind, subject, members FROM ff_timer \
                 WHERE kind = 'lease' AND position($1 IN members) > 0";
    let timer = sqlx::query(timer).bind(uuid.as_bytes().as_slice());
    assert_eq!(timer.execute(&f.pool).await.expect("timer").rows_affected(), 1);
    while f.claim(&lane).await.is_none() {
        f.backend.engine().sweep().await.expect("sweep");
    }
    let events: Vec<_> = f.lease_events(uuid).await.into_iter().map(|event| event.0).collect();
    assert_eq!(events, ["acquired", "expired", "reclaimed"], "{handle:?}");
}

#[tokio::test]
async fn completions_are_named_as_the_reference_names_them() {
    let f = Fixture::new().await;
    let lane = format!("completed-{}", Uuid::new_v4().simple());
    let (_, _, uuid) = f.insert_solo(&Seed { lane: &lane, ..Seed::default() }).await;
    let handle = f.claim(&lane).await.expect("claim");
    f.backend.complete(&handle, None).await.expect("complete");
    let sql = "SELECT outcome FROM ff_completion_event WHERE execution_id = $1";
    let query = sqlx::query_scalar(sql).bind(uuid.to_string());
    let outcome: String = query.fetch_one(&f.pool).await.expect("event");
    assert_eq!(outcome, "success");
}

/// Words that only other programs write are read as what they mean, and such work is handed out.
#[tokio::test]
async fn rows_with_words_of_the_reference_are_worked_on() {
    let f = Fixture::new().await;
    for (phase, eligibility) in [("eligible", "eligible_now"), ("runnable", "pending_claim")] {
        let lane = format!("words-{}", Uuid::new_v4().simple());
        let seed = Seed { lane: &lane, phase, eligibility, ..Seed::default() };
        let (_, _, uuid) = f.insert_solo(&seed).await;
        f.backend.engine().sweep().await.expect("sweep");
        let handle = f.claim(&lane).await.expect("the work is handed out");
        assert_eq!(handle.execution_id().uuid(), uuid);
    }
    let (id, _, uuid) = f.insert_solo(&Seed { phase: "eligible", ..Seed::default() }).await;
    let args = CancelExecutionArgs {
        execution_id: id,
        reason: "asked for".into(),
        source: CancelSource::LeaseHolder,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now: TimestampMs::now(),
    };
    f.backend.cancel_execution(args).await.expect("no lease, no fence");
    assert_eq!(f.lease_events(uuid).await, []);
}
