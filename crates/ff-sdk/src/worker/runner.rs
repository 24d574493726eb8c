//! Runs one handler to its end, or stops it.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Setup, UnknownKind};
use crate::clock::pause;
use crate::ctx::Ctx;
use crate::failure::{Failure, PANIC, UNKNOWN_KIND};
use crate::handler::{Answer, AnyHandler};
use crate::transport::Verdict;

/// How a handler ended.
pub(crate) enum Ending {
    /// By itself.
    Told(Verdict),
    /// It waits for something: the lease has been given back, and the handler begins again when
    /// the execution is claimed again.
    PutDown,
    /// It was told to stop, and did not in time.
    Stopped,
}

pub(crate) async fn run(setup: &Setup, ctx: Ctx) -> Ending {
    let Some(handler) = setup.handlers.get(ctx.kind()) else {
        return Ending::Told(unknown_kind(setup, ctx.kind()));
    };
    let inner = ctx.inner();
    let stopped = async {
        inner.stop.cancelled().await;
        pause(&*setup.clock, setup.grace).await;
    };
    tokio::select! {
        biased;
        answer = call(handler, ctx.clone()) => Ending::Told(verdict(answer)),
        () = inner.put_down.notified() => Ending::PutDown,
        () = stopped => Ending::Stopped,
    }
}

/// Handlers are called inside the future, so that a panic before their first await is caught too.
fn call(handler: &Arc<dyn AnyHandler>, ctx: Ctx) -> CatchPanic {
    let handler = handler.clone();
    CatchPanic(Box::pin(async move { handler.call(ctx).await }))
}

fn verdict(answer: Result<Option<Vec<u8>>, Failure>) -> Verdict {
    match answer {
        Ok(result) => Verdict::Complete(result),
        Err(failure) => Verdict::Fail(failure.into_args()),
    }
}

fn unknown_kind(setup: &Setup, kind: &str) -> Verdict {
    match setup.unknown_kind {
        UnknownKind::Release(delay) => Verdict::Release(delay),
        UnknownKind::Fail => {
            let mut known: Vec<_> = setup.handlers.keys().map(String::as_str).collect();
            known.sort_unstable();
            let known = known.join(", ");
            let reason = format!("no handler for the kind {kind:?}; this worker has {known}");
            Verdict::Fail(Failure::fatal(UNKNOWN_KIND, reason).into_args())
        }
    }
}

/// A panic becomes a failure that is tried again.
struct CatchPanic(Answer);

impl Future for CatchPanic {
    type Output = Result<Option<Vec<u8>>, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The future is never polled again after a panic, so nobody sees what it left half-done.
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| {
            let reason = format!("the handler panicked: {}", message(&*panic));
            Poll::Ready(Err(Failure::retry(PANIC, reason)))
        })
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
