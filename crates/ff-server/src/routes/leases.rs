//! What workers say about the work that they hold.

use axum::http::Method;
use ff_api::{
    CancelHeldRequest, CompleteRequest, DelayAnswer, DelayRequest, FailAnswer, FailRequest,
    FailureClass, LeaseBatchAnswer, LeaseBatchRequest, LeaseOperation, LeaseOutcome,
    ProgressRequest, RenewAnswer, RenewOutcome, RenewRequest, Scope,
};
use ff_core::contracts::{self, FailArgs, FailOutcome};
use ff_core::engine_backend::EngineBackend;
use futures_util::future::join_all;

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{MIB, Nothing, Route};
use crate::wire;

const BATCH: usize = 1_000;

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/leases/renew"),
            ("renew_many", "Keeps leases; each handle is told whether it still holds."),
            Scope::Work,
            renew,
        )
        .body(MIB),
        Route::new(
            (Method::POST, "/v1/leases/progress"),
            ("progress", "Says how far the work is."),
            Scope::Work,
            |call: Call<Nothing, ProgressRequest>| async move {
                progress(call.door.backend(), call.body).await?;
                Ok(Answer::<Nothing>::nothing())
            },
        ),
        Route::new(
            (Method::POST, "/v1/leases/complete"),
            ("complete", "Ends the execution with a result."),
            Scope::Work,
            |call: Call<Nothing, CompleteRequest>| async move {
                complete(call.door.backend(), call.body).await?;
                Ok(Answer::<Nothing>::nothing())
            },
        )
        .body(2 * MIB),
        Route::new(
            (Method::POST, "/v1/leases/fail"),
            ("fail", "Ends the attempt; the policy says whether there is another one."),
            Scope::Work,
            |call: Call<Nothing, FailRequest>| async move {
                Ok(Answer::json(fail(call.door.backend(), call.body).await?))
            },
        ),
        Route::new(
            (Method::POST, "/v1/leases/cancel"),
            ("cancel", "The holder gives up: the execution ends as cancelled."),
            Scope::Work,
            |call: Call<Nothing, CancelHeldRequest>| async move {
                cancel(call.door.backend(), call.body).await?;
                Ok(Answer::<Nothing>::nothing())
            },
        ),
        Route::new(
            (Method::POST, "/v1/leases/delay"),
            ("delay", "Puts the execution down; the attempt goes on after the delay."),
            Scope::Work,
            |call: Call<Nothing, DelayRequest>| async move {
                Ok(Answer::json(delay(call.door.backend(), call.body).await?))
            },
        ),
        Route::new(
            (Method::POST, "/v1/leases/batch"),
            ("lease_batch", "Up to 1,000 reports on leases at once, each with its own outcome."),
            Scope::Work,
            batch,
        )
        .body(16 * MIB),
    ]
}

async fn renew(call: Call<Nothing, RenewRequest>) -> Answered<Answer<RenewAnswer>> {
    let given = &call.body.handles;
    if given.is_empty() || given.len() > BATCH {
        return Err(Refusal::invalid(format!("{} handles; a batch has 1 to {BATCH}", given.len())));
    }
    let handles: Vec<_> = given.iter().map(|handle| wire::handle(handle)).collect();
    let good: Vec<_> = handles.iter().filter_map(|handle| handle.as_ref().ok().cloned()).collect();
    let renewed = match good.is_empty() {
        true => Vec::new(),
        false => call.door.backend().renew_many(&good).await?,
    };
    let mut renewed = renewed.into_iter();
    let outcome = |handle: Answered<_>| {
        let outcome = handle.and_then(|_| match renewed.next() {
            Some(contracts::RenewOutcome::Renewed { expires_at }) => Ok(expires_at),
            Some(contracts::RenewOutcome::Lost(error)) => Err(error.into()),
            None => Err(Refusal::new("internal", "an outcome is missing")),
        });
        match outcome {
            Ok(expires_at) => RenewOutcome::Renewed { expires_at },
            Err(refusal) => RenewOutcome::Lost { problem: refusal.problem(None) },
        }
    };
    Ok(Answer::json(RenewAnswer { outcomes: handles.into_iter().map(outcome).collect() }))
}

/// The engine gathers them into few transactions by itself.
async fn batch(call: Call<Nothing, LeaseBatchRequest>) -> Answered<Answer<LeaseBatchAnswer>> {
    let operations = call.body.operations;
    if operations.is_empty() || operations.len() > BATCH {
        let count = operations.len();
        return Err(Refusal::invalid(format!("{count} operations; a batch has 1 to {BATCH}")));
    }
    let backend = call.door.backend();
    let settled = operations.into_iter().map(|operation| async move {
        let outcome = settle(backend, operation).await;
        outcome.unwrap_or_else(|refusal| LeaseOutcome::Refused { problem: refusal.problem(None) })
    });
    Ok(Answer::json(LeaseBatchAnswer { outcomes: join_all(settled).await }))
}

async fn settle(backend: &dyn EngineBackend, operation: LeaseOperation) -> Answered<LeaseOutcome> {
    Ok(match operation {
        LeaseOperation::Complete(body) => {
            complete(backend, body).await?;
            LeaseOutcome::Completed
        }
        LeaseOperation::Fail(body) => match fail(backend, body).await? {
            FailAnswer::RetryScheduled { delay_until } => {
                LeaseOutcome::RetryScheduled { delay_until }
            }
            FailAnswer::TerminalFailed => LeaseOutcome::TerminalFailed,
        },
        LeaseOperation::Cancel(body) => {
            cancel(backend, body).await?;
            LeaseOutcome::Cancelled
        }
        LeaseOperation::Delay(body) => {
            LeaseOutcome::Delayed { delay_until: delay(backend, body).await?.delay_until }
        }
        LeaseOperation::Progress(body) => {
            progress(backend, body).await?;
            LeaseOutcome::Progressed
        }
    })
}

async fn progress(backend: &dyn EngineBackend, body: ProgressRequest) -> Answered<()> {
    let handle = wire::handle(&body.handle)?;
    Ok(backend.progress(&handle, body.percent, body.message).await?)
}

async fn complete(backend: &dyn EngineBackend, body: CompleteRequest) -> Answered<()> {
    let handle = wire::handle(&body.handle)?;
    let result = body.bytes().map_err(|error| Refusal::invalid(error.to_string()))?;
    Ok(backend.complete(&handle, result).await?)
}

async fn fail(backend: &dyn EngineBackend, body: FailRequest) -> Answered<FailAnswer> {
    let handle = wire::handle(&body.handle)?;
    let class = match body.class {
        FailureClass::Retryable => contracts::FailureClass::Retryable,
        FailureClass::Fatal => contracts::FailureClass::Fatal,
    };
    let args = FailArgs { reason: body.reason, category: body.category, class };
    Ok(match backend.fail(&handle, args).await? {
        FailOutcome::RetryScheduled { delay_until } => FailAnswer::RetryScheduled { delay_until },
        FailOutcome::TerminalFailed => FailAnswer::TerminalFailed,
    })
}

async fn cancel(backend: &dyn EngineBackend, body: CancelHeldRequest) -> Answered<()> {
    Ok(backend.cancel(&wire::handle(&body.handle)?, &body.reason).await?)
}

async fn delay(backend: &dyn EngineBackend, body: DelayRequest) -> Answered<DelayAnswer> {
    let delay_until = backend.delay(&wire::handle(&body.handle)?, body.delay.0).await?;
    Ok(DelayAnswer { delay_until })
}
