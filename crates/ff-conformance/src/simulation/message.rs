//! What can be asked of a server and what it answers, and how that becomes a job of the core.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ff_core::backend::{CancelFlowPolicy, CapabilitySet, Handle};
use ff_core::contracts::{
    CancelExecutionArgs, ChangePriorityArgs, CreateExecutionResult, CreateWaitpointArgs,
    DeliverSignalArgs, FailureClass, PutBudgetArgs, RenewOutcome, ReplayExecutionArgs,
    ReportUsageArgs, RescheduleArgs, RevokeLeaseArgs, RevokeLeaseResult, StartBulkArgs,
    SubmitOutcome, SuspendArgs, UsageOutcome,
};
use ff_core::engine::prepare_submission;
use ff_core::limits::{FLOW_REPLAY_NODES, Limits};
use ff_core::operations::Operation;
use ff_core::operations::execution::{
    CancelExecution, CancelHeld, ChangePriority, Claim, Claimed, Complete, CreateExecution, Delay,
    Fail, Grant, Renew, ReplayExecution, Reschedule, RevokeLease, Submit,
};
use ff_core::operations::flow::{ReplayFlow, WaitChildren};
use ff_core::operations::limit::{DeleteLimit, PutBudget, PutQuota, ReportUsage};
use ff_core::operations::suspension::RotateWaitpointSecret;
use ff_core::operations::timer::Sweep;
use ff_core::rows::{FlowKey, WaitpointRow};
use ff_core::state::{LifecyclePhase, PublicState};
use ff_core::store::{Job, Reply};
use ff_core::types::{
    BudgetId, CancelSource, ExecutionKey, LaneId, Namespace, SignalId, TimestampMs,
    WorkerInstanceId,
};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::history::{History, Plan};
use super::limits::{BUDGET, DIMENSION};
use super::{bulk, extensions, flows, limits, waits, work};

/// The namespace of everything in a run.
pub(super) const NAMESPACE: &str = "sim";

/// What a worker asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub worker: Arc<str>,
    pub lanes: Vec<Arc<str>>,
    pub capabilities: CapabilitySet,
    pub lease_ttl_ms: u32,
    pub max: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Verb {
    Submit(ExecutionKey),
    SubmitFlow(usize),
    CancelFlow(FlowKey, CancelFlowPolicy),
    /// Leaves members to be acknowledged.
    CancelHeader(FlowKey),
    Acknowledge(FlowKey, ExecutionKey),
    /// With everything that depends on it.
    ReplayFlow(ExecutionKey),
    Claim(Wanted),
    Renew(Vec<Handle>),
    Complete {
        handle: Handle,
        result: Arc<[u8]>,
    },
    Fail {
        handle: Handle,
        class: FailureClass,
    },
    Delay {
        handle: Handle,
        delay: Duration,
    },
    GiveUp(Handle),
    Report {
        handle: Handle,
        amount: u64,
        dedup_key: String,
    },
    Cancel(ExecutionKey),
    Replay(ExecutionKey),
    ChangePriority(ExecutionKey, i32),
    Reschedule(ExecutionKey, Duration),
    Revoke(ExecutionKey),
    Read(ExecutionKey),
    CreateWaitpoint(Handle, CreateWaitpointArgs),
    Suspend(Handle, Box<SuspendArgs>),
    Signal(Box<DeliverSignalArgs>),
    Resume(ExecutionKey),
    Record(Handle, &'static str, Arc<[u8]>),
    Sleep(Handle, Duration),
    Append(Handle, Uuid),
    /// By its number.
    Extend(Handle, usize),
    WaitChildren(Handle),
    StartBulk(Box<StartBulkArgs>),
    CancelBulk(Uuid),
    /// To one of the known keys, with so much grace for the one before.
    Rotate(usize, u64),
    /// The cap becomes another, or is given up.
    PutCap(Option<u32>),
    PutBudget(Box<PutBudgetArgs>),
    Sweep,
}

#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub handle: Handle,
    pub expires_at: TimestampMs,
}

/// What a reader saw of an execution.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub version: u64,
    pub state: PublicState,
    pub result: Option<Arc<[u8]>>,
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// This execution stands for the submission.
    Submitted(ExecutionKey),
    Granted(Vec<Lease>),
    /// Until when each lease stands, or that it is lost.
    Renewed(Vec<Option<TimestampMs>>),
    /// The epoch that locks the old holder out.
    Revoked {
        epoch: u64,
    },
    Seen(Option<Seen>),
    Waitpoints(Vec<WaitpointRow>),
    /// The lease stands, because these signals had come before.
    AtOnce(Vec<SignalId>),
    Signalled(SignalId),
    /// This result stands, and the lease until then.
    Recorded {
        result: Arc<[u8]>,
        until: TimestampMs,
    },
    /// When the sleep is over, and until when the lease stands if it is.
    Slept {
        due_at: TimestampMs,
        until: Option<TimestampMs>,
    },
    /// The number of the frame, and until when the lease stands.
    Appended {
        sequence: u64,
        until: TimestampMs,
    },
    Bulk(Uuid),
    /// The header was cancelled, and these members with it.
    Cancelled(Vec<ExecutionKey>),
    Done,
    /// Accepted, and there was nothing to do.
    Unneeded,
    Refused(&'static str),
}

impl Answer {
    pub fn is_ok(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// Takes the answer once the core has given one.
pub(super) type Waiting = Box<dyn FnOnce() -> Option<Answer>>;

/// An answer that needs only a look at the reply.
fn seen<R>(answer: fn(&R) -> Answer) -> impl FnOnce(R) -> Answer {
    move |reply| answer(&reply)
}

pub(super) fn job<O: Operation>(
    operation: O,
    answer: impl FnOnce(O::Reply) -> Answer + 'static,
) -> (Job, Waiting) {
    let (sender, mut receiver): (Reply<O::Reply>, _) = oneshot::channel();
    // These are for all namespaces.
    let wide = [Sweep::NAME, RotateWaitpointSecret::NAME, PutQuota::NAME, DeleteLimit::NAME];
    let scope = Some(Namespace::new(NAMESPACE)).filter(|_| !wide.contains(&O::NAME));
    let waiting = move || match receiver.try_recv().ok()? {
        Ok(reply) => Some(answer(reply)),
        Err(error) => Some(Answer::Refused(error.code())),
    };
    (Job::new(operation, scope, sender), Box::new(waiting))
}

fn done<T>(_: T) -> Answer {
    Answer::Done
}

impl Verb {
    /// The operation of the core, as a server's shell would build it. A read is none.
    pub fn job(&self, history: &History, rng: &mut Rng) -> Option<(Job, Waiting)> {
        let now = TimestampMs(0);
        let entropy = rng.u64(..);
        Some(match self.clone() {
            Self::Submit(key) => submit(history.plans.get(&key)?),
            Self::SubmitFlow(number) => history.flows[number].submit(),
            Self::Claim(wanted) => job(claim(wanted, rng), granted),
            Self::Renew(handles) => job(Renew { handles }, renewed),
            Self::Complete { handle, result } => {
                job(Complete { handle, result: Some(result) }, done)
            }
            Self::Fail { handle, class } => {
                let (reason, category) = ("it broke".into(), "simulated".into());
                job(Fail { handle, reason, category, class, entropy }, done)
            }
            Self::Delay { handle, delay } => job(Delay { handle, delay }, done),
            Self::GiveUp(handle) => job(CancelHeld { handle, reason: "gives up".into() }, done),
            Self::Report { handle, amount, dedup_key } => {
                let args = ReportUsageArgs {
                    budget_id: BudgetId::new(BUDGET),
                    amounts: [(DIMENSION.to_owned(), amount)].into(),
                    dedup_key: Some(dedup_key),
                };
                job(ReportUsage { handle, args }, |outcome| reported(&outcome))
            }
            Self::Cancel(key) => job(CancelExecution { args: cancel(key) }, done),
            Self::Replay(key) => {
                let args = ReplayExecutionArgs { execution_id: key.execution_id(), now };
                job(ReplayExecution { args }, done)
            }
            Self::ChangePriority(key, new_priority) => {
                let (execution_id, lane_id) = (key.execution_id(), LaneId::default());
                let args = ChangePriorityArgs { execution_id, new_priority, lane_id, now };
                job(ChangePriority { args }, done)
            }
            Self::Reschedule(key, delay) => {
                let args = RescheduleArgs { execution_id: key.execution_id(), delay };
                job(Reschedule { args }, done)
            }
            Self::Revoke(key) => job(RevokeLease { args: revoke(key) }, revoked),
            Self::CreateWaitpoint(handle, args) => {
                let made = |row| Answer::Waitpoints(vec![row]);
                job(waits::create(handle, args, rng.u128(..)), made)
            }
            Self::Suspend(handle, args) => {
                job(waits::suspend(handle, *args, rng.u128(..)), waits::suspended)
            }
            Self::Signal(args) => job(waits::deliver(*args), waits::signalled),
            Self::Resume(key) => job(waits::resume(key), done),
            Self::Record(handle, name, result) => {
                let own = result.clone();
                job(work::record(handle, name, result), work::recorded(own))
            }
            Self::Sleep(handle, duration) => job(work::sleep(handle, duration), seen(work::slept)),
            Self::Append(handle, id) => job(work::append(handle, id), seen(work::appended)),
            Self::Extend(handle, number) => {
                job(history.extensions[number].operation(&handle), seen(extensions::extended))
            }
            Self::WaitChildren(handle) => job(WaitChildren { handle }, extensions::waits),
            _ => return self.wide_job(rng, entropy),
        })
    }

    /// The same for what is not about one execution.
    fn wide_job(&self, rng: &mut Rng, entropy: u64) -> Option<(Job, Waiting)> {
        Some(match self.clone() {
            Self::CancelFlow(flow, policy) => flows::cancel(flow, policy),
            Self::CancelHeader(flow) => job(flows::cancel_header(flow), seen(flows::cancelled)),
            Self::Acknowledge(flow, key) => job(flows::acknowledge(flow, key), done),
            Self::ReplayFlow(execution) => {
                job(ReplayFlow { execution, max_nodes: FLOW_REPLAY_NODES }, done)
            }
            Self::StartBulk(args) => {
                job(bulk::start(*args, Uuid::from_u128(rng.u128(..))), seen(bulk::started))
            }
            Self::CancelBulk(id) => job(bulk::cancel(id), done),
            Self::Rotate(kid, grace_ms) => job(waits::rotate(kid, grace_ms), done),
            Self::PutCap(Some(cap)) => job(limits::put_cap(cap), done),
            Self::PutCap(None) => job(limits::drop_cap(), done),
            Self::PutBudget(args) => job(PutBudget { args: *args, flow: None }, done),
            Self::Sweep => job(Sweep { limit: 50, bulk_chunk: 4, entropy, isolation: None }, done),
            _ => return None,
        })
    }
}

fn submit(plan: &Plan) -> (Job, Waiting) {
    let scope = Namespace::new(NAMESPACE);
    let prepared = prepare_submission(plan.submission.clone(), &Limits::default(), Some(&scope), 0);
    let mut item = prepared.expect("the plans hold to the limits");
    if plan.create {
        item.row.phase = LifecyclePhase::Submitted;
        let operation = CreateExecution { item, delay_until: None, deadline_at: None };
        return job(operation, |created| match created {
            CreateExecutionResult::Created { execution_id, .. }
            | CreateExecutionResult::Duplicate { execution_id } => {
                Answer::Submitted(execution_id.key())
            }
        });
    }
    job(Submit { items: vec![Ok(item)] }, |outcomes| match outcomes.first() {
        Some(SubmitOutcome::Refused(error)) => Answer::Refused(error.code()),
        Some(outcome) => {
            outcome.execution_id().map_or(Answer::Unneeded, |id| Answer::Submitted(id.key()))
        }
        None => Answer::Unneeded,
    })
}

/// Every call has a timer of its own, so its name is drawn where the call arrives.
fn claim(wanted: Wanted, rng: &mut Rng) -> Claim {
    Claim {
        lanes: wanted.lanes,
        capabilities: wanted.capabilities,
        worker_id: "worker".into(),
        worker_instance_id: wanted.worker,
        lease_ttl_ms: wanted.lease_ttl_ms,
        max: wanted.max,
        view: 0,
        claim_id: Uuid::from_u128(rng.u128(..)),
    }
}

fn granted(claimed: Claimed) -> Answer {
    let lease = |grant: Grant| Lease { expires_at: grant.lease_expires_at, handle: grant.handle };
    Answer::Granted(claimed.grants.into_iter().map(lease).collect())
}

fn renewed(outcomes: Vec<RenewOutcome>) -> Answer {
    let until = |outcome| match outcome {
        RenewOutcome::Renewed { expires_at } => Some(expires_at),
        RenewOutcome::Lost(_) => None,
    };
    Answer::Renewed(outcomes.into_iter().map(until).collect())
}

fn reported(outcome: &UsageOutcome) -> Answer {
    match outcome {
        UsageOutcome::Applied | UsageOutcome::SoftBreach { .. } => Answer::Done,
        UsageOutcome::AlreadyApplied => Answer::Unneeded,
        UsageOutcome::HardBreach { .. } => Answer::Refused("hard_breach"),
    }
}

fn revoked(result: RevokeLeaseResult) -> Answer {
    match result {
        RevokeLeaseResult::Revoked { lease_epoch, .. } => {
            Answer::Revoked { epoch: lease_epoch.parse().unwrap_or(0) }
        }
        RevokeLeaseResult::AlreadySatisfied { .. } => Answer::Unneeded,
    }
}

fn cancel(key: ExecutionKey) -> CancelExecutionArgs {
    CancelExecutionArgs {
        execution_id: key.execution_id(),
        reason: "no longer wanted".into(),
        source: CancelSource::OperatorOverride,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now: TimestampMs(0),
    }
}

fn revoke(key: ExecutionKey) -> RevokeLeaseArgs {
    RevokeLeaseArgs {
        execution_id: key.execution_id(),
        expected_lease_id: None,
        worker_instance_id: WorkerInstanceId::default(),
        reason: "taken back".into(),
    }
}
