//! The contract's schema and behaviours on Postgres, with rows written by hand as its users do.

mod follow_ups;
mod leases;
mod operator;

use std::sync::Arc;

use ff_backend_postgres::{PostgresBackend, apply_migrations};
use ff_core::engine_backend::EngineBackend;
use ff_core::partition::{PartitionConfig, flow_partition};
use ff_core::types::{ExecutionId, FlowId, LaneId};
use sqlx::PgPool;
use uuid::Uuid;

use crate::database;

struct Fixture {
    backend: Arc<dyn EngineBackend>,
    pool: PgPool,
}

/// An execution as it is inserted, with only the columns that the contract names.
struct Seed<'a> {
    flow: Option<Uuid>,
    lane: &'a str,
    phase: &'a str,
    eligibility: &'a str,
    public: &'a str,
    attempt: &'a str,
}

impl Default for Seed<'_> {
    fn default() -> Self {
        Self {
            flow: None,
            lane: "default",
            phase: "runnable",
            eligibility: "eligible_now",
            public: "waiting",
            attempt: "pending_first_attempt",
        }
    }
}

/// What is stored about an execution's state.
#[derive(Debug, PartialEq)]
struct State {
    lifecycle_phase: String,
    eligibility_state: String,
    public_state: String,
    attempt_index: i32,
}

impl Fixture {
    async fn new() -> Self {
        let url = database::url();
        let migrating = database::pool(&url, 1).await;
        apply_migrations(&migrating).await.expect("migrate");
        migrating.close().await;
        let pool = database::pool(&url, 4).await;
        let backend: Arc<dyn EngineBackend> =
            PostgresBackend::from_pool(pool.clone(), PartitionConfig::default());
        Self { backend, pool }
    }

    async fn insert(&self, partition: i16, id: Uuid, seed: &Seed<'_>) {
        let sql = "INSERT INTO ff_exec_core (partition_key, execution_id, flow_id, lane_id, \
                   attempt_index, lifecycle_phase, ownership_state, eligibility_state, \
                   public_state, attempt_state, priority, created_at_ms, raw_fields) \
                   VALUES ($1, $2, $3, $4, 0, $5, 'unowned', $6, $7, $8, 100, 1, '{}'::jsonb)";
        let insert = sqlx::query(sql).bind(partition).bind(id).bind(seed.flow).bind(seed.lane);
        let insert = insert.bind(seed.phase).bind(seed.eligibility).bind(seed.public);
        insert.bind(seed.attempt).execute(&self.pool).await.expect("insert an execution");
    }

    /// Inserts an execution where its lane puts it.
    async fn insert_solo(&self, seed: &Seed<'_>) -> (ExecutionId, i16, Uuid) {
        let id = ExecutionId::solo(&LaneId::new(seed.lane), &PartitionConfig::default());
        let (_, uuid) = id.as_str().split_once("}:").expect("the wire form");
        let uuid = Uuid::parse_str(uuid).expect("the wire form");
        let partition = id.partition() as i16;
        self.insert(partition, uuid, seed).await;
        (id, partition, uuid)
    }

    async fn insert_attempt(&self, partition: i16, id: Uuid, epoch: i64, outcome: &str) {
        let sql = "INSERT INTO ff_attempt (partition_key, execution_id, attempt_index, \
                   lease_epoch, outcome) VALUES ($1, $2, 0, $3, $4)";
        let insert = sqlx::query(sql).bind(partition).bind(id).bind(epoch).bind(outcome);
        insert.execute(&self.pool).await.expect("insert an attempt");
    }

    /// Inserts a flow with members, all where the flow's identity puts them.
    async fn insert_flow(&self, state: &str, members: usize, seed: &Seed<'_>) -> Flow {
        let id = FlowId::new();
        let partition = flow_partition(&id, &PartitionConfig::default()).index as i16;
        let sql = "INSERT INTO ff_flow_core (partition_key, flow_id, graph_revision, \
                   public_flow_state, created_at_ms) VALUES ($1, $2, 0, $3, 1)";
        let insert = sqlx::query(sql).bind(partition).bind(id.0).bind(state);
        insert.execute(&self.pool).await.expect("insert a flow");
        let members: Vec<Uuid> = (0..members).map(|_| Uuid::new_v4()).collect();
        for member in &members {
            let seed = Seed { flow: Some(id.0), ..*seed };
            self.insert(partition, *member, &seed).await;
        }
        Flow { id, partition, members }
    }

    async fn state(&self, partition: i16, id: Uuid) -> State {
        let sql = "SELECT lifecycle_phase, eligibility_state, public_state, attempt_index \
                   FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2";
        let query = sqlx::query_as(sql).bind(partition).bind(id);
        let row: (String, String, String, i32) =
            query.fetch_one(&self.pool).await.expect("the execution");
        State {
            lifecycle_phase: row.0,
            eligibility_state: row.1,
            public_state: row.2,
            attempt_index: row.3,
        }
    }

    /// How many events of one type the operators' log has for an execution or a flow.
    async fn operator_events(&self, subject: Uuid, event_type: &str) -> i64 {
        let sql = "SELECT count(*) FROM ff_operator_event WHERE execution_id = $1 \
                   AND event_type = $2";
        let query = sqlx::query_scalar(sql).bind(subject.to_string()).bind(event_type);
        query.fetch_one(&self.pool).await.expect("count")
    }

    async fn rows_of_flow(&self, table: &str, flow: &Flow) -> i64 {
        let sql = format!("SELECT count(*) FROM {table} WHERE partition_key = $1 AND flow_id = $2");
        let query = sqlx::query_scalar(&sql).bind(flow.partition).bind(flow.id.0);
        query.fetch_one(&self.pool).await.expect("count")
    }
}

struct Flow {
    id: FlowId,
    partition: i16,
    members: Vec<Uuid>,
}
