//! The engine behind a server. Whatever the server answers becomes the error that an engine in the
//! same process would have given.

mod events;
mod problem;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ff_api::{
    AppendFramesRequest, CancelFlowRequest, CancelRequest, ClaimAnswer, CreateWaitpointRequest,
    ExecutionResult, ExtendFlowRequest, LeaseBatchAnswer, LeaseBatchRequest, LeaseOperation,
    LeaseOutcome, ParentsAnswer, ProgressRequest, RecordStepRequest, RegisterWorkerRequest,
    RenewAnswer, RenewRequest, ReportUsageRequest, SleepStepRequest, Span, SubmitBatchAnswer,
    SubmitBatchRequest, SuspendRequest, TokenSignalRequest, WaitChildrenRequest, bytes,
};
use ff_core::backend::{CancelFlowPolicy, Handle};
use ff_core::contracts::{
    AppendFramesArgs, ClaimArgs, ClaimedExecution, CreateWaitpointArgs, DeliverSignalArgs,
    EventFilter, ExecutionSnapshot, ExtendFlowArgs, FlowSnapshot, ParentPage, ParentResultsArgs,
    PendingWaitpoint, ReadStreamArgs, RecordStepOutcome, RegisterWorkerArgs, RenewOutcome,
    ReportUsageArgs, SignalOutcome, SignalTarget, SleepOutcome, StreamPage, Submission,
    SubmitFlowArgs, SubmitFlowResult, SubmitOutcome, SuspendArgs, SuspendOutcome, UsageOutcome,
    WaitChildrenResult, WaitpointPage, WaitpointSnapshot,
};
use ff_core::engine::StartAt;
use ff_core::engine_error::EngineError;
use ff_core::limits;
use ff_core::types::{ExecutionId, FlowId, Namespace, WorkerInstanceId};
use reqwest::Method;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::{EventStream, Report, Transport};
use crate::error::Error;
use events::HttpEvents;

/// Where a client that is told nothing else finds its server.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7411";

const CONNECT: Duration = Duration::from_secs(5);
/// How long a request may take besides the time that it asks the server to wait.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many leases one request may speak of.
const BATCH: usize = 1_000;
/// How many bytes of results one request may carry; the server takes twice as much.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Where a server is, and who asks.
#[derive(Clone)]
pub struct HttpOptions {
    pub url: String,
    pub token: Option<String>,
    /// The namespace to act in; the token's own if there is none.
    pub namespace: Option<Namespace>,
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("url", &self.url)
            .field("token", &self.token.as_ref().map(|_| "redacted"))
            .field("namespace", &self.namespace)
            .finish()
    }
}

impl HttpOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), token: None, namespace: None }
    }

    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(Namespace::new(namespace));
        self
    }
}

#[derive(Clone)]
pub struct Http {
    client: reqwest::Client,
    options: Arc<HttpOptions>,
}

impl Http {
    pub fn new(mut options: HttpOptions) -> Result<Self, Error> {
        let wrong = |error: &dyn std::fmt::Display| {
            Error::config(format!("the server's URL {:?} cannot be used: {error}", options.url))
        };
        let url = reqwest::Url::parse(&options.url).map_err(|error| wrong(&error))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong(&"it is neither http nor https"));
        }
        options.url = options.url.trim_end_matches('/').to_owned();
        Ok(Self { client: client()?, options: Arc::new(options) })
    }

    async fn get<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        wait: Duration,
    ) -> Result<A, EngineError> {
        let request = self.request(Method::GET, path, wait).query(query);
        answer(request).await
    }

    async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<A, EngineError> {
        answer(self.request(Method::POST, path, wait).json(body)).await
    }

    fn request(&self, method: Method, path: &str, wait: Duration) -> reqwest::RequestBuilder {
        let url = format!("{}{path}", self.options.url);
        let mut request = self.client.request(method, url).timeout(wait + PATIENCE);
        if let Some(token) = &self.options.token {
            request = request.bearer_auth(token);
        }
        if let Some(namespace) = &self.options.namespace {
            request = request.query(&[("namespace", namespace.as_str())]);
        }
        request
    }

    async fn outcome(
        &self,
        id: &ExecutionId,
        wait: Duration,
    ) -> Result<ExecutionResult, EngineError> {
        let query = [("wait", Span(wait).to_string())];
        self.get(&format!("{}/result", at(id)), &query, wait).await
    }

    async fn report_some(&self, reports: &[Report]) -> Result<Outcomes, EngineError> {
        let operations = reports.iter().map(wire::operation).collect();
        let body = LeaseBatchRequest { operations };
        let answer: LeaseBatchAnswer = self.post("/v1/leases/batch", &body, Duration::ZERO).await?;
        let mut outcomes = answer.outcomes.into_iter();
        let outcome = |_| match outcomes.next() {
            Some(LeaseOutcome::Refused { problem }) => Err(problem::engine_error(problem)),
            Some(_) => Ok(()),
            None => Err(problem::missing()),
        };
        Ok(reports.iter().map(outcome).collect())
    }
}

type Outcomes = Vec<Result<(), EngineError>>;

fn client() -> Result<reqwest::Client, Error> {
    // Whoever came first has installed one already, and any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .user_agent(concat!("ff-sdk/", env!("CARGO_PKG_VERSION")))
        .build();
    client.map_err(|error| Error::config(format!("no HTTP client can be made: {error}")))
}

/// An execution's place in an address: its identity without braces.
fn at(id: &ExecutionId) -> String {
    let key = id.key();
    format!("/v1/executions/{}:{}", key.partition, key.id.hyphenated())
}

fn at_flow(id: &FlowId) -> String {
    format!("/v1/flows/{}", id.0.hyphenated())
}

/// What is not there is no error to whoever asks whether it is.
fn found<A>(answer: Result<A, EngineError>) -> Result<Option<A>, EngineError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(EngineError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn answer<A: DeserializeOwned>(request: reqwest::RequestBuilder) -> Result<A, EngineError> {
    let response = request.send().await.map_err(|error| problem::unreachable(&error))?;
    let status = response.status();
    let bytes = response.bytes().await.map_err(|error| problem::unreachable(&error))?;
    if !status.is_success() {
        return Err(problem::refused(status, &bytes));
    }
    let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
    serde_json::from_slice(bytes).map_err(|error| problem::unreadable(&error))
}

#[async_trait]
impl Transport for Http {
    /// Connections live in the runtime that opened them, so the thread that keeps leases needs
    /// some of its own.
    fn apart(&self) -> Option<Arc<dyn Transport>> {
        let client = client().ok()?;
        Some(Arc::new(Self { client, options: self.options.clone() }))
    }

    async fn submit(&self, items: Vec<Submission>) -> Result<Vec<SubmitOutcome>, EngineError> {
        let namespace = self.options.namespace.as_ref();
        let executions = items.into_iter().map(|item| wire::submission(item, namespace));
        let body = SubmitBatchRequest { executions: executions.collect::<Result<_, _>>()? };
        let answer: SubmitBatchAnswer =
            self.post("/v1/executions/batch", &body, Duration::ZERO).await?;
        Ok(answer.outcomes.into_iter().map(wire::submit_outcome).collect())
    }

    async fn register_worker(&self, args: RegisterWorkerArgs) -> Result<(), EngineError> {
        let body = RegisterWorkerRequest {
            worker_id: args.worker_id,
            worker_instance_id: args.worker_instance_id,
            lanes: args.lanes,
            capabilities: args.capabilities,
            liveness_ttl: Span::millis(args.liveness_ttl_ms),
        };
        self.post::<IgnoredAny>("/v1/workers", &body, Duration::ZERO).await.map(drop)
    }

    async fn retire_worker(&self, instance: &WorkerInstanceId) -> Result<(), EngineError> {
        let path = format!("/v1/workers/{}", wire::segment(instance.as_str()));
        answer::<IgnoredAny>(self.request(Method::DELETE, &path, Duration::ZERO)).await.map(drop)
    }

    async fn claim(&self, args: ClaimArgs) -> Result<Vec<ClaimedExecution>, EngineError> {
        let wait = args.wait;
        let answer: ClaimAnswer = self.post("/v1/claims", &wire::claim(args), wait).await?;
        answer.executions.into_iter().map(wire::claimed).collect()
    }

    async fn renew(&self, handles: &[Handle]) -> Result<Vec<RenewOutcome>, EngineError> {
        let mut outcomes = Vec::with_capacity(handles.len());
        for handles in handles.chunks(BATCH) {
            let body = RenewRequest { handles: handles.iter().map(Handle::encode).collect() };
            let answer: RenewAnswer = self.post("/v1/leases/renew", &body, Duration::ZERO).await?;
            outcomes.extend(answer.outcomes.into_iter().map(wire::renew_outcome));
        }
        Ok(outcomes)
    }

    async fn report(&self, reports: &[Report]) -> Vec<Result<(), EngineError>> {
        let mut outcomes = Vec::with_capacity(reports.len());
        let mut left = reports;
        let mut most = usize::MAX;
        while !left.is_empty() {
            let (some, rest) = left.split_at(batch(left).min(most));
            match self.report_some(some).await {
                Ok(told) => outcomes.extend(told),
                Err(error) if some.len() > 1 && problem::is_too_large(&error) => {
                    most = some.len() / 2;
                    continue;
                }
                Err(error) => {
                    let told = |_| Err(problem::of_report(&error, some.len() == 1));
                    outcomes.extend(some.iter().map(told));
                }
            }
            left = rest;
        }
        outcomes
    }

    async fn progress(
        &self,
        handle: &Handle,
        percent: Option<u8>,
        message: Option<String>,
    ) -> Result<(), EngineError> {
        let body = ProgressRequest { handle: handle.encode(), percent, message };
        let operations = vec![LeaseOperation::Progress(body)];
        let body = LeaseBatchRequest { operations };
        let answer: LeaseBatchAnswer = self.post("/v1/leases/batch", &body, Duration::ZERO).await?;
        match answer.outcomes.into_iter().next() {
            Some(LeaseOutcome::Refused { problem }) => Err(problem::engine_error(problem)),
            Some(_) => Ok(()),
            None => Err(problem::missing()),
        }
    }

    async fn record_step(
        &self,
        handle: &Handle,
        name: &str,
        result: Vec<u8>,
    ) -> Result<RecordStepOutcome, EngineError> {
        let (result, result_base64) = bytes::write(&result);
        let (handle, name) = (handle.encode(), name.to_owned());
        let body = RecordStepRequest { handle, name, result, result_base64 };
        self.post("/v1/leases/steps", &body, Duration::ZERO).await
    }

    async fn sleep_step(
        &self,
        handle: &Handle,
        name: &str,
        duration: Duration,
    ) -> Result<SleepOutcome, EngineError> {
        let (handle, name) = (handle.encode(), name.to_owned());
        let body = SleepStepRequest { handle, name, duration: Span(duration) };
        self.post("/v1/leases/sleep", &body, Duration::ZERO).await
    }

    async fn append_frames(
        &self,
        handle: &Handle,
        args: AppendFramesArgs,
    ) -> Result<(), EngineError> {
        let AppendFramesArgs { frames, append_id } = args;
        let body = AppendFramesRequest { handle: handle.encode(), frames, append_id };
        self.post::<IgnoredAny>("/v1/leases/frames", &body, Duration::ZERO).await.map(drop)
    }

    async fn read_stream(&self, args: ReadStreamArgs) -> Result<StreamPage, EngineError> {
        let path = format!("{}/stream", at(&args.execution_id));
        let wait = Duration::from_millis(args.wait_ms);
        self.get(&path, &wire::stream_query(&args), wait).await
    }

    async fn suspend(
        &self,
        handle: &Handle,
        args: SuspendArgs,
    ) -> Result<SuspendOutcome, EngineError> {
        let body = SuspendRequest { handle: handle.encode(), suspension: args };
        let answer = self.post("/v1/leases/suspend", &body, Duration::ZERO).await?;
        wire::suspended(answer)
    }

    async fn create_waitpoint(
        &self,
        handle: &Handle,
        args: CreateWaitpointArgs,
    ) -> Result<PendingWaitpoint, EngineError> {
        let body = CreateWaitpointRequest { handle: handle.encode(), waitpoint: args };
        self.post("/v1/leases/waitpoints", &body, Duration::ZERO).await
    }

    async fn list_waitpoints(
        &self,
        id: &ExecutionId,
    ) -> Result<Vec<WaitpointSnapshot>, EngineError> {
        let query = [("limit", limits::PAGE.to_string())];
        let path = format!("{}/waitpoints", at(id));
        let page: WaitpointPage = self.get(&path, &query, Duration::ZERO).await?;
        Ok(page.waitpoints)
    }

    async fn deliver_signal(&self, args: DeliverSignalArgs) -> Result<SignalOutcome, EngineError> {
        let (target, signal) = wire::signal_request(args);
        match target {
            SignalTarget::Token(token) => {
                let token = token.as_str().to_owned();
                let body = TokenSignalRequest { token, signal };
                self.post("/v1/signals", &body, Duration::ZERO).await
            }
            SignalTarget::Waitpoint { execution_id, waitpoint_id } => {
                let waitpoint = waitpoint_id.0.hyphenated();
                let path = format!("{}/waitpoints/{waitpoint}/signal", at(&execution_id));
                self.post(&path, &signal, Duration::ZERO).await
            }
        }
    }

    async fn submit_flow(&self, args: SubmitFlowArgs) -> Result<SubmitFlowResult, EngineError> {
        let body = wire::flow(args, self.options.namespace.as_ref())?;
        self.post("/v1/flows", &body, Duration::ZERO).await
    }

    async fn extend_flow(
        &self,
        handle: &Handle,
        args: ExtendFlowArgs,
    ) -> Result<SubmitFlowResult, EngineError> {
        let nodes = wire::joining(args.nodes)?;
        let body = ExtendFlowRequest { handle: handle.encode(), nodes, edges: args.edges };
        self.post("/v1/leases/extend-flow", &body, Duration::ZERO).await
    }

    async fn wait_children(&self, handle: &Handle) -> Result<WaitChildrenResult, EngineError> {
        let body = WaitChildrenRequest { handle: handle.encode() };
        self.post("/v1/leases/wait-children", &body, Duration::ZERO).await
    }

    async fn parent_results(&self, args: ParentResultsArgs) -> Result<ParentPage, EngineError> {
        let path = format!("{}/parents", at(&args.execution_id));
        let mut query = Vec::new();
        query.extend(args.after.map(|after| ("after", after.to_string())));
        query.extend((args.limit > 0).then(|| ("limit", args.limit.to_string())));
        let answer: ParentsAnswer = self.get(&path, &query, Duration::ZERO).await?;
        let parents = answer.parents.into_iter().map(wire::parent).collect::<Result<_, _>>()?;
        Ok(ParentPage { parents, next_after: answer.next_after })
    }

    async fn describe_flow(&self, id: &FlowId) -> Result<Option<FlowSnapshot>, EngineError> {
        found(self.get(&at_flow(id), &[], Duration::ZERO).await)
    }

    async fn wait_flow(
        &self,
        id: &FlowId,
        wait: Duration,
    ) -> Result<Option<FlowSnapshot>, EngineError> {
        let query = [("wait", Span(wait).to_string())];
        let flow: FlowSnapshot = self.get(&at_flow(id), &query, wait).await?;
        Ok(Some(flow).filter(|flow| flow.status.is_finished()))
    }

    async fn cancel_flow(&self, id: &FlowId, policy: CancelFlowPolicy) -> Result<(), EngineError> {
        let body = CancelFlowRequest { policy, wait: None };
        let path = format!("{}/cancel", at_flow(id));
        self.post::<IgnoredAny>(&path, &body, Duration::ZERO).await.map(drop)
    }

    async fn report_usage(
        &self,
        handle: &Handle,
        args: ReportUsageArgs,
    ) -> Result<UsageOutcome, EngineError> {
        let ReportUsageArgs { budget_id, amounts, dedup_key } = args;
        let handle = handle.encode();
        let body = ReportUsageRequest { handle, budget_id, amounts, dedup_key };
        self.post("/v1/leases/usage", &body, Duration::ZERO).await
    }

    async fn cancel_execution(&self, id: &ExecutionId, reason: &str) -> Result<(), EngineError> {
        let body = CancelRequest { reason: reason.to_owned() };
        let path = format!("{}/cancel", at(id));
        self.post::<IgnoredAny>(&path, &body, Duration::ZERO).await.map(drop)
    }

    async fn describe(&self, id: &ExecutionId) -> Result<Option<ExecutionSnapshot>, EngineError> {
        found(self.get(&at(id), &[], Duration::ZERO).await)
    }

    async fn result(&self, id: &ExecutionId) -> Result<Option<Arc<[u8]>>, EngineError> {
        let outcome = self.outcome(id, Duration::ZERO).await?;
        Ok(outcome.bytes().map_err(|error| problem::unreadable(&error))?.map(Into::into))
    }

    async fn wait_finished(
        &self,
        id: &ExecutionId,
        wait: Duration,
    ) -> Result<Option<ExecutionSnapshot>, EngineError> {
        match self.outcome(id, wait).await?.finished {
            true => self.describe(id).await,
            false => Ok(None),
        }
    }

    async fn events(
        &self,
        filter: EventFilter,
        start: StartAt,
    ) -> Result<Box<dyn EventStream>, EngineError> {
        let events = HttpEvents::open(self.clone(), filter, start).await?;
        Ok(Box::new(events))
    }
}

/// How many reports go into the next request: at least one, however large it is.
fn batch(reports: &[Report]) -> usize {
    let mut bytes = 0;
    let fits = |report: &&Report| {
        bytes += wire::size(report);
        bytes <= BATCH_BYTES
    };
    reports.iter().take(BATCH).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_not_logged() {
        let shown = format!("{:?}", HttpOptions::new(DEFAULT_URL).token("whisper"));
        assert!(!shown.contains("whisper") && shown.contains(DEFAULT_URL), "{shown}");
    }
}
