//! What every test starts from: an engine on a file of its own, a transport that can be told to
//! fail, and short words for what all tests do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_core::backend::{CancelFlowPolicy, Handle};
use ff_core::contracts::{
    AppendFramesArgs, ClaimArgs, ClaimedExecution, CreateWaitpointArgs, DeliverSignalArgs,
    EventFilter, EventType, ExecutionSnapshot, ExtendFlowArgs, FlowSnapshot, ParentPage,
    ParentResultsArgs, PendingWaitpoint, ReadStreamArgs, RecordStepOutcome, RegisterWorkerArgs,
    RenewOutcome, ReportUsageArgs, SignalOutcome, SleepOutcome, StreamPage, Submission,
    SubmitFlowArgs, SubmitFlowResult, SubmitOutcome, SuspendArgs, SuspendOutcome, UsageOutcome,
    WaitChildrenResult, WaitpointSnapshot,
};
use ff_core::engine::StartAt;
use ff_core::engine::clock::ManualClock;
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::EngineError;
use ff_core::types::{ExecutionId, FlowId, Namespace, WorkerInstanceId};
use ff_sdk::transport::{Embedded, EventStream, Report, Transport};
use ff_sdk::{Client, Worker};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// The lease of workers that do not say otherwise.
pub const LEASE: Duration = Duration::from_secs(30);

pub struct Bed {
    pub engine: Arc<SqliteBackend>,
    pub clock: Arc<ManualClock>,
    pub client: Client,
    pub spy: Arc<Spy>,
    _folder: tempfile::TempDir,
}

/// A worker that runs until it is told to stop.
pub struct Running {
    stop: oneshot::Sender<()>,
    worker: JoinHandle<Result<(), ff_sdk::Error>>,
}

pub async fn bed() -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let mut options = SqliteOptions::new(folder.path().join("sdk.db").to_str().unwrap());
    options.clock = clock.clone();
    let engine = SqliteBackend::open(options).await.unwrap();
    let spy = Arc::new(Spy::new(Embedded::new(engine.clone())));
    let client = Client::with_transport(spy.clone(), Namespace::new("default"));
    Bed { engine, clock, client, spy, _folder: folder }
}

impl Bed {
    /// A worker on the bed's clock.
    pub fn worker(&self) -> Worker {
        Worker::new(self.client.clone()).clock(self.clock.clone()).lease(LEASE)
    }

    /// Moves both clocks and fires whatever became due.
    pub async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.engine.engine().sweep().await.unwrap();
    }

    pub async fn submit(&self, kind: &str, payload: &str) -> ExecutionId {
        let item = Submission::new("default", kind).payload(payload);
        self.engine.submit(vec![item]).await.unwrap()[0].execution_id().unwrap().clone()
    }

    pub async fn snapshot(&self, id: &ExecutionId) -> ExecutionSnapshot {
        self.engine.describe_execution(id).await.unwrap().unwrap()
    }

    /// Waits for the end of an execution.
    pub async fn finished(&self, id: &ExecutionId) -> ExecutionSnapshot {
        self.client.run::<serde_json::Value>(id.clone()).finished().await.unwrap()
    }

    /// Waits until something has happened to an execution.
    pub async fn happened(&self, id: &ExecutionId, what: EventType) {
        let filter = EventFilter { event_types: vec![what], ..EventFilter::default() };
        let mut events = self.engine.subscribe(filter, StartAt::Oldest).await.unwrap();
        while events.next().await.unwrap().execution_id.as_ref() != Some(id) {}
    }

    pub async fn result(&self, id: &ExecutionId) -> String {
        let bytes = self.engine.result(id).await.unwrap();
        bytes.map_or_else(String::new, |bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }
}

impl Running {
    pub fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(worker.run_until(async {
            let _ = stopped.await;
        }));
        Self { stop, worker }
    }

    pub async fn stop(self) {
        self.begin_stop().await.unwrap().unwrap();
    }

    /// Asks it to stop and does not wait.
    pub fn begin_stop(self) -> JoinHandle<Result<(), ff_sdk::Error>> {
        let _ = self.stop.send(());
        self.worker
    }
}

/// Passes everything on, counts, and fails as often as it is told.
pub struct Spy {
    engine: Embedded,
    pub fail_claims: AtomicUsize,
    pub fail_renewals: AtomicUsize,
    pub fail_reports: AtomicUsize,
    pub fail_steps: AtomicUsize,
    pub claims: watch::Sender<usize>,
    pub renewals: watch::Sender<usize>,
    pub reports: watch::Sender<Vec<usize>>,
}

impl Spy {
    fn new(engine: Embedded) -> Self {
        Self {
            engine,
            fail_claims: AtomicUsize::new(0),
            fail_renewals: AtomicUsize::new(0),
            fail_reports: AtomicUsize::new(0),
            fail_steps: AtomicUsize::new(0),
            claims: watch::Sender::new(0),
            renewals: watch::Sender::new(0),
            reports: watch::Sender::new(Vec::new()),
        }
    }
}

/// Waits until a count has been reached.
pub async fn reached(count: &watch::Sender<usize>, at_least: usize) {
    count.subscribe().wait_for(|count| *count >= at_least).await.unwrap();
}

fn fails(left: &AtomicUsize) -> bool {
    let one_less = |left: usize| left.checked_sub(1);
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
}

fn away() -> EngineError {
    EngineError::Transport { backend: "spy", source: "the engine is away".into() }
}

#[async_trait]
impl Transport for Spy {
    async fn submit(&self, items: Vec<Submission>) -> Result<Vec<SubmitOutcome>, EngineError> {
        self.engine.submit(items).await
    }

    async fn register_worker(&self, args: RegisterWorkerArgs) -> Result<(), EngineError> {
        self.engine.register_worker(args).await
    }

    async fn retire_worker(&self, instance: &WorkerInstanceId) -> Result<(), EngineError> {
        self.engine.retire_worker(instance).await
    }

    async fn claim(&self, args: ClaimArgs) -> Result<Vec<ClaimedExecution>, EngineError> {
        let failing = fails(&self.fail_claims);
        self.claims.send_modify(|count| *count += 1);
        if failing { Err(away()) } else { self.engine.claim(args).await }
    }

    async fn renew(&self, handles: &[Handle]) -> Result<Vec<RenewOutcome>, EngineError> {
        let failing = fails(&self.fail_renewals);
        let outcome = if failing { Err(away()) } else { self.engine.renew(handles).await };
        self.renewals.send_modify(|count| *count += 1);
        outcome
    }

    async fn report(&self, reports: &[Report]) -> Vec<Result<(), EngineError>> {
        let failing = fails(&self.fail_reports);
        self.reports.send_modify(|sizes| sizes.push(reports.len()));
        match failing {
            true => reports.iter().map(|_| Err(away())).collect(),
            false => self.engine.report(reports).await,
        }
    }

    async fn progress(
        &self,
        handle: &Handle,
        percent: Option<u8>,
        message: Option<String>,
    ) -> Result<(), EngineError> {
        self.engine.progress(handle, percent, message).await
    }

    async fn record_step(
        &self,
        handle: &Handle,
        name: &str,
        result: Vec<u8>,
    ) -> Result<RecordStepOutcome, EngineError> {
        match fails(&self.fail_steps) {
            true => Err(away()),
            false => self.engine.record_step(handle, name, result).await,
        }
    }

    async fn sleep_step(
        &self,
        handle: &Handle,
        name: &str,
        duration: Duration,
    ) -> Result<SleepOutcome, EngineError> {
        self.engine.sleep_step(handle, name, duration).await
    }

    async fn append_frames(
        &self,
        handle: &Handle,
        args: AppendFramesArgs,
    ) -> Result<(), EngineError> {
        self.engine.append_frames(handle, args).await
    }

    async fn read_stream(&self, args: ReadStreamArgs) -> Result<StreamPage, EngineError> {
        self.engine.read_stream(args).await
    }

    async fn suspend(
        &self,
        handle: &Handle,
        args: SuspendArgs,
    ) -> Result<SuspendOutcome, EngineError> {
        self.engine.suspend(handle, args).await
    }

    async fn create_waitpoint(
        &self,
        handle: &Handle,
        args: CreateWaitpointArgs,
    ) -> Result<PendingWaitpoint, EngineError> {
        self.engine.create_waitpoint(handle, args).await
    }

    async fn list_waitpoints(
        &self,
        id: &ExecutionId,
    ) -> Result<Vec<WaitpointSnapshot>, EngineError> {
        self.engine.list_waitpoints(id).await
    }

    async fn deliver_signal(&self, args: DeliverSignalArgs) -> Result<SignalOutcome, EngineError> {
        self.engine.deliver_signal(args).await
    }

    async fn submit_flow(&self, args: SubmitFlowArgs) -> Result<SubmitFlowResult, EngineError> {
        self.engine.submit_flow(args).await
    }

    async fn extend_flow(
        &self,
        handle: &Handle,
        args: ExtendFlowArgs,
    ) -> Result<SubmitFlowResult, EngineError> {
        self.engine.extend_flow(handle, args).await
    }

    async fn wait_children(&self, handle: &Handle) -> Result<WaitChildrenResult, EngineError> {
        self.engine.wait_children(handle).await
    }

    async fn parent_results(&self, args: ParentResultsArgs) -> Result<ParentPage, EngineError> {
        self.engine.parent_results(args).await
    }

    async fn describe_flow(&self, id: &FlowId) -> Result<Option<FlowSnapshot>, EngineError> {
        self.engine.describe_flow(id).await
    }

    async fn wait_flow(
        &self,
        id: &FlowId,
        wait: Duration,
    ) -> Result<Option<FlowSnapshot>, EngineError> {
        self.engine.wait_flow(id, wait).await
    }

    async fn cancel_flow(&self, id: &FlowId, policy: CancelFlowPolicy) -> Result<(), EngineError> {
        self.engine.cancel_flow(id, policy).await
    }

    async fn report_usage(
        &self,
        handle: &Handle,
        args: ReportUsageArgs,
    ) -> Result<UsageOutcome, EngineError> {
        self.engine.report_usage(handle, args).await
    }

    async fn cancel_execution(&self, id: &ExecutionId, reason: &str) -> Result<(), EngineError> {
        self.engine.cancel_execution(id, reason).await
    }

    async fn describe(&self, id: &ExecutionId) -> Result<Option<ExecutionSnapshot>, EngineError> {
        self.engine.describe(id).await
    }

    async fn result(&self, id: &ExecutionId) -> Result<Option<Arc<[u8]>>, EngineError> {
        self.engine.result(id).await
    }

    async fn wait_finished(
        &self,
        id: &ExecutionId,
        wait: Duration,
    ) -> Result<Option<ExecutionSnapshot>, EngineError> {
        self.engine.wait_finished(id, wait).await
    }

    async fn events(
        &self,
        filter: EventFilter,
        start: StartAt,
    ) -> Result<Box<dyn EventStream>, EngineError> {
        self.engine.events(filter, start).await
    }
}
