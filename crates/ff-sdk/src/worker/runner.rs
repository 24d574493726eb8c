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

/// What is to be told about the attempt; `None` if its handler was stopped.
pub(super) async fn run(setup: &Setup, ctx: Ctx) -> Option<Verdict> {
    let Some(handler) = setup.handlers.get(ctx.kind()) else {
        return Some(unknown_kind(setup, ctx.kind()));
    };
    let stop = ctx.inner().stop.clone();
    let stopped = async {
        stop.cancelled().await;
        pause(&*setup.clock, setup.grace).await;
    };
    tokio::select! {
        biased;
        answer = call(handler, ctx) => Some(verdict(answer)),
        () = stopped => None,
    }
}

/// Handlers are called inside the future, so that a panic before their first await is caught too.
fn call(handler: &Arc<dyn AnyHandler>, ctx: Ctx) -> CatchPanic {
    let handler = handler.clone();
    CatchPanic(Box::pin(async move { handler.call(ctx).await }))
}

pub(super) fn verdict(answer: Result<Option<Vec<u8>>, Failure>) -> Verdict {
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
