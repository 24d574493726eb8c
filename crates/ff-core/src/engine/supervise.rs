//! Keeps what runs for as long as an engine going: a task that panics is logged and started again.
//!
//! A panic is a bug, and a bug in one batch, timer or message must not silently end everything that
//! comes after it.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The pause after a first panic. Each that follows soon doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// A task that ran for so long since its last panic starts with a short pause again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// The longest pause of a task that no caller waits for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Runs a future to its end, or to the panic that ends it.
pub async fn caught<F: Future>(work: F) -> Result<F::Output, String> {
    let mut work = pin!(work);
    poll_fn(move |context| {
        // What the future shares with others is behind locks that outlive a panic.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(panic) => Poll::Ready(Err(message_of(&*panic))),
        }
    })
    .await
}

/// What a panic says.
pub fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Runs a task until it ends by itself. After a panic it is made anew, with a growing pause.
pub async fn supervise<Fut>(task: &'static str, mut start: impl FnMut() -> Fut)
where
    Fut: Future<Output = ()>,
{
    let mut restarts = Restarts::new(task, LONGEST_PAUSE);
    while let Err(why) = caught(start()).await {
        restarts.pause_after(&why).await;
    }
}

/// How often a task has panicked lately.
pub(super) struct Restarts {
    task: &'static str,
    pause: Duration,
    longest: Duration,
    last: Option<Instant>,
}

impl Restarts {
    pub fn new(task: &'static str, longest: Duration) -> Self {
        Self { task, pause: FIRST_PAUSE, longest, last: None }
    }

    /// Tells of a panic and waits before the task is started again, so that it never spins.
    pub async fn pause_after(&mut self, why: &str) {
        let now = Instant::now();
        let soon = self.last.is_some_and(|last| now - last < FORGOTTEN_AFTER + self.pause);
        self.pause = if soon { (self.pause * 2).min(self.longest) } else { FIRST_PAUSE };
        self.last = Some(now);
        let (task, pause_ms) = (self.task, self.pause.as_millis());
        tracing::error!(task, why, pause_ms, "a task of the engine panicked and is started again");
        tokio::time::sleep(self.pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_goes_on_until_it_ends() {
        let started = Arc::new(AtomicU32::new(0));
        let counted = started.clone();
        let begun = tokio::time::Instant::now();
        supervise("test", move || {
            let counted = counted.clone();
            async move {
                tokio::task::yield_now().await;
                assert!(counted.fetch_add(1, Ordering::Relaxed) >= 4, "not yet");
            }
        })
        .await;
        assert_eq!(started.load(Ordering::Relaxed), 5);
        let paused = begun.elapsed();
        assert!(paused >= FIRST_PAUSE * (1 + 2 + 4 + 8), "pauses grow: {paused:?}");
    }

    #[tokio::test]
    async fn a_panic_tells_what_it_said() {
        let why = caught(async { panic!("because of {}", 7) }).await;
        assert_eq!(why, Err::<(), _>("because of 7".to_owned()));
        assert_eq!(caught(async { 7 }).await, Ok(7));
    }
}
