//! What a handler knows about its execution and can do for it.

mod child;
mod flow;
mod signal;
mod step;
mod stream;
mod usage;
mod wait;

pub use flow::Growth;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use ff_core::backend::Handle;
use ff_core::contracts::ClaimedExecution;
use ff_core::state::AttemptType;
use ff_core::types::{ExecutionId, LaneId, Namespace, TimestampMs};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::error::Error;
use crate::extract::States;

/// One attempt at an execution. Cheap to clone.
#[derive(Clone)]
pub struct Ctx {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub claimed: ClaimedExecution,
    pub client: Client,
    pub states: States,
    pub stop: CancellationToken,
    /// Rung when the lease has been given back and the handler is to be dropped.
    pub put_down: Notify,
    /// Steps that this attempt has recorded, by name.
    recorded: Mutex<BTreeMap<String, Arc<[u8]>>>,
}

impl Ctx {
    pub(crate) fn new(
        claimed: ClaimedExecution,
        client: Client,
        states: States,
        stop: CancellationToken,
    ) -> Self {
        let (put_down, recorded) = (Notify::new(), Mutex::default());
        Self { inner: Arc::new(Inner { claimed, client, states, stop, put_down, recorded }) }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.inner.claimed.handle
    }

    pub fn id(&self) -> &ExecutionId {
        &self.inner.claimed.execution_id
    }

    pub fn kind(&self) -> &str {
        &self.inner.claimed.execution_kind
    }

    pub fn lane(&self) -> &LaneId {
        &self.inner.claimed.lane_id
    }

    pub fn namespace(&self) -> &Namespace {
        &self.inner.claimed.namespace
    }

    /// Which attempt this is; the first is 0.
    pub fn attempt(&self) -> u32 {
        self.inner.claimed.attempt_index
    }

    /// Why this attempt began.
    pub fn attempt_type(&self) -> AttemptType {
        self.inner.claimed.attempt_type
    }

    pub fn tags(&self) -> &BTreeMap<String, String> {
        &self.inner.claimed.tags
    }

    pub fn created_at(&self) -> TimestampMs {
        self.inner.claimed.created_at
    }

    /// When the execution expires, by the store's clock.
    pub fn deadline(&self) -> Option<TimestampMs> {
        self.inner.claimed.deadline_at
    }

    /// The client of the worker, to submit more work.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Returns when the handler should stop: its lease is gone, its execution was cancelled, or the
    /// worker shuts down and will not wait any longer. Soon after that the handler is dropped.
    pub async fn cancelled(&self) {
        self.inner.stop.cancelled().await;
    }

    pub fn is_cancelled(&self) -> bool {
        self.inner.stop.is_cancelled()
    }

    /// The same as [`Ctx::cancelled`] as a token, for code that takes one.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.inner.stop.child_token()
    }

    /// Shows how far the attempt has come; `describe` answers it.
    pub async fn progress(&self, percent: u8, message: impl Into<String>) -> Result<(), Error> {
        let (transport, message) = (self.inner.client.transport(), message.into());
        Ok(transport.progress(self.handle(), Some(percent), Some(message)).await?)
    }
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ctx({} {}, attempt {})", self.kind(), self.id(), self.attempt())
    }
}
