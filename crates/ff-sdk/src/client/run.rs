//! One execution as the program that started it sees it.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use ff_core::contracts::ExecutionSnapshot;
use ff_core::state::PublicState;
use ff_core::types::ExecutionId;
use serde::de::DeserializeOwned;

use super::Client;
use crate::error::Error;

/// How long one request waits for the end before it is asked again.
const WAIT: Duration = Duration::from_secs(20);

/// An execution whose result has the type `O`. Dropping it stops nothing.
pub struct Run<O> {
    client: Client,
    id: ExecutionId,
    created: bool,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> Run<O> {
    pub(super) fn new(client: Client, id: ExecutionId, created: bool) -> Self {
        Self { client, id, created, output: PhantomData }
    }

    pub fn id(&self) -> &ExecutionId {
        &self.id
    }

    /// Whether this call brought it into being; if not, the same work was there before.
    pub fn created(&self) -> bool {
        self.created
    }

    /// Waits for the end and gives the result. An execution that did not complete is an error
    /// that says how it ended.
    pub async fn result(&self) -> Result<O, Error> {
        let snapshot = self.finished().await?;
        if snapshot.public_state != PublicState::Completed {
            return Err(Error::NotCompleted {
                execution_id: self.id.clone(),
                state: snapshot.public_state,
                category: snapshot.failure_category,
                reason: snapshot.failure_reason.or(snapshot.cancellation_reason),
            });
        }
        let bytes = self.client.transport.result(&self.id).await?;
        let bytes = bytes.as_deref().unwrap_or(b"null");
        serde_json::from_slice(bytes).map_err(|source| Error::Json { what: "result", source })
    }

    /// Waits for the end, whichever it is.
    pub async fn finished(&self) -> Result<ExecutionSnapshot, Error> {
        loop {
            if let Some(snapshot) = self.client.transport.wait_finished(&self.id, WAIT).await? {
                return Ok(snapshot);
            }
        }
    }

    pub async fn describe(&self) -> Result<ExecutionSnapshot, Error> {
        self.client.describe(&self.id).await?.ok_or_else(Error::not_found)
    }

    pub async fn cancel(&self, reason: &str) -> Result<(), Error> {
        self.client.cancel(&self.id, reason).await
    }
}

impl<O> fmt::Debug for Run<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Run({})", self.id)
    }
}
