//! Work that is done once: its result is recorded, and a handler that begins again is given it.

use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ff_core::contracts::{RecordStepOutcome, SleepOutcome};
use ff_core::types::TimestampMs;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Ctx;
use crate::failure::{Failure, INVALID_RESULT, Outcome};

/// The category of steps whose recorded result does not fit the type that the code has.
const CHANGED_STEP: &str = "changed_step";

impl Ctx {
    /// Does something once. Its result is recorded under the name; a later attempt, or the same one
    /// after a wait, is given what was recorded and does not do it again. What fails is not
    /// recorded.
    ///
    /// If the process dies after the work and before the record, the work is done again: make its
    /// effect idempotent, for example with [`Ctx::id`] and the step's name as a key.
    pub async fn step<T, F, W>(&self, name: impl AsRef<str>, work: F) -> Outcome<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> W,
        W: Future<Output = Outcome<T>>,
    {
        let name = name.as_ref();
        if let Some(recorded) = self.recorded(name) {
            return read(name, &recorded);
        }
        let value = work().await?;
        let bytes = serde_json::to_vec(&value).map_err(|error| {
            let reason = format!("the result of step {name:?} cannot be written: {error}");
            Failure::fatal(INVALID_RESULT, reason)
        })?;
        match self.record(name, bytes).await? {
            None => Ok(value),
            Some(kept) => read(name, &kept),
        }
    }

    /// Waits without holding anything: the handler is dropped, and begins again when the time has
    /// come. Steps that were done are not done again.
    pub async fn sleep(&self, name: impl AsRef<str>, duration: Duration) -> Outcome<()> {
        let name = name.as_ref();
        if self.slept(name) {
            return Ok(());
        }
        let transport = self.inner.client.transport();
        let ask = || transport.sleep_step(self.handle(), name, duration);
        match self.insist(ask).await? {
            SleepOutcome::Over { .. } => Ok(()),
            SleepOutcome::PutDown { .. } => self.give_way().await,
        }
    }

    /// Records bytes under a name. If others were recorded before, those stand and are returned.
    pub(super) async fn record(&self, name: &str, bytes: Vec<u8>) -> Outcome<Option<Arc<[u8]>>> {
        let transport = self.inner.client.transport();
        let ask = || transport.record_step(self.handle(), name, bytes.clone());
        let kept = match self.insist(ask).await? {
            RecordStepOutcome::Recorded { .. } => None,
            RecordStepOutcome::Kept { result, .. } => Some(result),
        };
        let stands = kept.clone().unwrap_or_else(|| bytes.into());
        let mut recorded = self.inner.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.insert(name.to_owned(), stands);
        Ok(kept)
    }

    /// What stands under a name, from an earlier attempt or from this one.
    pub(super) fn recorded(&self, name: &str) -> Option<Arc<[u8]>> {
        let before = self.inner.claimed.steps.iter().find(|step| step.name == name);
        if let Some(step) = before {
            return Some(step.result.clone());
        }
        let recorded = self.inner.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.get(name).cloned()
    }

    /// Whether the sleep was over when the lease was granted, by the store's clock.
    fn slept(&self, name: &str) -> bool {
        let claimed = &self.inner.claimed;
        let lease = i64::from(claimed.handle.lease_ttl_ms());
        let granted_at = TimestampMs(claimed.lease_expires_at.0 - lease);
        let sleep = claimed.steps.iter().find(|step| step.name == name);
        sleep.and_then(|step| step.due_at).is_some_and(|due_at| due_at <= granted_at)
    }
}

pub(super) fn read<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Outcome<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        let expected = std::any::type_name::<T>();
        let reason = format!("what was recorded as step {name:?} is not a {expected}: {error}");
        Failure::fatal(CHANGED_STEP, reason)
    })
}
