//! Suspending, waiting and signalling.

use axum::http::Method;
use ff_api::{
    CreateWaitpointRequest, ObserveSignalsRequest, ResumeRequest, Scope, SignalRequest,
    SignalsAnswer, StateAnswer, SuspendAnswer, SuspendRequest, TokenSignalRequest,
    WaitpointTokenAnswer,
};
use ff_core::contracts::{
    DeliverSignalArgs, ListSignalsArgs, ListWaitpointsArgs, Listed, PendingWaitpoint, ResumeArgs,
    SignalOutcome, SignalTarget, SuspendOutcome, SuspensionSnapshot, WaitpointPage,
};
use ff_core::engine_backend::SuspensionOperations;
use ff_core::token::WaitpointToken;
use ff_core::types::{SignalId, WaitpointId};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{Access, MIB, Nothing, Reach, Route};
use crate::wire;

pub fn routes() -> Vec<Route> {
    let mut routes = worker_routes();
    routes.extend(read_routes());
    routes.extend(signal_routes());
    routes
}

fn worker_routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/leases/suspend"),
            ("suspend", "Gives the lease back until signals, an operator or time lets it go on."),
            Scope::Work,
            suspend,
        ),
        Route::new(
            (Method::POST, "/v1/leases/waitpoints"),
            ("create_waitpoint", "Makes a waitpoint ahead of the suspension that will use it."),
            Scope::Work,
            create_waitpoint,
        ),
        Route::new(
            (Method::POST, "/v1/leases/signals"),
            ("observe_signals", "The signals that the attempt was resumed by."),
            Scope::Work,
            observe_signals,
        ),
    ]
}

fn read_routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::GET, "/v1/waitpoints"),
            ("list_waitpoints", "The open waitpoints of the namespace, oldest first."),
            Scope::Read,
            list_waitpoints,
        ),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/waitpoints"),
            ("list_execution_waitpoints", "All waitpoints of an execution."),
            Scope::Read,
            list_execution_waitpoints,
        ),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/suspension"),
            ("describe_suspension", "The suspension that the execution is in, or was in last."),
            Scope::Read,
            describe_suspension,
        ),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/signals"),
            ("list_signals", "The signals that the execution has accepted, in their order."),
            Scope::Read,
            list_signals,
        ),
    ]
}

fn signal_routes() -> Vec<Route> {
    let of_waitpoint = "/v1/executions/{execution_id}/waitpoints/{waitpoint_id}/signal";
    vec![
        Route::new(
            (Method::POST, of_waitpoint),
            ("signal_waitpoint", "Signals a waitpoint."),
            Scope::Signal,
            signal_waitpoint,
        )
        .body(2 * MIB)
        .remembered_by_engine(),
        Route::new(
            (Method::POST, "/v1/signals"),
            ("deliver_signal", "Signals a waitpoint by its own token; no other is needed."),
            Scope::Signal,
            deliver_signal,
        )
        .access(Access::Waitpoint)
        .reach(Reach::Nothing)
        .body(2 * MIB)
        .remembered_by_engine(),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/waitpoints/{waitpoint_id}/token"),
            ("read_waitpoint_token", "The token of a waitpoint, made anew."),
            Scope::Operate,
            read_waitpoint_token,
        ),
        Route::new(
            (Method::POST, "/v1/executions/{execution_id}/resume"),
            ("resume", "Lets a suspended execution go on, whatever it waits for."),
            Scope::Operate,
            resume,
        ),
    ]
}

async fn suspend(call: Call<Nothing, SuspendRequest>) -> Answered<Answer<SuspendAnswer>> {
    let handle = wire::handle(&call.body.handle)?;
    let suspended = call.door.backend().suspend(&handle, call.body.suspension).await?;
    Ok(Answer::json(match suspended {
        SuspendOutcome::Suspended(details) => SuspendAnswer::Suspended {
            suspension_id: details.suspension_id,
            waitpoints: details.waitpoints,
            timeout_at: details.timeout_at,
        },
        SuspendOutcome::AlreadySatisfied { suspension_id, signals } => {
            let signals = signals.into_iter().map(wire::signal).collect();
            SuspendAnswer::AlreadySatisfied { suspension_id, signals }
        }
    }))
}

async fn create_waitpoint(
    call: Call<Nothing, CreateWaitpointRequest>,
) -> Answered<Answer<PendingWaitpoint>> {
    let handle = wire::handle(&call.body.handle)?;
    Ok(Answer::json(call.door.backend().create_waitpoint(&handle, call.body.waitpoint).await?))
}

async fn observe_signals(
    call: Call<Nothing, ObserveSignalsRequest>,
) -> Answered<Answer<SignalsAnswer>> {
    let handle = wire::handle(&call.body.handle)?;
    let signals = call.door.backend().observe_signals(&handle).await?;
    let signals = signals.into_iter().map(wire::signal).collect();
    Ok(Answer::json(SignalsAnswer { signals, next_after: None, unreadable: Vec::new() }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct WaitpointQuery {
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list_waitpoints(call: Call<WaitpointQuery, Nothing>) -> Answered<Answer<WaitpointPage>> {
    let args = ListWaitpointsArgs {
        execution_id: None,
        namespace: Some(call.door.namespace()?.clone()),
        cursor: call.query.cursor.clone(),
        limit: wire::limit(call.query.limit, 100)?,
    };
    Ok(Answer::json(call.door.backend().list_waitpoints(args).await?))
}

async fn list_execution_waitpoints(
    call: Call<WaitpointQuery, Nothing>,
) -> Answered<Answer<WaitpointPage>> {
    let args = ListWaitpointsArgs {
        execution_id: Some(call.execution_id()?),
        namespace: None,
        cursor: call.query.cursor.clone(),
        limit: wire::limit(call.query.limit, 100)?,
    };
    Ok(Answer::json(call.door.backend().list_waitpoints(args).await?))
}

async fn describe_suspension(call: Call<Nothing, Nothing>) -> Answered<Answer<SuspensionSnapshot>> {
    let suspension = call.door.backend().describe_suspension(&call.execution_id()?).await?;
    suspension.map(Answer::json).ok_or_else(|| Refusal::not_found("suspension"))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct SignalQuery {
    /// Signals with a greater `number`; 0 if it is absent.
    after: Option<u32>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list_signals(call: Call<SignalQuery, Nothing>) -> Answered<Answer<SignalsAnswer>> {
    let limit = wire::limit(call.query.limit, 100)?;
    let args = ListSignalsArgs {
        execution_id: call.execution_id()?,
        after: call.query.after.unwrap_or_default().min(i32::MAX as u32),
        limit,
    };
    let found = call.door.backend().list_signals(args).await?;
    let Listed { items: signals, unreadable } = found;
    let next_after = signals.last().filter(|_| signals.len() == limit).map(|last| last.number);
    let signals = signals.into_iter().map(|snapshot| ff_api::Signal {
        number: Some(snapshot.number),
        effect: Some(snapshot.effect),
        ..wire::signal(snapshot.signal)
    });
    Ok(Answer::json(SignalsAnswer { signals: signals.collect(), next_after, unreadable }))
}

async fn signal_waitpoint(call: Call<Nothing, SignalRequest>) -> Answered<Answer<SignalOutcome>> {
    let execution_id = call.execution_id()?;
    let waitpoint_id = WaitpointId(call.uuid("waitpoint_id")?);
    let target = SignalTarget::Waitpoint { execution_id, waitpoint_id };
    let args = signal(call.body, target, call.idempotency_key)?;
    let args = args.from_source(&call.door.principal().source());
    Ok(Answer::json(call.door.backend().deliver_signal(args).await?))
}

async fn deliver_signal(
    call: Call<Nothing, TokenSignalRequest>,
) -> Answered<Answer<SignalOutcome>> {
    let target = SignalTarget::Token(WaitpointToken::new(call.body.token));
    let args = signal(call.body.signal, target, call.idempotency_key)?;
    Ok(Answer::json(call.door.backend().deliver_signal(args).await?))
}

/// Conditions may count sources, so a sender does not say who it is: its token does.
fn signal(
    body: SignalRequest,
    target: SignalTarget,
    key: Option<String>,
) -> Answered<DeliverSignalArgs> {
    let bytes = ff_api::bytes::read(body.payload.as_deref(), body.payload_base64.as_deref());
    let given = body.payload.as_ref().map(|_| ff_api::JSON.to_owned());
    Ok(DeliverSignalArgs {
        target,
        signal_id: body.signal_id.unwrap_or_else(SignalId::new),
        signal_name: body.signal_name,
        signal_category: body.signal_category,
        source_type: String::new(),
        source_identity: String::new(),
        payload: bytes.map_err(|error| Refusal::invalid(error.to_string()))?,
        payload_encoding: body.payload_encoding.or(given),
        correlation_id: body.correlation_id,
        idempotency_key: body.idempotency_key.or(key),
    })
}

async fn read_waitpoint_token(
    call: Call<Nothing, Nothing>,
) -> Answered<Answer<WaitpointTokenAnswer>> {
    let (id, waitpoint) = (call.execution_id()?, WaitpointId(call.uuid("waitpoint_id")?));
    let token = call.door.backend().read_waitpoint_token(&id, waitpoint).await?;
    let token = token.ok_or_else(|| Refusal::not_found("waitpoint token"))?;
    Ok(Answer::json(WaitpointTokenAnswer { token: token.as_str().to_owned() }))
}

async fn resume(call: Call<Nothing, ResumeRequest>) -> Answered<Answer<StateAnswer>> {
    let execution_id = call.execution_id()?;
    let delay = call.body.delay.0.as_millis();
    let args = ResumeArgs {
        execution_id: execution_id.clone(),
        by: call.door.principal().name.clone(),
        reason: call.body.reason,
        delay_ms: u64::try_from(delay).unwrap_or(u64::MAX),
    };
    let public_state = call.door.backend().resume(args).await?;
    Ok(Answer::json(StateAnswer { execution_id, public_state }))
}
