//! What operators do to executions.

use std::collections::BTreeMap;

use axum::http::Method;
use ff_api::{
    CancelRequest, ChangePriorityRequest, JSON, ReplayRequest, RescheduleRequest, ResubmitRequest,
    RevokeLeaseOutcome, RevokeLeaseRequest, Scope, StateAnswer, SubmitOutcome,
};
use ff_core::contracts::{
    CancelExecutionArgs, CancelExecutionResult, ChangePriorityArgs, ExecutionSnapshot,
    ReplayExecutionArgs, ReplayExecutionResult, RescheduleArgs, ResubmitArgs, ResubmitResult,
    RevokeLeaseArgs, RevokeLeaseResult, SetTagsArgs,
};
use ff_core::types::{CancelSource, WorkerInstanceId};

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{MIB, Nothing, Route};

pub fn routes() -> Vec<Route> {
    let route = |name: &'static str, path: &'static str, summary: &'static str| {
        ((Method::POST, path), (name, summary))
    };
    let (cancel_at, cancel_as) = route(
        "cancel_execution",
        "/v1/executions/{execution_id}/cancel",
        "Ends the execution as cancelled, whatever it is doing.",
    );
    let (replay_at, replay_as) = route(
        "replay_execution",
        "/v1/executions/{execution_id}/replay",
        "Runs a finished execution again.",
    );
    let (resubmit_at, resubmit_as) = route(
        "resubmit",
        "/v1/executions/{execution_id}/resubmit",
        "Starts the work of an ended execution anew, as an execution of its own.",
    );
    let (revoke_at, revoke_as) = route(
        "revoke_lease",
        "/v1/executions/{execution_id}/revoke-lease",
        "Takes the lease back; the execution waits for the next worker.",
    );
    let (reschedule_at, reschedule_as) = route(
        "reschedule",
        "/v1/executions/{execution_id}/reschedule",
        "Moves the moment at which a waiting execution may be handed out.",
    );
    vec![
        Route::new(cancel_at, cancel_as, Scope::Operate, cancel),
        Route::new(replay_at, replay_as, Scope::Operate, replay),
        Route::new(resubmit_at, resubmit_as, Scope::Operate, resubmit).body(2 * MIB).success(201),
        Route::new(revoke_at, revoke_as, Scope::Operate, revoke_lease),
        Route::new(reschedule_at, reschedule_as, Scope::Operate, reschedule),
        Route::new(
            (Method::PUT, "/v1/executions/{execution_id}/priority"),
            ("change_priority", "Moves waiting work forward or back."),
            Scope::Operate,
            change_priority,
        ),
        Route::new(
            (Method::PATCH, "/v1/executions/{execution_id}/tags"),
            ("set_tags", "Merges into the execution's tags; null removes one."),
            Scope::Operate,
            set_tags,
        ),
    ]
}

async fn cancel(call: Call<Nothing, CancelRequest>) -> Answered<Answer<StateAnswer>> {
    let backend = call.door.backend();
    let args = CancelExecutionArgs {
        execution_id: call.execution_id()?,
        reason: call.body.reason.clone(),
        source: CancelSource::OperatorOverride,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now: backend.engine().store().now(),
    };
    let CancelExecutionResult::Cancelled { execution_id, public_state } =
        backend.cancel_execution(args).await?;
    Ok(Answer::json(StateAnswer { execution_id, public_state }))
}

async fn replay(call: Call<Nothing, ReplayRequest>) -> Answered<Answer<StateAnswer>> {
    let (execution_id, backend) = (call.execution_id()?, call.door.backend());
    let now = backend.engine().store().now();
    let args = ReplayExecutionArgs { execution_id: execution_id.clone(), now };
    let ReplayExecutionResult::Replayed { public_state } = backend.replay_execution(args).await?;
    Ok(Answer::json(StateAnswer { execution_id, public_state }))
}

async fn resubmit(call: Call<Nothing, ResubmitRequest>) -> Answered<Answer<SubmitOutcome>> {
    let input_payload = call.body.bytes().map_err(|error| Refusal::invalid(error.to_string()))?;
    let args = ResubmitArgs {
        execution_id: call.execution_id()?,
        payload_encoding: call.body.payload.as_ref().map(|_| JSON.to_owned()),
        input_payload,
        idempotency_key: call.body.idempotency_key.clone(),
        creator_identity: call.door.principal().name.clone(),
    };
    Ok(match call.door.backend().resubmit(args).await? {
        ResubmitResult::Created { execution_id, public_state } => {
            Answer::created(SubmitOutcome::Created { execution_id, public_state })
        }
        ResubmitResult::Duplicate { execution_id } => {
            Answer::json(SubmitOutcome::Duplicate { execution_id }).replayed()
        }
    })
}

async fn revoke_lease(
    call: Call<Nothing, RevokeLeaseRequest>,
) -> Answered<Answer<RevokeLeaseOutcome>> {
    let execution_id = call.execution_id()?;
    let RevokeLeaseRequest { reason, worker_instance_id, expected_lease_id } = call.body;
    let worker_instance_id = WorkerInstanceId::new(worker_instance_id.unwrap_or_default());
    let args = RevokeLeaseArgs { execution_id, expected_lease_id, worker_instance_id, reason };
    Ok(Answer::json(match call.door.backend().revoke_lease(args).await? {
        RevokeLeaseResult::Revoked { lease_id, lease_epoch } => {
            RevokeLeaseOutcome::Revoked { lease_id, lease_epoch }
        }
        RevokeLeaseResult::AlreadySatisfied { reason } => {
            RevokeLeaseOutcome::AlreadySatisfied { reason }
        }
    }))
}

async fn reschedule(call: Call<Nothing, RescheduleRequest>) -> Answered<Answer<StateAnswer>> {
    let execution_id = call.execution_id()?;
    let args = RescheduleArgs { execution_id: execution_id.clone(), delay: call.body.delay.0 };
    let public_state = call.door.backend().reschedule(args).await?;
    Ok(Answer::json(StateAnswer { execution_id, public_state }))
}

async fn change_priority(
    call: Call<Nothing, ChangePriorityRequest>,
) -> Answered<Answer<ExecutionSnapshot>> {
    let (execution_id, backend) = (call.execution_id()?, call.door.backend());
    let snapshot = backend.describe_execution(&execution_id).await?;
    let lane_id = snapshot.ok_or_else(|| Refusal::not_found("execution"))?.lane_id;
    let args = ChangePriorityArgs {
        execution_id: execution_id.clone(),
        new_priority: call.body.priority,
        lane_id,
        now: backend.engine().store().now(),
    };
    backend.change_priority(args).await?;
    described(&call).await
}

async fn set_tags(
    call: Call<Nothing, BTreeMap<String, Option<String>>>,
) -> Answered<Answer<ExecutionSnapshot>> {
    let args = SetTagsArgs { execution_id: call.execution_id()?, tags: call.body.clone() };
    call.door.backend().set_tags(args).await?;
    described(&call).await
}

/// The execution as it is after the change.
async fn described<Q, B>(call: &Call<Q, B>) -> Answered<Answer<ExecutionSnapshot>> {
    let snapshot = call.door.backend().describe_execution(&call.execution_id()?).await?;
    snapshot.map(Answer::json).ok_or_else(|| Refusal::not_found("execution"))
}
