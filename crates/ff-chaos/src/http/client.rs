//! A client that writes down every request before it is sent and every answer after it has come.

use std::time::Duration;

use anyhow::Context as _;
use ff_api::{
    CancelHeldRequest, CancelRequest, ClaimAnswer, ClaimRequest, CompleteRequest, CreatedToken,
    EventPage, FailAnswer, FailRequest, FailureClass, Problem, RenewAnswer, RenewOutcome,
    RenewRequest, RevokeLeaseOutcome, RevokeLeaseRequest, Span, StateAnswer, SubmitBatchAnswer,
    SubmitBatchRequest, SubmitOutcome, SubmitRequest,
};
use ff_core::contracts::{Idempotency, Submission};
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::history::{self, Grant, Lease, Op, Outcome, Phase, Recorder, Work};
use crate::workload::habits::Caller;
use crate::workload::{self, LEASE_MS};

const CLAIM_AT_ONCE: usize = 4;
const CLAIM_WAIT: Span = Span(Duration::from_millis(50));
/// How often a client asks again what became of a request, and after how long.
const REPEATS: u32 = 3;
const REPEAT_AFTER: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);

/// A refused token is not shown more often than this.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
    claim_wait: Span,
    recorder: Recorder,
}

/// Why there is no answer that counts: it was refused, or nobody knows.
pub(super) struct Unanswered {
    phase: Phase,
    code: String,
}

pub(super) type Answered<T> = Result<T, Unanswered>;

impl Client {
    pub fn new(url: &str, token: &str, recorder: Recorder) -> anyhow::Result<Self> {
        // Another part of the program may have chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build();
        let http = http.context("no client can be made")?;
        let (url, token) = (url.to_owned(), token.to_owned());
        Ok(Self { http, url, token, claim_wait: CLAIM_WAIT, recorder })
    }

    /// The same with claims that wait longer for work.
    #[must_use]
    pub fn waiting(self, claim_wait: Duration) -> Self {
        Self { claim_wait: Span(claim_wait), ..self }
    }

    /// Makes a call under a new name; `None` if it was refused or its outcome is unknown.
    pub async fn call(&self, op: &Op) -> Option<Outcome> {
        self.call_as(&self.recorder.next_op_id(), op).await
    }

    /// Makes a call under a given name, as a retry does, and asks again if the answer is lost.
    pub async fn call_as(&self, op_id: &str, op: &Op) -> Option<Outcome> {
        let mut unknown = false;
        for _ in 0..REPEATS {
            self.recorder.write(op_id, op, Phase::Invoke, None);
            match self.perform(op_id, op).await {
                Ok(outcome) => {
                    self.recorder.write(op_id, op, Phase::Ok, Some(outcome.clone()));
                    return Some(outcome);
                }
                Err(mut unanswered) => {
                    let revoked = unanswered.code == "unauthorized";
                    if revoked && unknown {
                        // The refusal of the repeat says nothing about the request before it.
                        unanswered.phase = Phase::Info;
                    }
                    let phase = self.write_unanswered(op_id, op, &unanswered);
                    unknown |= phase == Phase::Info;
                    if revoked {
                        tokio::time::sleep(REFUSED_PAUSE).await;
                    }
                    if phase != Phase::Info || !op.is_repeatable() {
                        return None;
                    }
                    tokio::time::sleep(REPEAT_AFTER).await;
                }
            }
        }
        None
    }

    /// Submits several pieces of work in one request; each is an operation of its own.
    pub async fn submit(&self, items: Vec<Work>) -> anyhow::Result<()> {
        let mut named = Vec::new();
        let mut executions = Vec::new();
        for work in items {
            let (op_id, op) = (self.recorder.next_op_id(), Op::Submit(work.clone()));
            self.recorder.write(&op_id, &op, Phase::Invoke, None);
            executions.push(request(workload::submission(&work)?));
            named.push((op_id, op));
        }
        let body = SubmitBatchRequest { executions };
        let answer: Answered<SubmitBatchAnswer> = self.post("/v1/executions/batch", &body).await;
        match answer {
            Err(unanswered) => {
                for (op_id, op) in &named {
                    self.write_unanswered(op_id, op, &unanswered);
                }
            }
            Ok(answer) => {
                for ((op_id, op), outcome) in named.iter().zip(answer.outcomes) {
                    match accepted(outcome) {
                        Ok(outcome) => self.recorder.write(op_id, op, Phase::Ok, Some(outcome)),
                        Err(unanswered) => drop(self.write_unanswered(op_id, op, &unanswered)),
                    }
                }
            }
        }
        Ok(())
    }

    /// A page of the log after a cursor; waits a little if there is nothing.
    pub async fn events(&self, query: &[(&str, String)]) -> Result<EventPage, String> {
        let answer = self.send(Method::GET, "/v1/events", query, None::<&()>).await;
        answer.map_err(|unanswered| unanswered.code)
    }

    fn write_unanswered(&self, op_id: &str, op: &Op, unanswered: &Unanswered) -> Phase {
        let outcome = Outcome::Error { code: unanswered.code.clone() };
        self.recorder.write(op_id, op, unanswered.phase, Some(outcome));
        unanswered.phase
    }

    /// Where a reason can be given it is the operation's name, so that the log tells who did it.
    async fn perform(&self, op_id: &str, op: &Op) -> Answered<Outcome> {
        match op {
            Op::Submit(work) => {
                let submission =
                    workload::submission(work).map_err(|_| refused("impossible_id"))?;
                accepted(self.post("/v1/executions", &request(submission)).await?)
            }
            Op::Claim { worker } => {
                let answer: ClaimAnswer = self.post("/v1/claims", &self.claim(worker)).await?;
                let grants = answer.executions.iter().map(grant).collect::<Answered<_>>()?;
                Ok(Outcome::Granted { grants })
            }
            Op::Renew(lease) => {
                let body = RenewRequest { handles: vec![lease.handle.clone()] };
                let answer: RenewAnswer = self.post("/v1/leases/renew", &body).await?;
                match answer.outcomes.into_iter().next() {
                    Some(RenewOutcome::Renewed { expires_at }) => {
                        Ok(Outcome::Renewed { until: expires_at.0 })
                    }
                    Some(RenewOutcome::Lost { problem }) => Err(told(problem)),
                    None => Err(refused("no_answer")),
                }
            }
            Op::Complete { lease, seed, .. } => {
                let (result, result_base64) = ff_api::bytes::write(&workload::bytes(*seed));
                let handle = lease.handle.clone();
                let body = CompleteRequest { handle, result, result_base64 };
                self.post::<_, serde_json::Value>("/v1/leases/complete", &body).await?;
                Ok(Outcome::Done)
            }
            Op::Fail { lease, fatal } => {
                let class = if *fatal { FailureClass::Fatal } else { FailureClass::Retryable };
                let (handle, reason) = (lease.handle.clone(), op_id.to_owned());
                let body = FailRequest { handle, reason, category: "chaos".into(), class };
                Ok(match self.post("/v1/leases/fail", &body).await? {
                    FailAnswer::RetryScheduled { delay_until } => {
                        Outcome::RetryScheduled { delay_until: delay_until.0 }
                    }
                    FailAnswer::TerminalFailed => Outcome::FinallyFailed,
                })
            }
            Op::GiveUp(lease) => {
                let (handle, reason) = (lease.handle.clone(), op_id.to_owned());
                let body = CancelHeldRequest { handle, reason };
                self.post::<_, serde_json::Value>("/v1/leases/cancel", &body).await?;
                Ok(Outcome::Done)
            }
            Op::Cancel { id } => {
                let body = CancelRequest { reason: op_id.to_owned() };
                self.post::<_, StateAnswer>(&at(id, "cancel"), &body).await?;
                Ok(Outcome::Done)
            }
            Op::Revoke { id } => self.revoke(op_id, id).await,
            _ => self.perform_more(op).await,
        }
    }

    async fn revoke(&self, op_id: &str, id: &str) -> Answered<Outcome> {
        let body = RevokeLeaseRequest { reason: op_id.to_owned(), ..RevokeLeaseRequest::default() };
        Ok(match self.post(&at(id, "revoke-lease"), &body).await? {
            RevokeLeaseOutcome::Revoked { lease_epoch, .. } => {
                let epoch = lease_epoch.parse().map_err(|_| refused("unreadable_epoch"))?;
                Outcome::Revoked { epoch }
            }
            RevokeLeaseOutcome::AlreadySatisfied { .. } => Outcome::Unchanged,
        })
    }

    pub(super) async fn post<B: Serialize, R: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Answered<R> {
        self.send(Method::POST, path, &[], Some(body)).await
    }

    pub(super) async fn send<B: Serialize, R: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&B>,
    ) -> Answered<R> {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).query(query);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.ask(request).await
    }

    /// Asks for something without a body, under a name that makes a repeat the same request.
    pub(super) async fn post_once<R: DeserializeOwned>(
        &self,
        path: &str,
        key: &str,
    ) -> Answered<R> {
        let request = self.http.post(format!("{}{path}", self.url));
        self.ask(request.header("Idempotency-Key", key)).await
    }

    /// A token for workers and readers, under a name of its own.
    pub(super) async fn mint(&self, rng: &mut fastrand::Rng) -> Option<CreatedToken> {
        let body = serde_json::json!({
            "name": format!("minted-{:016x}", rng.u64(..)),
            "scopes": ["work", "read", "signal"],
            "namespaces": ["*"],
        });
        self.send(Method::POST, "/v1/tokens", &[], Some(&body)).await.ok()
    }

    /// A stream of server-sent events, as its bytes come.
    pub(super) async fn stream(&self, path: &str) -> Answered<reqwest::Response> {
        let request = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        let unknown = |_| Unanswered { phase: Phase::Info, code: "unreachable".to_owned() };
        let response = request.send().await.map_err(unknown)?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(refused("refused")),
        }
    }

    fn claim(&self, worker: &str) -> ClaimRequest {
        ClaimRequest {
            lanes: workload::LANES.map(LaneId::new).to_vec(),
            capabilities: Vec::new(),
            worker_id: WorkerId::new("chaos"),
            worker_instance_id: WorkerInstanceId::new(worker),
            lease_ttl: Span::millis(u64::from(LEASE_MS)),
            max: CLAIM_AT_ONCE,
            wait: self.claim_wait,
        }
    }

    async fn ask<R: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Answered<R> {
        let unknown = |_| Unanswered { phase: Phase::Info, code: "unreachable".to_owned() };
        let response = request.bearer_auth(&self.token).send().await.map_err(unknown)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(unknown)?;
        if status.is_success() {
            let json: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
            return serde_json::from_slice(json).map_err(|_| refused("unreadable_answer"));
        }
        match serde_json::from_slice::<Problem>(&bytes) {
            Ok(problem) => Err(told(problem)),
            Err(_) => Err(Unanswered { phase: Phase::Info, code: format!("status_{status}") }),
        }
    }
}

impl Caller for Client {
    async fn call(&self, op: &Op) -> Option<Outcome> {
        Self::call(self, op).await
    }
}

/// A problem says whether the request was refused; one that may be repeated says nothing about what
/// became of it.
fn told(problem: Problem) -> Unanswered {
    let unknown = problem.retryable || problem.status >= 500;
    let phase = if unknown { Phase::Info } else { Phase::Fail };
    Unanswered { phase, code: problem.code }
}

pub(super) fn refused(code: &str) -> Unanswered {
    Unanswered { phase: Phase::Fail, code: code.to_owned() }
}

fn accepted(outcome: SubmitOutcome) -> Answered<Outcome> {
    match outcome {
        SubmitOutcome::Created { execution_id, .. } | SubmitOutcome::Duplicate { execution_id } => {
            Ok(Outcome::Accepted { id: execution_id.as_str().to_owned() })
        }
        SubmitOutcome::Refused { problem } => Err(told(problem)),
    }
}

/// `{fp:0}:uuid` needs no escaping as `0:uuid`.
pub(super) fn at(id: &str, verb: &str) -> String {
    format!("/v1/executions/{}/{verb}", id.replace("{fp:", "").replace('}', ""))
}

pub(super) fn request(submission: Submission) -> SubmitRequest {
    let (payload, payload_base64) = ff_api::bytes::write(&submission.input_payload);
    SubmitRequest {
        execution_id: submission.execution_id,
        lane_id: submission.lane_id,
        execution_kind: submission.execution_kind,
        payload,
        payload_base64,
        priority: submission.priority,
        idempotency_key: submission.idempotency.map(|Idempotency { key, .. }| key),
        tags: submission.tags,
        policy: submission.policy,
        delay: submission.delay.map(Span),
        deadline: submission.deadline.map(Span),
        ..SubmitRequest::default()
    }
}

fn grant(claimed: &ff_api::ClaimedExecution) -> Answered<Grant> {
    let payload = claimed.bytes().map_err(|_| refused("unreadable_payload"))?.unwrap_or_default();
    let lease = Lease {
        id: claimed.execution_id.as_str().to_owned(),
        epoch: claimed.lease_epoch,
        handle: claimed.handle.clone(),
    };
    let steps = workload::durable::named(&claimed.steps).collect();
    Ok(Grant { lease, payload: history::hash(&payload), steps })
}
