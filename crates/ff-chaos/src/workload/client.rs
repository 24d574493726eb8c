//! A client that writes down every call before it is made and every answer after it has come.

use std::sync::Arc;
use std::time::Duration;

use ff_core::backend::{CapabilitySet, Handle};
use ff_core::contracts::{
    CancelExecutionArgs, ClaimArgs, ClaimedExecution, FailArgs, FailOutcome, FailureClass,
    RenewOutcome, ReplayExecutionArgs, RevokeLeaseArgs, RevokeLeaseResult, SubmitOutcome,
};
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::{ContentionKind, EngineError};
use ff_core::types::{CancelSource, ExecutionId, LaneId, TimestampMs, WorkerId, WorkerInstanceId};

use super::habits::Caller;
use super::work::{self, LANES};
use super::{durable, limits, many, waits};
use crate::history::{self, Grant, Lease, Op, Outcome, Phase, Recorder, Work};

/// Short, so that the work of a killed process soon comes back.
pub const LEASE_MS: u32 = 300;
/// Long, so that whoever drains on a busy machine is not too late with everything.
pub(super) const PATIENT_LEASE_MS: u32 = 10_000;
const CLAIM_AT_ONCE: usize = 4;
const CLAIM_WAIT: Duration = Duration::from_millis(50);
/// How often a client asks again what became of a call, and after how long.
const REPEATS: u32 = 3;
const REPEAT_AFTER: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct Client {
    pub backend: Arc<dyn EngineBackend>,
    recorder: Arc<Recorder>,
    lease_ms: u32,
}

impl Client {
    pub fn new(backend: Arc<dyn EngineBackend>, recorder: Recorder) -> Self {
        Self { backend, recorder: Arc::new(recorder), lease_ms: LEASE_MS }
    }

    #[must_use]
    pub(super) fn with_leases_of(mut self, lease_ms: u32) -> Self {
        self.lease_ms = lease_ms;
        self
    }

    /// Makes a call under a new name; `None` if it was refused or its outcome is unknown.
    pub async fn call(&self, op: &Op) -> Option<Outcome> {
        self.call_as(&self.recorder.next_op_id(), op).await
    }

    /// Makes a call under a given name, as a retry does, and asks again if the answer is lost.
    pub async fn call_as(&self, op_id: &str, op: &Op) -> Option<Outcome> {
        for _ in 0..REPEATS {
            self.recorder.write(op_id, op, Phase::Invoke, None);
            let answer = self.perform(op_id, op).await;
            match self.write_answer(op_id, op, answer) {
                Ok(outcome) => return Some(outcome),
                Err(Phase::Info) if op.is_repeatable() => tokio::time::sleep(REPEAT_AFTER).await,
                Err(_) => return None,
            }
        }
        None
    }

    /// Submits several pieces of work in one call; each is an operation of its own.
    pub async fn submit(&self, items: Vec<Work>) {
        let named = items.into_iter().map(|work| (self.recorder.next_op_id(), work));
        let named: Vec<(String, Work)> = named.collect();
        let mut submissions = Vec::new();
        for (op_id, work) in &named {
            self.recorder.write(op_id, &Op::Submit(work.clone()), Phase::Invoke, None);
            submissions.push(work::submission(work).expect("made by this process"));
        }
        let outcomes = match self.backend.submit(submissions).await {
            Ok(outcomes) => outcomes.into_iter().map(accepted).collect(),
            Err(error) => {
                let (phase, outcome) = failed(&error);
                for (op_id, work) in named {
                    self.recorder.write(&op_id, &Op::Submit(work), phase, Some(outcome.clone()));
                }
                return;
            }
        };
        let outcomes: Vec<Result<Outcome, EngineError>> = outcomes;
        for ((op_id, work), outcome) in named.into_iter().zip(outcomes) {
            let _ = self.write_answer(&op_id, &Op::Submit(work), outcome);
        }
    }

    fn write_answer(
        &self,
        op_id: &str,
        op: &Op,
        answer: Result<Outcome, EngineError>,
    ) -> Result<Outcome, Phase> {
        match answer {
            Ok(outcome) => {
                self.recorder.write(op_id, op, Phase::Ok, Some(outcome.clone()));
                Ok(outcome)
            }
            Err(error) => {
                let (phase, outcome) = failed(&error);
                self.recorder.write(op_id, op, phase, Some(outcome));
                Err(phase)
            }
        }
    }

    /// Where a reason can be given it is the operation's name, so that the log tells who did it.
    async fn perform(&self, op_id: &str, op: &Op) -> Result<Outcome, EngineError> {
        let backend = &*self.backend;
        match op {
            Op::Submit(work) => {
                let submission = work::submission(work);
                let submission = submission.map_err(|e| EngineError::invalid(e.to_string()))?;
                let outcome = backend.submit(vec![submission]).await?.into_iter().next();
                accepted(outcome.ok_or(EngineError::NotFound { entity: "answer" })?)
            }
            Op::Claim { worker } => {
                let claimed = backend.claim_many(claim_args(worker, self.lease_ms)).await?;
                Ok(Outcome::Granted { grants: claimed.iter().map(grant).collect() })
            }
            Op::Renew(lease) => {
                let renewed = backend.renew_many(&[Handle::decode(&lease.handle)?]).await?;
                match renewed.into_iter().next() {
                    Some(RenewOutcome::Renewed { expires_at }) => {
                        Ok(Outcome::Renewed { until: expires_at.0 })
                    }
                    Some(RenewOutcome::Lost(error)) => Err(error),
                    None => Err(EngineError::NotFound { entity: "answer" }),
                }
            }
            Op::Complete { lease, seed, .. } => {
                let result = Some(work::bytes(*seed));
                backend.complete(&Handle::decode(&lease.handle)?, result).await?;
                Ok(Outcome::Done)
            }
            Op::Fail { lease, fatal } => {
                let failed =
                    backend.fail(&Handle::decode(&lease.handle)?, failure(op_id, *fatal)).await?;
                Ok(match failed {
                    FailOutcome::RetryScheduled { delay_until } => {
                        Outcome::RetryScheduled { delay_until: delay_until.0 }
                    }
                    FailOutcome::TerminalFailed => Outcome::FinallyFailed,
                })
            }
            Op::GiveUp(lease) => {
                backend.cancel(&Handle::decode(&lease.handle)?, op_id).await?;
                Ok(Outcome::Done)
            }
            Op::Cancel { id } => {
                backend.cancel_execution(cancellation(op_id, parse(id)?)).await?;
                Ok(Outcome::Done)
            }
            Op::Revoke { id } => revoke(backend, op_id, parse(id)?).await,
            Op::Replay { id } => {
                let args =
                    ReplayExecutionArgs { execution_id: parse(id)?, now: TimestampMs::now() };
                backend.replay_execution(args).await?;
                Ok(Outcome::Done)
            }
            _ => perform_more(backend, op).await,
        }
    }
}

impl Caller for Client {
    async fn call(&self, op: &Op) -> Option<Outcome> {
        Self::call(self, op).await
    }
}

/// Whatever is not about one execution as a whole.
async fn perform_more(backend: &dyn EngineBackend, op: &Op) -> Result<Outcome, EngineError> {
    match op {
        Op::Step { lease, name, seed, .. } => durable::record(backend, lease, name, *seed).await,
        Op::Append { lease, append_id, frames } => {
            durable::append(backend, lease, *append_id, *frames).await
        }
        Op::Report { lease, key, amount } => limits::report(backend, lease, key, *amount).await,
        Op::Trigger { schedule, request } => many::trigger(backend, schedule, request).await,
        Op::Sweep(sweep) => many::sweep(backend, sweep).await,
        Op::WatchBudget => limits::budget(backend, limits::BUDGET).await.map(Outcome::Limit),
        Op::WatchQuota => limits::quota(backend).await.map(Outcome::Limit),
        _ => waits::perform(backend, op).await,
    }
}

/// Whether an error says that the operation was refused, or nothing about what became of it. An
/// engine that had no time for it says nothing: an earlier call of the same name may have counted.
fn failed(error: &EngineError) -> (Phase, Outcome) {
    let unknown = matches!(
        error,
        EngineError::Transport { .. }
            | EngineError::OutcomeUnknown { .. }
            | EngineError::Timeout { .. }
            | EngineError::ResourceExhausted { .. }
            | EngineError::Contention(ContentionKind::RetryExhausted)
    );
    let phase = if unknown { Phase::Info } else { Phase::Fail };
    (phase, Outcome::Error { code: error.code().to_owned() })
}

fn accepted(outcome: SubmitOutcome) -> Result<Outcome, EngineError> {
    match outcome {
        SubmitOutcome::Created { execution_id, .. } | SubmitOutcome::Duplicate { execution_id } => {
            Ok(Outcome::Accepted { id: execution_id.as_str().to_owned() })
        }
        SubmitOutcome::Refused(error) => Err(error),
    }
}

fn claim_args(worker: &str, lease_ttl_ms: u32) -> ClaimArgs {
    ClaimArgs {
        lanes: LANES.map(LaneId::new).to_vec(),
        capabilities: CapabilitySet::default(),
        worker_id: WorkerId::new("chaos"),
        worker_instance_id: WorkerInstanceId::new(worker),
        lease_ttl_ms,
        max: CLAIM_AT_ONCE,
        wait: CLAIM_WAIT,
    }
}

fn grant(claimed: &ClaimedExecution) -> Grant {
    let lease = Lease {
        id: claimed.execution_id.as_str().to_owned(),
        epoch: claimed.lease_epoch.0,
        handle: claimed.handle.encode(),
    };
    let steps = durable::named(&claimed.steps).collect();
    Grant { lease, payload: history::hash(&claimed.payload), steps }
}

fn failure(op_id: &str, fatal: bool) -> FailArgs {
    FailArgs {
        reason: op_id.to_owned(),
        category: "chaos".into(),
        class: if fatal { FailureClass::Fatal } else { FailureClass::Retryable },
    }
}

fn cancellation(op_id: &str, execution_id: ExecutionId) -> CancelExecutionArgs {
    CancelExecutionArgs {
        execution_id,
        reason: op_id.to_owned(),
        source: CancelSource::OperatorOverride,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now: TimestampMs::now(),
    }
}

async fn revoke(
    backend: &dyn EngineBackend,
    op_id: &str,
    id: ExecutionId,
) -> Result<Outcome, EngineError> {
    let revoked = backend.revoke_lease(RevokeLeaseArgs {
        execution_id: id,
        expected_lease_id: None,
        worker_instance_id: WorkerInstanceId::new(""),
        reason: op_id.to_owned(),
    });
    Ok(match revoked.await? {
        RevokeLeaseResult::Revoked { lease_epoch, .. } => {
            let unreadable = || EngineError::invalid("the revoked epoch is not a number");
            Outcome::Revoked { epoch: lease_epoch.parse().map_err(|_| unreadable())? }
        }
        RevokeLeaseResult::AlreadySatisfied { .. } => Outcome::Unchanged,
    })
}

pub(super) fn parse(id: &str) -> Result<ExecutionId, EngineError> {
    ExecutionId::parse(id).map_err(|error| EngineError::invalid(error.to_string()))
}
