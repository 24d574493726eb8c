//! What every exercise starts from: a fresh backend on a clock that stands still, and short words
//! for the calls that all of them make.

use std::sync::Arc;
use std::time::Duration;

use ff_core::backend::{CapabilitySet, Handle};
use ff_core::contracts::{
    CancelExecutionArgs, ChangePriorityArgs, ClaimArgs, ClaimedExecution, CreateExecutionArgs,
    Event, EventType, ExecutionSnapshot, FailArgs, FailureClass, ReadStreamArgs,
    ReplayExecutionArgs, RescheduleArgs, RevokeLeaseArgs, Submission, SubmitOutcome,
};
use ff_core::engine::EngineConfig;
use ff_core::engine::clock::{Clock, ManualClock};
use ff_core::engine_backend::{EngineBackend, StepOperations, StreamOperations};
use ff_core::engine_error::EngineError;
use ff_core::policy::{Backoff, ExecutionPolicy};
use ff_core::state::PublicState;
use ff_core::types::{
    CancelSource, ExecutionId, LaneId, Namespace, TimestampMs, WorkerId, WorkerInstanceId,
};
use uuid::Uuid;

/// When the clock of every exercise starts.
pub const START_MS: i64 = 1_800_000_000_000;
/// The lane of exercises that need only one.
pub const LANE: &str = "lane";
/// The lease that exercises ask for unless they say otherwise.
pub const LEASE_MS: u32 = 30_000;

/// What a backend under test must be built on.
#[derive(Clone)]
pub struct Setup {
    pub clock: Arc<ManualClock>,
    pub config: EngineConfig,
}

impl Setup {
    pub fn new(config: EngineConfig) -> Self {
        Self { clock: Arc::new(ManualClock::new(START_MS)), config }
    }
}

#[derive(Clone)]
pub struct Fixture {
    pub backend: Arc<dyn EngineBackend>,
    pub clock: Arc<ManualClock>,
}

impl Fixture {
    pub fn now(&self) -> TimestampMs {
        self.clock.now()
    }

    /// Moves the clock and fires whatever became due.
    pub async fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
        self.backend.engine().sweep().await.unwrap();
    }

    /// Submits one item, whatever becomes of it.
    pub async fn offer(&self, item: Submission) -> SubmitOutcome {
        self.backend.submit(vec![item]).await.unwrap().remove(0)
    }

    /// Submits one item that must be new.
    pub async fn submit(&self, item: Submission) -> ExecutionId {
        match self.offer(item).await {
            SubmitOutcome::Created { execution_id, .. } => execution_id,
            other => panic!("expected a new execution, got {other:?}"),
        }
    }

    pub async fn try_claim(&self) -> Option<ClaimedExecution> {
        self.backend.claim_many(claim_args()).await.unwrap().pop()
    }

    /// Claims one execution that must be there.
    pub async fn claim(&self) -> ClaimedExecution {
        self.try_claim().await.expect("there is something to claim")
    }

    /// Submits one item to the lane and claims it.
    pub async fn start(&self, item: Submission) -> (ExecutionId, Handle) {
        let id = self.submit(item).await;
        let claimed = self.claim().await;
        assert_eq!(claimed.execution_id, id, "another execution was handed out");
        (id, claimed.handle)
    }

    pub async fn snapshot(&self, id: &ExecutionId) -> ExecutionSnapshot {
        self.backend.describe_execution(id).await.unwrap().expect("the execution exists")
    }

    pub async fn state(&self, id: &ExecutionId) -> PublicState {
        self.snapshot(id).await.public_state
    }

    pub async fn history(&self, id: &ExecutionId) -> Vec<Event> {
        self.backend.history(id, 0, 1_000).await.unwrap()
    }

    pub async fn events(&self, id: &ExecutionId) -> Vec<EventType> {
        self.history(id).await.into_iter().map(|event| event.event_type).collect()
    }

    /// All that can be seen of an execution, to prove that a refused call changed nothing.
    pub async fn picture(&self, id: &ExecutionId) -> String {
        let backend = &self.backend;
        let snapshot = backend.describe_execution(id).await.unwrap();
        let payload = backend.payload(id).await.unwrap();
        let result = backend.result(id).await.unwrap();
        let steps = backend.list_steps(id, 0, 100).await.unwrap();
        let stream = backend.read_stream(ReadStreamArgs::new(id.clone())).await.unwrap();
        let history = self.history(id).await;
        format!("{snapshot:#?}\n{payload:?}\n{result:?}\n{steps:?}\n{stream:?}\n{history:#?}")
    }

    pub async fn cancel_execution(&self, id: &ExecutionId) -> Result<(), EngineError> {
        self.backend.cancel_execution(cancel_args(id, self.now())).await.map(drop)
    }

    pub async fn revoke(&self, id: &ExecutionId) -> Result<(), EngineError> {
        self.backend.revoke_lease(revoke_args(id)).await.map(drop)
    }

    pub async fn replay(&self, id: &ExecutionId) -> Result<(), EngineError> {
        let args = ReplayExecutionArgs { execution_id: id.clone(), now: self.now() };
        self.backend.replay_execution(args).await.map(drop)
    }

    pub async fn change_priority(&self, id: &ExecutionId, to: i32) -> Result<(), EngineError> {
        let args = ChangePriorityArgs {
            execution_id: id.clone(),
            new_priority: to,
            lane_id: LaneId::new(LANE),
            now: self.now(),
        };
        self.backend.change_priority(args).await.map(drop)
    }

    pub async fn reschedule(
        &self,
        id: &ExecutionId,
        delay_ms: u64,
    ) -> Result<PublicState, EngineError> {
        let delay = Duration::from_millis(delay_ms);
        self.backend.reschedule(RescheduleArgs { execution_id: id.clone(), delay }).await
    }
}

/// The plainest piece of work.
pub fn item() -> Submission {
    Submission::new(LANE, "kind")
}

pub fn claim_args() -> ClaimArgs {
    claim_from(LANE)
}

pub fn claim_from(lane: &str) -> ClaimArgs {
    ClaimArgs {
        lanes: vec![LaneId::new(lane)],
        capabilities: CapabilitySet::default(),
        worker_id: WorkerId::new("worker"),
        worker_instance_id: WorkerInstanceId::new("worker-1"),
        lease_ttl_ms: LEASE_MS,
        max: 1,
        wait: Duration::ZERO,
    }
}

pub fn cancel_args(id: &ExecutionId, now: TimestampMs) -> CancelExecutionArgs {
    CancelExecutionArgs {
        execution_id: id.clone(),
        reason: "asked for".into(),
        source: CancelSource::OperatorOverride,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now,
    }
}

pub fn revoke_args(id: &ExecutionId) -> RevokeLeaseArgs {
    RevokeLeaseArgs {
        execution_id: id.clone(),
        expected_lease_id: None,
        worker_instance_id: WorkerInstanceId::new(""),
        reason: "asked for".into(),
    }
}

pub fn create_args(id: &ExecutionId, now: TimestampMs) -> CreateExecutionArgs {
    CreateExecutionArgs {
        execution_id: id.clone(),
        namespace: Namespace::new("default"),
        lane_id: LaneId::new(LANE),
        execution_kind: "kind".into(),
        input_payload: Vec::new(),
        payload_encoding: None,
        priority: 0,
        creator_identity: String::new(),
        idempotency_key: None,
        tags: Default::default(),
        policy: None,
        delay_until: None,
        execution_deadline_at: None,
        partition_id: id.partition(),
        now,
    }
}

pub fn failure(class: FailureClass) -> FailArgs {
    FailArgs { reason: "it broke".into(), category: "broken".into(), class }
}

/// A policy that retries after a fixed delay, so that tests know when.
pub fn retries(max_retries: u32, delay_ms: u64) -> ExecutionPolicy {
    let mut policy = ExecutionPolicy::default();
    policy.retry_policy.max_retries = max_retries;
    policy.retry_policy.backoff = Backoff::Fixed { delay_ms };
    policy
}

/// An identity that nobody has used.
pub fn new_id() -> ExecutionId {
    ExecutionId::from_parts(0, Uuid::now_v7())
}

/// The error's stable word, or `ok`.
pub fn code<T>(outcome: &Result<T, EngineError>) -> &'static str {
    match outcome {
        Ok(_) => "ok",
        Err(error) => error.code(),
    }
}
