//! Claims and the cancellation of a flow that has more members than one transaction reaches: nobody
//! is handed a member once the flow is cancelled, and nobody waits in a circle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_core::backend::{CancelFlowPolicy, CancelFlowWait};
use ff_core::contracts::{
    ChangePriorityArgs, FlowNode, FlowStatus, Submission, SubmitFlowArgs, SubmitFlowResult,
};
use ff_core::engine_backend::{EngineBackend, FlowOperations};
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, FlowId, LaneId, Namespace, TimestampMs};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;

use crate::database::{Schema, claim_from, url};

/// One more than a cancellation reaches at once.
const MEMBERS: usize = 1_001;
const PATIENCE: Duration = Duration::from_secs(20);

/// Two engines, a large flow, and a gate in one of the tables.
struct Race {
    schema: Schema,
    claiming: Arc<PostgresBackend>,
    cancelling: Arc<PostgresBackend>,
    flow: FlowId,
    /// The member that a cancellation reaches last and a claim finds first.
    last: ExecutionId,
    own: PgConnection,
    gate: i64,
}

impl Race {
    /// Whoever writes a row of the table so stops there until the gate is opened, however long that
    /// takes: who waits for a lock gives up soon.
    async fn new(locks: bool, writes: &str) -> Self {
        let schema = Schema::new();
        let statement_cache = if locks { 0 } else { 256 };
        let options = PostgresOptions { statement_cache, ..schema.options() };
        let claiming = PostgresBackend::open(options).await.expect("open");
        let cancelling = schema.open().await;
        let (flow, last) = plant(&cancelling).await;
        let options: PgConnectOptions = url().parse().expect("the URL");
        let options = options.options([("search_path", &schema.0)]);
        let mut own = PgConnection::connect_with(&options).await.expect("connect");
        let gate = i64::from(fastrand::i32(0..i32::MAX - 1));
        let seen = gate + 1;
        let sql = format!(
            "SELECT pg_advisory_lock({gate}); \
             CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               PERFORM pg_advisory_xact_lock_shared({seen}); \
               WHILE NOT pg_try_advisory_xact_lock_shared({gate}) LOOP \
                 PERFORM pg_sleep(0.001); \
               END LOOP; \
               RETURN NEW; \
             END $$; \
             CREATE TRIGGER stop BEFORE {writes} FOR EACH ROW EXECUTE FUNCTION stop()"
        );
        sqlx::raw_sql(&sql).execute(&mut own).await.expect("a gate");
        // Now it is the best that there is, and the engine has just been told the time.
        let args = ChangePriorityArgs {
            execution_id: last.clone(),
            new_priority: 9_000,
            lane_id: LaneId::new("large"),
            now: TimestampMs::now(),
        };
        claiming.change_priority(args).await.expect("change_priority");
        Self { schema, claiming, cancelling, flow, last, own, gate }
    }

    fn claim(&self) -> JoinHandle<Vec<ExecutionId>> {
        let engine = self.claiming.clone();
        tokio::spawn(async move {
            let claimed = engine.claim_many(claim_from("large", 1, Duration::ZERO)).await;
            claimed.expect("claim").into_iter().map(|one| one.execution_id).collect()
        })
    }

    fn cancel(&self) -> JoinHandle<()> {
        let (engine, flow) = (self.cancelling.clone(), self.flow);
        tokio::spawn(async move {
            let policy = CancelFlowPolicy::CancelPending;
            engine.cancel_flow(&flow, policy, CancelFlowWait::NoWait).await.expect("cancel");
        })
    }

    /// Who has come to the gate, as the server numbers its processes.
    async fn stopped(&mut self) -> i32 {
        let sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 \
                   AND objid::int8 = $1 AND granted";
        let started = Instant::now();
        loop {
            let query = sqlx::query_scalar(sql).bind(self.gate + 1);
            if let Some(pid) = query.fetch_optional(&mut self.own).await.expect("locks") {
                return pid;
            }
            assert!(started.elapsed() < PATIENCE, "nobody came to the gate");
        }
    }

    /// Returns when the flow is cancelled, or somebody waits for this process: whether it is.
    async fn cancelled_before(&mut self, pid: i32) -> bool {
        let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity \
                     WHERE $1 = ANY(pg_blocking_pids(pid)))";
        let state = "SELECT public_flow_state = 'cancelled' FROM ff_flow_core";
        let started = Instant::now();
        loop {
            let own = &mut self.own;
            let waits = sqlx::query_scalar(waits).bind(pid).fetch_one(&mut *own).await;
            let cancelled = sqlx::query_scalar(state).fetch_one(&mut *own).await.expect("state");
            if cancelled || waits.expect("locks") {
                return cancelled;
            }
            assert!(started.elapsed() < PATIENCE, "the cancellation neither waits nor ends");
        }
    }

    async fn open_gate(&mut self) {
        let query = sqlx::query("SELECT pg_advisory_unlock($1)").bind(self.gate);
        query.execute(&mut self.own).await.expect("unlock");
    }

    /// In the end all members have been cancelled but those that were handed out before.
    async fn end(self, running: u64) {
        let started = Instant::now();
        let seen = loop {
            let seen = self.cancelling.describe_flow(&self.flow).await.expect("describe");
            let seen = seen.expect("it is there");
            let cancelled = seen.counts.get(&PublicState::Cancelled).copied().unwrap_or_default();
            if cancelled + running == MEMBERS as u64 || started.elapsed() > PATIENCE {
                break seen;
            }
        };
        assert_eq!(seen.status, FlowStatus::Cancelled);
        let active = seen.counts.get(&PublicState::Active).copied().unwrap_or_default();
        assert_eq!(active, running, "{:?}", seen.counts);
        self.claiming.close().await;
        self.cancelling.close().await;
        self.own.close().await.expect("close");
        self.schema.drop().await;
    }
}

/// A flow without edges, and the last of its members.
async fn plant(engine: &PostgresBackend) -> (FlowId, ExecutionId) {
    let node = |at| FlowNode::new(format!("n{at}"), Submission::new("large", "test"));
    let args = SubmitFlowArgs {
        namespace: Namespace::new("default"),
        nodes: (0..MEMBERS).map(node).collect(),
        ..SubmitFlowArgs::default()
    };
    let submitted = engine.submit_flow(args).await.expect("submit_flow");
    let SubmitFlowResult::Created { flow_id, execution_ids } = submitted else {
        panic!("there was none before")
    };
    let last = execution_ids.into_iter().max_by_key(|id| id.uuid()).expect("members");
    (flow_id, last)
}

async fn a_claim_comes_before_the_cancellation_or_finds_nothing(locks: bool) {
    let mut race = Race::new(locks, "INSERT ON ff_attempt").await;
    let claim = race.claim();
    let claiming = race.stopped().await;
    let cancel = race.cancel();
    let too_late = race.cancelled_before(claiming).await;
    race.open_gate().await;
    let claimed = claim.await.expect("claim");
    cancel.await.expect("cancel");
    assert!(!too_late || claimed.is_empty(), "handed out after the cancellation");
    assert!(claimed.iter().all(|id| *id == race.last));
    race.end(claimed.len() as u64).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_locks_does_not_outlast_a_cancellation() {
    a_claim_comes_before_the_cancellation_or_finds_nothing(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_does_not_lock_does_not_outlast_a_cancellation() {
    a_claim_comes_before_the_cancellation_or_finds_nothing(false).await;
}

/// It may be cancelled when the claim commits. Waiting for it would be a circle: the claim holds
/// members that the cancellation waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_passes_over_a_flow_that_is_being_cancelled() {
    for locks in [true, false] {
        let mut race = Race::new(locks, "UPDATE ON ff_flow_core").await;
        let cancel = race.cancel();
        race.stopped().await;
        let claimed = tokio::time::timeout(PATIENCE, race.claim()).await.expect("it waits");
        assert_eq!(claimed.expect("claim"), []);
        race.open_gate().await;
        cancel.await.expect("cancel");
        race.end(0).await;
    }
}

/// How large it is counts when it is locked, not when it was looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_that_grows_large_before_its_cancellation_is_passed_over() {
    let mut race = Race::new(false, "UPDATE ON ff_flow_core").await;
    let query = sqlx::query_scalar("SELECT pg_backend_pid()");
    let own = query.fetch_one(&mut race.own).await.expect("a number");
    // Who has closed the gate passes it.
    let small = "UPDATE ff_flow_core SET node_count = 1000";
    let grows = "BEGIN; UPDATE ff_flow_core SET node_count = 1001";
    for sql in [small, grows] {
        sqlx::raw_sql(sql).execute(&mut race.own).await.expect("update");
    }
    let cancel = race.cancel();
    assert!(!race.cancelled_before(own).await);
    sqlx::raw_sql("COMMIT").execute(&mut race.own).await.expect("commit");
    race.stopped().await;
    assert_eq!(race.claim().await.expect("claim"), []);
    race.open_gate().await;
    cancel.await.expect("cancel");
    race.end(0).await;
}
