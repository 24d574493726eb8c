//! What a first claim writes, and what cancelling a flow erases.

use std::time::Duration;

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait, CapabilitySet, ClaimPolicy, Handle};
use ff_core::contracts::CancelFlowResult;
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};
use uuid::Uuid;

use super::{Fixture, Flow, Seed};

impl Fixture {
    pub(super) async fn claim(&self, lane: &str) -> Option<Handle> {
        let instance = WorkerInstanceId::new("w1-i1");
        let wait = Some(Duration::from_millis(100));
        let policy = ClaimPolicy::new(WorkerId::new("w1"), instance, 60_000, wait);
        let (lane, capabilities) = (LaneId::new(lane), CapabilitySet::default());
        self.backend.claim(&lane, &capabilities, policy).await.expect("claim")
    }

    async fn is_announced(&self, partition: i16, id: Uuid) -> bool {
        let sql = "SELECT announced FROM ff_exec_core WHERE partition_key = $1 \
                   AND execution_id = $2";
        let query = sqlx::query_scalar(sql).bind(partition).bind(id);
        query.fetch_one(&self.pool).await.expect("the execution")
    }

    async fn started_at(&self, partition: i16, id: Uuid) -> Option<i64> {
        let sql = "SELECT started_at_ms FROM ff_exec_core WHERE partition_key = $1 \
                   AND execution_id = $2";
        let query = sqlx::query_scalar(sql).bind(partition).bind(id);
        query.fetch_one(&self.pool).await.expect("the execution")
    }
}

/// A lane that no other test claims from.
fn own_lane(name: &str) -> String {
    format!("{name}-{}", Uuid::new_v4().simple())
}

/// As somebody leaves it who sets the attempt's state before there is an attempt.
fn runnable(lane: &str) -> Seed<'_> {
    Seed { lane, attempt: "running_attempt", ..Seed::default() }
}

#[tokio::test]
async fn cancel_flow_clears_member_attempt_outcome() {
    let f = Fixture::new().await;
    let flow = f.insert_flow("open", 1, &runnable("default")).await;
    f.insert_attempt(flow.partition, flow.members[0], 1, "retry").await;
    cancelled_flow_has_no_outcome(&f, &flow).await;
}

/// An engine may find a row before whoever writes by hand comes to its attempt.
#[tokio::test]
async fn cancel_flow_clears_the_outcome_of_a_member_that_was_announced() {
    let f = Fixture::new().await;
    let flow = f.insert_flow("open", 1, &runnable("default")).await;
    let member = flow.members[0];
    while !f.is_announced(flow.partition, member).await {
        tokio::task::yield_now().await;
    }
    f.insert_attempt(flow.partition, member, 1, "retry").await;
    cancelled_flow_has_no_outcome(&f, &flow).await;
}

async fn cancelled_flow_has_no_outcome(f: &Fixture, flow: &Flow) {
    let policy = CancelFlowPolicy::CancelAll;
    let done = f.backend.cancel_flow(&flow.id, policy, CancelFlowWait::NoWait).await;
    let done = done.expect("cancel");
    assert!(matches!(done, CancelFlowResult::Cancelled { .. }), "{done:?}");
    let sql = "SELECT outcome FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2";
    let query = sqlx::query_scalar(sql).bind(flow.partition).bind(flow.members[0]);
    let outcome: Option<String> = query.fetch_one(&f.pool).await.expect("the attempt");
    assert_eq!(outcome, None);
}

#[tokio::test]
async fn first_claim_populates_started_at_ms_set_once() {
    let f = Fixture::new().await;
    let lane = own_lane("started-at");
    let (_, partition, uuid) = f.insert_solo(&runnable(&lane)).await;
    assert_eq!(f.started_at(partition, uuid).await, None);
    assert!(f.claim(&lane).await.is_some());
    let first = f.started_at(partition, uuid).await;
    assert!(first.is_some());
    let sql = "UPDATE ff_exec_core SET lifecycle_phase = 'runnable', \
               ownership_state = 'unowned', eligibility_state = 'eligible_now', \
               attempt_index = attempt_index + 1 WHERE partition_key = $1 AND execution_id = $2";
    let update = sqlx::query(sql).bind(partition).bind(uuid);
    update.execute(&f.pool).await.expect("make it runnable again");
    // The clock must have moved, or a second stamp could not be told from the first.
    let later = first.unwrap_or_default() + 5;
    while ff_core::types::TimestampMs::now().0 < later {
        tokio::task::yield_now().await;
    }
    assert!(f.claim(&lane).await.is_some());
    assert_eq!(f.started_at(partition, uuid).await, first);
}

#[tokio::test]
async fn first_claim_writes_public_state_running() {
    let f = Fixture::new().await;
    let lane = own_lane("running");
    let (_, partition, uuid) = f.insert_solo(&runnable(&lane)).await;
    assert_eq!(f.state(partition, uuid).await.public_state, "waiting");
    assert!(f.claim(&lane).await.is_some());
    assert_eq!(f.state(partition, uuid).await.public_state, "running");
}
