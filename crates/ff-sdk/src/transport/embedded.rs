//! The engine in the same process.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use ff_core::backend::{CancelFlowPolicy, CancelFlowWait, Handle};
use ff_core::contracts::{
    AppendFramesArgs, CancelExecutionArgs, ClaimArgs, ClaimedExecution, CreateWaitpointArgs,
    DeliverSignalArgs, Event, EventFilter, ExecutionSnapshot, ExtendFlowArgs, FlowSnapshot,
    ListWaitpointsArgs, ParentPage, ParentResultsArgs, PendingWaitpoint, ReadStreamArgs,
    RecordStepOutcome, RegisterWorkerArgs, RenewOutcome, ReportUsageArgs, SignalOutcome,
    SleepOutcome, StreamPage, Submission, SubmitFlowArgs, SubmitFlowResult, SubmitOutcome,
    SuspendArgs, SuspendOutcome, UsageOutcome, WaitChildrenResult, WaitpointSnapshot, WorkerRef,
};
use ff_core::engine::{StartAt, Subscription};
use ff_core::engine_backend::{
    EngineBackend, FlowOperations, LimitOperations, StepOperations, StreamOperations,
    SuspensionOperations, WorkerOperations,
};
use ff_core::engine_error::EngineError;
use ff_core::limits;
use ff_core::types::{CancelSource, ExecutionId, FlowId, TimestampMs, WorkerInstanceId};
use tokio::time::Instant;

use super::{EventStream, Report, Transport, Verdict};

/// How soon an execution that somebody waits for is looked at again on a busy engine.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// And how soon if the engine is quiet, for bells are hints.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

pub struct Embedded(Arc<dyn EngineBackend>);

impl Embedded {
    pub fn new(backend: Arc<dyn EngineBackend>) -> Self {
        Self(backend)
    }

    /// Looks again with every bell until there is an answer or the time is up.
    async fn look_until<T, W>(
        &self,
        wait: Duration,
        look: impl Fn() -> W + Send,
    ) -> Result<Option<T>, EngineError>
    where
        W: Future<Output = Result<Option<T>, EngineError>> + Send,
    {
        let until = Instant::now() + wait;
        let mut bell = self.0.engine().store().listen().events();
        loop {
            bell.borrow_and_update();
            if let Some(found) = look().await? {
                return Ok(Some(found));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let _ = tokio::time::timeout(left.min(LOOK_ANYWAY), bell.changed()).await;
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    async fn report_one(&self, report: &Report) -> Result<(), EngineError> {
        match &report.verdict {
            Verdict::Complete(result) => self.0.complete(&report.handle, result.clone()).await,
            Verdict::Fail(args) => self.0.fail(&report.handle, args.clone()).await.map(drop),
            Verdict::Release(delay) => self.0.delay(&report.handle, *delay).await.map(drop),
        }
    }
}

#[async_trait]
impl Transport for Embedded {
    async fn submit(&self, items: Vec<Submission>) -> Result<Vec<SubmitOutcome>, EngineError> {
        self.0.submit(items).await
    }

    async fn register_worker(&self, mut args: RegisterWorkerArgs) -> Result<(), EngineError> {
        args.namespace = self.0.scope().cloned();
        self.0.register_worker(args).await.map(drop)
    }

    async fn retire_worker(&self, instance: &WorkerInstanceId) -> Result<(), EngineError> {
        let namespace = self.0.scope().cloned();
        let worker = WorkerRef { worker_instance_id: instance.clone(), namespace };
        self.0.retire_worker(&worker).await.map(drop)
    }

    async fn claim(&self, args: ClaimArgs) -> Result<Vec<ClaimedExecution>, EngineError> {
        self.0.claim_many(args).await
    }

    async fn renew(&self, handles: &[Handle]) -> Result<Vec<RenewOutcome>, EngineError> {
        self.0.renew_many(handles).await
    }

    /// Each is a call of its own, and all of them are queued before any is awaited, so that they
    /// share a commit.
    async fn report(&self, reports: &[Report]) -> Vec<Result<(), EngineError>> {
        if let [report] = reports {
            return vec![self.report_one(report).await];
        }
        all(reports.iter().map(|report| self.report_one(report))).await
    }

    async fn progress(
        &self,
        handle: &Handle,
        percent: Option<u8>,
        message: Option<String>,
    ) -> Result<(), EngineError> {
        self.0.progress(handle, percent, message).await
    }

    async fn record_step(
        &self,
        handle: &Handle,
        name: &str,
        result: Vec<u8>,
    ) -> Result<RecordStepOutcome, EngineError> {
        self.0.record_step(handle, name, result).await
    }

    async fn sleep_step(
        &self,
        handle: &Handle,
        name: &str,
        duration: Duration,
    ) -> Result<SleepOutcome, EngineError> {
        self.0.sleep_step(handle, name, duration).await
    }

    async fn append_frames(
        &self,
        handle: &Handle,
        args: AppendFramesArgs,
    ) -> Result<(), EngineError> {
        self.0.append_frames(handle, args).await.map(drop)
    }

    async fn read_stream(&self, args: ReadStreamArgs) -> Result<StreamPage, EngineError> {
        self.0.read_stream(args).await
    }

    async fn suspend(
        &self,
        handle: &Handle,
        args: SuspendArgs,
    ) -> Result<SuspendOutcome, EngineError> {
        self.0.suspend(handle, args).await
    }

    async fn create_waitpoint(
        &self,
        handle: &Handle,
        args: CreateWaitpointArgs,
    ) -> Result<PendingWaitpoint, EngineError> {
        self.0.create_waitpoint(handle, args).await
    }

    async fn list_waitpoints(
        &self,
        id: &ExecutionId,
    ) -> Result<Vec<WaitpointSnapshot>, EngineError> {
        let args = ListWaitpointsArgs {
            execution_id: Some(id.clone()),
            limit: limits::PAGE,
            ..ListWaitpointsArgs::default()
        };
        Ok(self.0.list_waitpoints(args).await?.waitpoints)
    }

    async fn deliver_signal(&self, args: DeliverSignalArgs) -> Result<SignalOutcome, EngineError> {
        self.0.deliver_signal(args).await
    }

    async fn submit_flow(&self, args: SubmitFlowArgs) -> Result<SubmitFlowResult, EngineError> {
        self.0.submit_flow(args).await
    }

    async fn extend_flow(
        &self,
        handle: &Handle,
        args: ExtendFlowArgs,
    ) -> Result<SubmitFlowResult, EngineError> {
        self.0.extend_flow(handle, args).await
    }

    async fn wait_children(&self, handle: &Handle) -> Result<WaitChildrenResult, EngineError> {
        self.0.wait_children(handle).await
    }

    async fn parent_results(&self, args: ParentResultsArgs) -> Result<ParentPage, EngineError> {
        self.0.parent_results(args).await
    }

    async fn describe_flow(&self, id: &FlowId) -> Result<Option<FlowSnapshot>, EngineError> {
        self.0.describe_flow(id).await
    }

    async fn wait_flow(
        &self,
        id: &FlowId,
        wait: Duration,
    ) -> Result<Option<FlowSnapshot>, EngineError> {
        self.look_until(wait, || async {
            let flow = self.0.describe_flow(id).await?;
            let flow = flow.ok_or(EngineError::NotFound { entity: "flow" })?;
            Ok(Some(flow).filter(|flow| flow.status.is_finished()))
        })
        .await
    }

    async fn cancel_flow(&self, id: &FlowId, policy: CancelFlowPolicy) -> Result<(), EngineError> {
        self.0.cancel_flow(id, policy, CancelFlowWait::NoWait).await.map(drop)
    }

    async fn report_usage(
        &self,
        handle: &Handle,
        args: ReportUsageArgs,
    ) -> Result<UsageOutcome, EngineError> {
        self.0.report_usage(handle, args).await
    }

    async fn cancel_execution(&self, id: &ExecutionId, reason: &str) -> Result<(), EngineError> {
        let args = CancelExecutionArgs {
            execution_id: id.clone(),
            reason: reason.to_owned(),
            source: CancelSource::OperatorOverride,
            lease_id: None,
            lease_epoch: None,
            attempt_id: None,
            now: TimestampMs::now(),
        };
        self.0.cancel_execution(args).await.map(drop)
    }

    async fn describe(&self, id: &ExecutionId) -> Result<Option<ExecutionSnapshot>, EngineError> {
        self.0.describe_execution(id).await
    }

    async fn result(&self, id: &ExecutionId) -> Result<Option<Arc<[u8]>>, EngineError> {
        self.0.result(id).await
    }

    async fn wait_finished(
        &self,
        id: &ExecutionId,
        wait: Duration,
    ) -> Result<Option<ExecutionSnapshot>, EngineError> {
        self.look_until(wait, || async {
            let snapshot = self.0.describe_execution(id).await?;
            let snapshot = snapshot.ok_or(EngineError::NotFound { entity: "execution" })?;
            Ok(Some(snapshot).filter(|snapshot| snapshot.public_state.is_finished()))
        })
        .await
    }

    async fn events(
        &self,
        filter: EventFilter,
        start: StartAt,
    ) -> Result<Box<dyn EventStream>, EngineError> {
        Ok(Box::new(self.0.subscribe(filter, start).await?))
    }
}

#[async_trait]
impl EventStream for Subscription {
    async fn next(&mut self) -> Result<Event, EngineError> {
        Subscription::next(self).await
    }
}

/// Runs futures at the same time in the caller's task; the answers are in their order.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<(usize, Pin<Box<F>>)> = futures.map(Box::pin).enumerate().collect();
    let mut answers: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        running.retain_mut(|(place, future)| match future.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                answers[*place] = Some(answer);
                false
            }
        });
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}
