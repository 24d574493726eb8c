//! Waiting for somebody: people who approve, services that call back.

use std::time::Duration;

use ff_core::condition::ResumeCondition;
use ff_core::contracts::{
    CreateWaitpointArgs, ResumeSignal, SuspendArgs, SuspendOutcome, TIMEOUT_SIGNAL,
    TimeoutBehavior, WaitpointBinding, WaitpointGrant, WaitpointState,
};
use serde::de::DeserializeOwned;

use super::Ctx;
use crate::error::Error;
use crate::failure::{Failure, Outcome};

/// The category of signals whose payload is not what the handler waits for.
const INVALID_SIGNAL: &str = "invalid_signal";

impl Ctx {
    /// Waits without holding anything until [`Client::signal`](crate::Client::signal) says
    /// something under this name. The handler is dropped, and begins again when it has come. The
    /// payload is read as JSON; without one it is `null`.
    ///
    /// A name is waited for once: a handler that asks again is given the same signal again.
    pub async fn wait_for_signal<T: DeserializeOwned>(&self, name: impl AsRef<str>) -> Outcome<T> {
        let name = name.as_ref();
        let args = SuspendArgs::new(ResumeCondition::any_signal(name));
        let signals = self.wait_for(name, args).await?;
        read(name, signals.first())
    }

    /// The same, but not for ever: `None` if nothing came in time.
    pub async fn wait_for_signal_within<T: DeserializeOwned>(
        &self,
        name: impl AsRef<str>,
        time: Duration,
    ) -> Outcome<Option<T>> {
        let name = name.as_ref();
        let args = SuspendArgs::new(ResumeCondition::any_signal(name));
        let args = args.timeout(time, TimeoutBehavior::AutoResumeWithTimeoutSignal);
        let signals = self.wait_for(name, args).await?;
        match signals.iter().find(|signal| signal.signal_name != TIMEOUT_SIGNAL) {
            Some(signal) => read(name, Some(signal)).map(Some),
            None => Ok(None),
        }
    }

    /// Waits for whatever a condition says, and gives the signals that met it. The name is that of
    /// the wait; the condition has names of its own for its waitpoints.
    pub async fn wait_for(&self, name: &str, args: SuspendArgs) -> Outcome<Vec<ResumeSignal>> {
        // Only who makes a waitpoint ahead gets a token, so none is made here.
        let mut args = args.without_tokens().idempotency_key(name);
        self.use_pending(&mut args).await?;
        let transport = self.inner.client.transport();
        match self.insist(|| transport.suspend(self.handle(), args.clone())).await? {
            SuspendOutcome::AlreadySatisfied { signals, .. } => Ok(signals),
            SuspendOutcome::Suspended(_) => self.give_way().await,
        }
    }

    /// Makes the waitpoint of a later wait ahead of it, with a token that lets whoever has it
    /// signal it: for a link in a message. What is signalled before the wait is kept for it. It
    /// closes if nothing waits for it within the time.
    pub async fn waitpoint(&self, name: &str, within: Duration) -> Result<WaitpointGrant, Error> {
        let args = CreateWaitpointArgs::new(name, within);
        let transport = self.inner.client.transport();
        let made = self.insist(|| transport.create_waitpoint(self.handle(), args.clone())).await?;
        Ok(made.waitpoint)
    }

    /// Takes up waitpoints that were made ahead, perhaps by an attempt before this one.
    async fn use_pending(&self, args: &mut SuspendArgs) -> Result<(), Error> {
        let transport = self.inner.client.transport();
        let made = self.insist(|| transport.list_waitpoints(self.id())).await?;
        for binding in &mut args.waitpoints {
            let WaitpointBinding::Fresh { waitpoint_key, .. } = binding else { continue };
            let pending = made.iter().find(|one| {
                one.state == WaitpointState::Pending && one.waitpoint_key == *waitpoint_key
            });
            if let Some(pending) = pending {
                *binding = WaitpointBinding::UsePending { waitpoint_id: pending.waitpoint_id };
            }
        }
        Ok(())
    }
}

fn read<T: DeserializeOwned>(name: &str, signal: Option<&ResumeSignal>) -> Outcome<T> {
    let bytes = signal.and_then(|signal| signal.payload.as_deref()).unwrap_or(b"null");
    serde_json::from_slice(bytes).map_err(|error| {
        let expected = std::any::type_name::<T>();
        let reason = format!("the signal {name:?} does not carry a {expected}: {error}");
        Failure::fatal(INVALID_SIGNAL, reason)
    })
}
