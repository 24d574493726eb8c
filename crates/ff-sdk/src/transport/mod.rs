//! What client and worker need of an engine, however far away it is.

mod embedded;
#[cfg(feature = "http")]
mod http;

pub use embedded::Embedded;
#[cfg(feature = "http")]
pub use http::{DEFAULT_URL, Http, HttpOptions};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ff_core::backend::{CancelFlowPolicy, Handle};
use ff_core::contracts::{
    AppendFramesArgs, ClaimArgs, ClaimedExecution, CreateWaitpointArgs, DeliverSignalArgs, Event,
    EventFilter, ExecutionSnapshot, ExtendFlowArgs, FailArgs, FlowSnapshot, ParentPage,
    ParentResultsArgs, PendingWaitpoint, ReadStreamArgs, RecordStepOutcome, RegisterWorkerArgs,
    RenewOutcome, ReportUsageArgs, SignalOutcome, SleepOutcome, StreamPage, Submission,
    SubmitFlowArgs, SubmitFlowResult, SubmitOutcome, SuspendArgs, SuspendOutcome, UsageOutcome,
    WaitChildrenResult, WaitpointSnapshot,
};
use ff_core::engine::StartAt;
use ff_core::engine_error::EngineError;
use ff_core::types::{ExecutionId, FlowId, WorkerInstanceId};

/// One way to an engine. Every method is one message and may be repeated after an error that is
/// retryable.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// A way of its own for the thread that keeps leases, if this one cannot be used beside the
    /// runtime that it was made in.
    fn apart(&self) -> Option<Arc<dyn Transport>> {
        None
    }

    async fn submit(&self, items: Vec<Submission>) -> Result<Vec<SubmitOutcome>, EngineError>;

    /// Makes a worker known, or gives a sign of its life.
    async fn register_worker(&self, args: RegisterWorkerArgs) -> Result<(), EngineError>;

    async fn retire_worker(&self, instance: &WorkerInstanceId) -> Result<(), EngineError>;

    async fn claim(&self, args: ClaimArgs) -> Result<Vec<ClaimedExecution>, EngineError>;

    async fn renew(&self, handles: &[Handle]) -> Result<Vec<RenewOutcome>, EngineError>;

    /// Tells what became of some attempts, all at once; the answers are in the same order.
    async fn report(&self, reports: &[Report]) -> Vec<Result<(), EngineError>>;

    async fn progress(
        &self,
        handle: &Handle,
        percent: Option<u8>,
        message: Option<String>,
    ) -> Result<(), EngineError>;

    async fn record_step(
        &self,
        handle: &Handle,
        name: &str,
        result: Vec<u8>,
    ) -> Result<RecordStepOutcome, EngineError>;

    async fn sleep_step(
        &self,
        handle: &Handle,
        name: &str,
        duration: Duration,
    ) -> Result<SleepOutcome, EngineError>;

    async fn append_frames(
        &self,
        handle: &Handle,
        args: AppendFramesArgs,
    ) -> Result<(), EngineError>;

    async fn read_stream(&self, args: ReadStreamArgs) -> Result<StreamPage, EngineError>;

    async fn suspend(
        &self,
        handle: &Handle,
        args: SuspendArgs,
    ) -> Result<SuspendOutcome, EngineError>;

    async fn create_waitpoint(
        &self,
        handle: &Handle,
        args: CreateWaitpointArgs,
    ) -> Result<PendingWaitpoint, EngineError>;

    /// The waitpoints of an execution, open and closed.
    async fn list_waitpoints(
        &self,
        id: &ExecutionId,
    ) -> Result<Vec<WaitpointSnapshot>, EngineError>;

    async fn deliver_signal(&self, args: DeliverSignalArgs) -> Result<SignalOutcome, EngineError>;

    async fn submit_flow(&self, args: SubmitFlowArgs) -> Result<SubmitFlowResult, EngineError>;

    /// A holder adds to its own flow.
    async fn extend_flow(
        &self,
        handle: &Handle,
        args: ExtendFlowArgs,
    ) -> Result<SubmitFlowResult, EngineError>;

    async fn wait_children(&self, handle: &Handle) -> Result<WaitChildrenResult, EngineError>;

    async fn parent_results(&self, args: ParentResultsArgs) -> Result<ParentPage, EngineError>;

    async fn describe_flow(&self, id: &FlowId) -> Result<Option<FlowSnapshot>, EngineError>;

    /// Waits for the end of a flow; `None` if it has not come in that time.
    async fn wait_flow(
        &self,
        id: &FlowId,
        wait: Duration,
    ) -> Result<Option<FlowSnapshot>, EngineError>;

    async fn cancel_flow(&self, id: &FlowId, policy: CancelFlowPolicy) -> Result<(), EngineError>;

    async fn report_usage(
        &self,
        handle: &Handle,
        args: ReportUsageArgs,
    ) -> Result<UsageOutcome, EngineError>;

    async fn cancel_execution(&self, id: &ExecutionId, reason: &str) -> Result<(), EngineError>;

    async fn describe(&self, id: &ExecutionId) -> Result<Option<ExecutionSnapshot>, EngineError>;

    async fn result(&self, id: &ExecutionId) -> Result<Option<Arc<[u8]>>, EngineError>;

    /// Waits for the end of an execution; `None` if it has not come in that time.
    async fn wait_finished(
        &self,
        id: &ExecutionId,
        wait: Duration,
    ) -> Result<Option<ExecutionSnapshot>, EngineError>;

    async fn events(
        &self,
        filter: EventFilter,
        start: StartAt,
    ) -> Result<Box<dyn EventStream>, EngineError>;
}

/// The log, one event after the other.
#[async_trait]
pub trait EventStream: Send {
    /// Waits for the next event.
    async fn next(&mut self) -> Result<Event, EngineError>;
}

/// What a worker tells about an attempt that it held.
#[derive(Clone, Debug)]
pub struct Report {
    pub handle: Handle,
    pub verdict: Verdict,
}

#[derive(Clone, Debug)]
pub enum Verdict {
    Complete(Option<Vec<u8>>),
    Fail(FailArgs),
    /// The attempt is put down and goes on, here or elsewhere, after the delay.
    Release(Duration),
}
