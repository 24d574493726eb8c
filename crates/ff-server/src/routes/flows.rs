//! Cancelling flows.

use axum::http::Method;
use ff_api::{CancelFlowAnswer, CancelFlowRequest, Scope};
use ff_core::backend::CancelFlowWait;
use ff_core::contracts::CancelFlowResult;

use crate::call::{Answer, Call};
use crate::refusal::Answered;
use crate::route::{LONGEST_WAIT, Nothing, Route};

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/flows/{flow_id}/cancel"),
            ("cancel_flow", "Cancels a flow and the members that the policy names."),
            Scope::Operate,
            cancel,
        )
        .waits(),
    ]
}

async fn cancel(call: Call<Nothing, CancelFlowRequest>) -> Answered<Answer<CancelFlowAnswer>> {
    let wait = call.body.wait.map(|wait| wait.0.min(LONGEST_WAIT));
    let wait = wait.map_or(CancelFlowWait::NoWait, CancelFlowWait::WaitTimeout);
    let cancelled =
        call.door.backend().cancel_flow(&call.flow_id()?, call.body.policy, wait).await?;
    let (CancelFlowResult::Cancelled { cancellation_policy, member_execution_ids }
    | CancelFlowResult::CancellationScheduled {
        cancellation_policy, member_execution_ids, ..
    }) = cancelled;
    Ok(Answer::json(CancelFlowAnswer { cancellation_policy, member_execution_ids }))
}
