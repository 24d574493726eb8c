//! How a handler gives way, and how it insists on a write.

use std::future::Future;
use std::time::Duration;

use ff_core::engine_error::EngineError;

use super::Ctx;
use crate::clock::backoff;
use crate::error::Error;

/// The pauses before a write of a handler is repeated.
const RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

impl Ctx {
    /// The lease has been given back: the runner drops the handler here.
    pub(super) async fn give_way<T>(&self) -> T {
        self.inner.put_down.notify_one();
        std::future::pending().await
    }

    /// Asks again while the engine cannot be reached and the handler may go on: what has been done
    /// should not be done twice because it could not be written down at once.
    pub(super) async fn insist<T, W>(&self, mut ask: impl FnMut() -> W) -> Result<T, Error>
    where
        W: Future<Output = Result<T, EngineError>>,
    {
        let mut failures = 0;
        loop {
            let error = match ask().await {
                Err(error) if error.retryable() && !self.is_cancelled() => error,
                answer => return Ok(answer?),
            };
            tracing::warn!(execution = %self.id(), %error, "a write could not be made");
            tokio::time::sleep(backoff(failures, RETRY, LONGEST_RETRY)).await;
            failures += 1;
        }
    }
}
