//! Durable steps.

use axum::http::Method;
use ff_api::{RecordStepRequest, Scope, SleepStepRequest, StepsAnswer};
use ff_core::contracts::{Listed, RecordStepOutcome, SleepOutcome};
use ff_core::engine_backend::StepOperations;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{MIB, Nothing, Route};
use crate::wire;

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/leases/steps"),
            ("record_step", "Records what the holder has done; what is first under a name stands."),
            Scope::Work,
            record,
        )
        .body(2 * MIB),
        Route::new(
            (Method::POST, "/v1/leases/sleep"),
            ("sleep_step", "Sleeps once under a name; the execution is put down meanwhile."),
            Scope::Work,
            sleep,
        ),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/steps"),
            ("list_steps", "The steps of an execution in their order."),
            Scope::Read,
            list,
        ),
    ]
}

async fn record(call: Call<Nothing, RecordStepRequest>) -> Answered<Answer<RecordStepOutcome>> {
    let (handle, body) = (wire::handle(&call.body.handle)?, &call.body);
    let result = body.bytes().map_err(|error| Refusal::invalid(error.to_string()))?;
    let result = result.unwrap_or_default();
    Ok(Answer::json(call.door.backend().record_step(&handle, &body.name, result).await?))
}

async fn sleep(call: Call<Nothing, SleepStepRequest>) -> Answered<Answer<SleepOutcome>> {
    let (handle, body) = (wire::handle(&call.body.handle)?, &call.body);
    Ok(Answer::json(call.door.backend().sleep_step(&handle, &body.name, body.duration.0).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StepQuery {
    /// Steps with a greater `sequence`; 0 if it is absent.
    after: Option<u32>,
    /// 1 to 1,000; 1,000 if it is absent.
    limit: Option<usize>,
}

async fn list(call: Call<StepQuery, Nothing>) -> Answered<Answer<StepsAnswer>> {
    let (id, limit) = (call.execution_id()?, wire::limit(call.query.limit, 1_000)?);
    let after = call.query.after.unwrap_or_default();
    let found = call.door.backend().list_steps(&id, after, limit).await?;
    let Listed { items: steps, unreadable } = found;
    let last = steps.last().filter(|_| steps.len() == limit);
    let next_after = last.map(|step| step.sequence);
    Ok(Answer::json(StepsAnswer { steps, next_after, unreadable }))
}
