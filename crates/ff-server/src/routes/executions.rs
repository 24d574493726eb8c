//! Submitting and reading executions.

use axum::http::Method;
use ff_api::{
    ExecutionResult, HistoryPage, Payload, Scope, Span, SubmitBatchAnswer, SubmitBatchRequest,
    SubmitOutcome, SubmitRequest, bytes,
};
use ff_core::contracts::{
    ExecutionPage, ExecutionSnapshot, Explanation, ListExecutionsArgs, ListOrder, Submission,
};
use ff_core::types::{FlowId, LaneId, TimestampMs};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::call::{Answer, Call};
use crate::poll;
use crate::refusal::{Answered, Refusal};
use crate::route::{LONGEST_WAIT, MIB, Nothing, Route};
use crate::wire;

/// How many items one batch may have.
const BATCH: usize = 1_000;

pub fn routes() -> Vec<Route> {
    let id = "/v1/executions/{execution_id}";
    vec![
        Route::new(
            (Method::POST, "/v1/executions"),
            ("submit", "Submits one piece of work."),
            Scope::Submit,
            submit,
        )
        .body(2 * MIB)
        .remembered_by_engine()
        .success(201),
        Route::new(
            (Method::POST, "/v1/executions/batch"),
            ("submit_batch", "Submits up to 1,000 pieces of work, each with its own outcome."),
            Scope::Submit,
            submit_batch,
        )
        .body(16 * MIB)
        .remembered_by_engine(),
        Route::new(
            (Method::GET, "/v1/executions"),
            ("list_executions", "Lists executions, newest first."),
            Scope::Read,
            list,
        ),
        Route::new(
            (Method::GET, id),
            ("describe_execution", "Everything about one execution except its bytes."),
            Scope::Read,
            describe,
        ),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/result"),
            ("result", "How the execution ended; waits for the end if asked to."),
            Scope::Read,
            result,
        )
        .waits(),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/payload"),
            ("payload", "The bytes that the execution was submitted with."),
            Scope::Read,
            payload,
        ),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/explain"),
            ("explain", "Why the execution is not running."),
            Scope::Read,
            explain,
        ),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/history"),
            ("history", "What has happened to the execution, oldest first."),
            Scope::Read,
            history,
        ),
    ]
}

async fn submit(call: Call<Nothing, SubmitRequest>) -> Answered<Answer<SubmitOutcome>> {
    let given = call.body.idempotency_key.as_deref();
    if let (Some(header), Some(given)) = (&call.idempotency_key, given)
        && header != given
    {
        return Err(Refusal::invalid("Idempotency-Key and idempotency_key differ"));
    }
    let submitter = wire::Submitter::new(&call.door, &call.headers)?;
    let item = submitter.submission(call.body, call.idempotency_key)?;
    let outcomes = call.door.backend().submit(vec![item]).await?;
    let outcome = outcomes.into_iter().next();
    match outcome.ok_or_else(|| Refusal::new("internal", "the engine did not answer"))? {
        ff_core::contracts::SubmitOutcome::Refused(error) => Err(error.into()),
        created @ ff_core::contracts::SubmitOutcome::Created { .. } => {
            Ok(Answer::created(wire::submit_outcome(created)))
        }
        duplicate => Ok(Answer::json(wire::submit_outcome(duplicate)).replayed()),
    }
}

async fn submit_batch(
    call: Call<Nothing, SubmitBatchRequest>,
) -> Answered<Answer<SubmitBatchAnswer>> {
    let count = call.body.executions.len();
    if count == 0 || count > BATCH {
        return Err(Refusal::invalid(format!("{count} executions; a batch has 1 to {BATCH}")));
    }
    let submitter = wire::Submitter::new(&call.door, &call.headers)?;
    let key = |at: usize| call.idempotency_key.as_ref().map(|key| format!("{key}#{at}"));
    let mut outcomes: Vec<Option<SubmitOutcome>> = Vec::with_capacity(count);
    let mut items: Vec<Submission> = Vec::with_capacity(count);
    for (at, item) in call.body.executions.into_iter().enumerate() {
        let key = if item.idempotency_key.is_some() { None } else { key(at) };
        match submitter.submission(item, key) {
            Ok(item) => {
                outcomes.push(None);
                items.push(item);
            }
            Err(refusal) => {
                outcomes.push(Some(SubmitOutcome::Refused { problem: refusal.problem(None) }));
            }
        }
    }
    let answered = match items.is_empty() {
        true => Vec::new(),
        false => call.door.backend().submit(items).await?,
    };
    let mut answered = answered.into_iter();
    let outcomes = outcomes.into_iter().map(|refused| {
        let next = || answered.next().map(wire::submit_outcome);
        refused.or_else(next).ok_or_else(|| Refusal::new("internal", "an outcome is missing"))
    });
    Ok(Answer::json(SubmitBatchAnswer { outcomes: outcomes.collect::<Answered<_>>()? }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    lane_id: Option<String>,
    /// One or more states, separated by commas.
    states: Option<String>,
    execution_kind: Option<String>,
    flow_id: Option<Uuid>,
    /// `key:value`: executions that carry this tag with this value.
    tag: Option<String>,
    created_from: Option<TimestampMs>,
    created_before: Option<TimestampMs>,
    /// `newest` (the default) or `oldest` first.
    order: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list(call: Call<ListQuery, Nothing>) -> Answered<Answer<ExecutionPage>> {
    let query = call.query;
    let args = ListExecutionsArgs {
        namespace: None,
        lane_id: query.lane_id.map(LaneId::new),
        states: wire::words(query.states.as_deref(), "state", wire::state)?,
        execution_kind: query.execution_kind,
        flow_id: query.flow_id.map(FlowId),
        tag: query.tag.as_deref().map(wire::tag).transpose()?,
        created_from: query.created_from,
        created_before: query.created_before,
        order: match query.order.as_deref() {
            None | Some("newest") => ListOrder::NewestFirst,
            Some("oldest") => ListOrder::OldestFirst,
            Some(_) => return Err(Refusal::invalid("order is newest or oldest")),
        },
        cursor: query.cursor,
        limit: wire::limit(query.limit, 100)?,
    };
    Ok(Answer::json(call.door.backend().list_executions(args).await?))
}

async fn describe(call: Call<Nothing, Nothing>) -> Answered<Answer<ExecutionSnapshot>> {
    let snapshot = call.door.backend().describe_execution(&call.execution_id()?).await?;
    snapshot.map(Answer::json).ok_or_else(|| Refusal::not_found("execution"))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ResultQuery {
    /// How long to wait for the end, at most 60 seconds.
    #[param(value_type = Option<String>)]
    wait: Option<Span>,
}

async fn result(call: Call<ResultQuery, Nothing>) -> Answered<Answer<ExecutionResult>> {
    let id = call.execution_id()?;
    let wait = call.query.wait.unwrap_or_default().0.min(LONGEST_WAIT);
    let deadline = Instant::now() + wait;
    let backend = call.door.backend();
    let mut bell = backend.engine().store().listen().events();
    loop {
        bell.borrow_and_update();
        let snapshot = backend.describe_execution(&id).await?;
        let snapshot = snapshot.ok_or_else(|| Refusal::not_found("execution"))?;
        let finished = snapshot.public_state.is_finished();
        if finished || !poll::again(&call.state, &mut bell, deadline).await {
            let stored = if finished { backend.result(&id).await? } else { None };
            let (result, result_base64) = stored.map(|b| bytes::write(&b)).unwrap_or_default();
            return Ok(Answer::json(ExecutionResult {
                execution_id: id,
                public_state: snapshot.public_state,
                finished,
                result,
                result_base64,
                failure_reason: snapshot.failure_reason,
                failure_category: snapshot.failure_category,
                cancellation_reason: snapshot.cancellation_reason,
            }));
        }
    }
}

async fn payload(call: Call<Nothing, Nothing>) -> Answered<Answer<Payload>> {
    let execution_id = call.execution_id()?;
    let backend = call.door.backend();
    let snapshot = backend.describe_execution(&execution_id).await?;
    let snapshot = snapshot.ok_or_else(|| Refusal::not_found("execution"))?;
    let stored = backend.payload(&execution_id).await?;
    let (payload, payload_base64) = stored.map(|b| bytes::write(&b)).unwrap_or_default();
    let payload_encoding = snapshot.payload_encoding;
    Ok(Answer::json(Payload { execution_id, payload_encoding, payload, payload_base64 }))
}

async fn explain(call: Call<Nothing, Nothing>) -> Answered<Answer<Explanation>> {
    Ok(Answer::json(call.door.backend().explain(&call.execution_id()?).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    /// Events with a greater `version`; 0 if it is absent.
    after: Option<u64>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn history(call: Call<HistoryQuery, Nothing>) -> Answered<Answer<HistoryPage>> {
    let (id, limit) = (call.execution_id()?, wire::limit(call.query.limit, 100)?);
    let after = call.query.after.unwrap_or_default().min(i64::MAX as u64);
    let events = call.door.backend().history(&id, after, limit).await?;
    let last = events.last().filter(|_| events.len() == limit);
    let next_after = last.map(|event| event.version);
    Ok(Answer::json(HistoryPage { events, next_after }))
}
