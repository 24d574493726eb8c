//! One task on its way to the engine.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use ff_core::contracts::{Amounts, Submission, SubmitOutcome};
use ff_core::types::ExecutionId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, Run};
use crate::error::Error;
use crate::task::{self, Retry, Task};

/// The encoding of every input that the SDK writes.
const JSON: &str = "json";

/// A task that is submitted when this is awaited.
#[must_use = "nothing is submitted until it is awaited"]
pub struct Start<O> {
    client: Client,
    submission: Submission,
    retry: Option<Retry>,
    timeout: Option<Duration>,
    requires: Vec<String>,
    budgets: Vec<String>,
    estimate: Amounts,
    invalid: Option<serde_json::Error>,
    output: PhantomData<fn() -> O>,
}

impl<O> Start<O> {
    pub(super) fn new<I: Serialize>(client: Client, task: Task<I, O>, input: &I) -> Self {
        let mut submission = Submission::new(task.lane, task.kind);
        submission.namespace = client.namespace.clone();
        submission.payload_encoding = Some(JSON.to_owned());
        let mut invalid = None;
        match serde_json::to_vec(input) {
            Ok(bytes) => submission.input_payload = bytes,
            Err(error) => invalid = Some(error),
        }
        Self {
            client,
            submission,
            retry: task.retry,
            timeout: task.timeout,
            requires: Vec::new(),
            budgets: Vec::new(),
            estimate: Amounts::new(),
            invalid,
            output: PhantomData,
        }
    }

    /// The lane, if not the task's own.
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.submission.lane_id.0 = lane.into();
        self
    }

    /// Under an identity of the caller's choice.
    pub fn id(mut self, id: ExecutionId) -> Self {
        self.submission = self.submission.id(id);
        self
    }

    /// The same key stands for the same work: a repeat gives the first one's [`Run`].
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.submission = self.submission.idempotency_key(key);
        self
    }

    /// As [`Start::idempotency_key`], and the key is free again once the execution has finished.
    pub fn unique_until_finished(mut self, key: impl Into<String>) -> Self {
        self.submission = self.submission.unique_until_finished(key);
        self
    }

    /// From 0 to 9000; the higher, the sooner.
    pub fn priority(mut self, priority: i32) -> Self {
        self.submission = self.submission.priority(priority);
        self
    }

    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.submission = self.submission.tag(key, value);
        self
    }

    /// Not handed out before this much time has passed.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.submission = self.submission.delay(delay);
        self
    }

    /// Expires when it is not finished after this much time.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.submission = self.submission.deadline(deadline);
        self
    }

    /// How failures are tried again, if not as the task says.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// How long an attempt may take, if not as the task says.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Only workers that offer this capability are given it.
    pub fn requires(mut self, capability: impl Into<String>) -> Self {
        self.requires.push(capability.into());
        self
    }

    /// Charged to a budget of its namespace, besides those that apply to it anyway. While the
    /// budget has no room it is not handed out.
    pub fn budget(mut self, budget: impl Into<String>) -> Self {
        self.budgets.push(budget.into());
        self
    }

    /// What one attempt is expected to use of its budgets, if not as they say themselves.
    pub fn estimate(mut self, dimension: impl Into<String>, amount: u64) -> Self {
        self.estimate.insert(dimension.into(), amount);
        self
    }

    /// What would be submitted, for [`Client::submit`] of many at once.
    pub fn into_submission(mut self) -> Result<Submission, Error> {
        if let Some(source) = self.invalid {
            return Err(Error::Json { what: "input", source });
        }
        self.submission.policy = task::policy(self.retry, self.timeout);
        if !self.requires.is_empty() {
            let policy = self.submission.policy.get_or_insert_default();
            policy.routing_requirements.required_capabilities.extend(self.requires);
        }
        if !self.budgets.is_empty() || !self.estimate.is_empty() {
            let policy = self.submission.policy.get_or_insert_default();
            (policy.budget_ids, policy.budget_estimate) = (self.budgets, self.estimate);
        }
        Ok(self.submission)
    }
}

impl<O: DeserializeOwned + 'static> IntoFuture for Start<O> {
    type Output = Result<Run<O>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let client = self.client.clone();
        let submission = self.into_submission();
        Box::pin(async move {
            let outcomes = client.transport.submit(vec![submission?]).await?;
            match outcomes.into_iter().next() {
                Some(SubmitOutcome::Created { execution_id, .. }) => {
                    Ok(Run::new(client, execution_id, true))
                }
                Some(SubmitOutcome::Duplicate { execution_id }) => {
                    Ok(Run::new(client, execution_id, false))
                }
                Some(SubmitOutcome::Refused(error)) => Err(error.into()),
                None => Err(Error::config("the engine did not answer for the submitted item")),
            }
        })
    }
}
