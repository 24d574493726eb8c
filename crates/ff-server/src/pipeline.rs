//! What happens to every request: it is identified, authorised, read, bounded in time, answered
//! and counted, in this order.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use axum::routing::{MethodFilter, on};
use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::admission::{Caller, Visit};
use crate::body::Reader;
use crate::call::{REPLAYED, RawCall, Reply, ReplyBody};
use crate::gate::{Authorized, Origin, Principal};
use crate::refusal::{Answered, Refusal};
use crate::replies::{Key, Turn};
use crate::route::{Access, Memory, Pace, Route};
use crate::state::{State, check_head};
use crate::{body, host, query, remote};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_KEY_BYTES: usize = 255;

/// The routes of the table and nothing else.
pub fn router(state: &Arc<State>) -> Router {
    let mut router = Router::new();
    for (at, route) in state.routes.iter().enumerate() {
        let filter = MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::TRACE);
        let state = state.clone();
        let handler = move |request: Request<Body>| serve(state, at, request);
        router = router.route(route.path, on(filter, handler));
    }
    let refuse = |code: &'static str, detail: &'static str| {
        let refusal = Refusal::new(code, detail);
        move || async move { respond_refusal(&refusal, &Uuid::now_v7().to_string()) }
    };
    router
        .fallback(refuse("no_such_route", "no route has this path"))
        .method_not_allowed_fallback(refuse("method_not_allowed", "another method is needed"))
}

/// What is answered before anything else is looked at: a request that no two readers would
/// understand alike, and whatever is no probe on a connection that is there for probes.
pub(crate) fn refuse_early<B>(request: &Request<B>, whole: bool) -> Option<Response<Body>> {
    let probe = matches!(request.uri().path(), "/livez" | "/readyz");
    let refusal = match host::check(request) {
        Err(refusal) => refusal,
        Ok(()) if !whole && !probe => {
            Refusal::new("overloaded", "too many connections are open, in all or from this address")
        }
        Ok(()) => return None,
    };
    let mut response = respond_refusal(&refusal, &Uuid::now_v7().to_string());
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

async fn serve(state: Arc<State>, at: usize, request: Request<Body>) -> Response<Body> {
    let (begun, request_id): (_, Arc<str>) = (Instant::now(), Uuid::now_v7().to_string().into());
    let route = &state.routes[at];
    let handling = handle(&state, route, request, &request_id);
    let answered = AssertUnwindSafe(handling).catch_unwind().await;
    let answered = answered.unwrap_or_else(|panic| Err(panicked(&*panic, &request_id)));
    let status = match &answered {
        Ok(reply) => reply.status,
        Err(refusal) => refusal.status,
    };
    let elapsed = begun.elapsed();
    state.metrics.count(at, status, elapsed);
    let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let (name, number) = (route.name, status.as_u16());
    match &answered {
        Err(refusal) if status.is_server_error() => {
            tracing::warn!(%request_id, route = name, status = number, ms, code = refusal.code);
        }
        _ => tracing::debug!(%request_id, route = name, status = number, ms),
    }
    match answered {
        Ok(reply) => respond(reply, &request_id),
        Err(refusal) => respond_refusal(&refusal, &request_id),
    }
}

async fn handle(
    state: &Arc<State>,
    route: &Route,
    request: Request<Body>,
    request_id: &Arc<str>,
) -> Answered<Reply> {
    let peer = remote::peer(&request);
    let (mut parts, body) = request.into_parts();
    check_head(&parts.uri, &parts.headers)?;
    let (namespace, rest) = query::split_namespace(parts.uri.query().unwrap_or_default())?;
    let principal = match route.access {
        Access::Public | Access::Waitpoint => Principal::nobody(),
        Access::Known | Access::Scoped(_) => state.gate.authenticate(&parts.headers).await?,
    };
    let remote = state.proxies.remote(peer, &parts.headers);
    let origin = Origin { remote, request_id };
    let door = state.gate.authorize(&principal, route, namespace, &origin)?;
    let caller = Caller::new(&principal, route.access, remote);
    // Probes without a token take nothing, so that nothing can keep them waiting.
    let probe = route.access == Access::Public;
    let mut visit = (!probe).then(|| state.admission.admit(caller, route.pace)).transpose()?;
    let params = RawPathParams::from_request_parts(&mut parts, &()).await;
    let params = params.map_err(|error| Refusal::invalid(error.body_text()))?;
    let params: HashMap<String, String> =
        params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let headers = parts.headers;
    let work = async {
        let reader = Reader { limits: state.limits.body, max: route.body, visit: visit.as_mut() };
        let body = reader.read(body, &headers).await?;
        body::check_type(&headers, &body)?;
        visit.as_mut().map(Visit::start).transpose()?;
        let idempotency_key = idempotency_key(&route.method, &headers)?;
        let call = RawCall {
            state: state.clone(),
            door,
            remote,
            request_id: request_id.clone(),
            headers: headers.clone(),
            params,
            query: rest,
            body,
            idempotency_key,
        };
        match route.pace {
            Pace::Work | Pace::Probes | Pace::Streams => once(route, parts.uri.path(), call).await,
            Pace::Waits => while_valid(state, route, &parts.uri, call).await,
        }
    };
    match tokio::time::timeout(route.timeout, work).await {
        Ok(answered) => answered,
        Err(_) => {
            let (op, elapsed) = (route.name, route.timeout);
            Err(ff_core::engine_error::EngineError::Timeout { op, elapsed }.into())
        }
    }
}

/// Ends a wait when the caller's token does, and tells nothing that came later.
async fn while_valid(state: &State, route: &Route, uri: &Uri, call: RawCall) -> Answered<Reply> {
    let principal = call.door.principal().clone();
    let answered = tokio::select! {
        biased;
        answered = once(route, uri.path(), call) => answered,
        () = state.gate.until_revoked(&principal) => return Err(Refusal::unauthorized()),
    };
    // Whatever a POST has done is done, and a claim has looked by itself.
    if route.method == Method::GET && !state.gate.is_still_good(&principal).await {
        return Err(Refusal::unauthorized());
    }
    answered
}

/// Runs the handler, or answers as before if the request came with a key that was used.
async fn once(route: &Route, path: &str, mut call: RawCall) -> Answered<Reply> {
    let kept_here = route.memory == Memory::Replies;
    let Some(key) = call.idempotency_key.take_if(|_| kept_here) else {
        return (route.handler)(call).await;
    };
    let fingerprint = fingerprint(&[route.name, path, &call.query], &call.body);
    let key = Key { caller: caller(&call.door), namespace: call.door.namespace_key().into(), key };
    match call.state.replies.take(key, fingerprint, Instant::now())? {
        Turn::Again(stored) => Ok(Reply {
            status: stored.status,
            content_type: stored.content_type,
            headers: vec![(REPLAYED, HeaderValue::from_static("true"))],
            body: ReplyBody::Bytes(stored.body),
        }),
        Turn::First(ticket) => {
            let reply = (route.handler)(call).await?;
            ticket.answer(&reply);
            Ok(reply)
        }
    }
}

fn caller(door: &Authorized) -> String {
    let principal = door.principal();
    principal.token_id.map_or_else(|| principal.name.clone(), |id| id.to_string())
}

fn fingerprint(parts: &[&str], body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts.iter().map(|part| part.as_bytes()).chain([body]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn idempotency_key(method: &Method, headers: &HeaderMap) -> Answered<Option<String>> {
    let Some(given) = headers.get(IDEMPOTENCY_KEY).filter(|_| *method == Method::POST) else {
        return Ok(None);
    };
    let refuse = || Refusal::invalid("an Idempotency-Key has 1 to 255 printable characters");
    let text = given.to_str().map_err(|_| refuse())?.trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    match text.len() {
        1..=IDEMPOTENCY_KEY_BYTES => Ok(Some(text.to_owned())),
        _ => Err(refuse()),
    }
}

fn panicked(panic: &(dyn Any + Send), request_id: &str) -> Refusal {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(request_id, panic = text, "a handler panicked");
    Refusal::new("internal", "the server has a bug; the request id names it in the log")
}

fn respond(reply: Reply, request_id: &str) -> Response<Body> {
    let body = match reply.body {
        ReplyBody::Bytes(bytes) => Body::from(bytes),
        ReplyBody::Stream(body) => body,
    };
    let mut response = Response::new(body);
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    if let Some(content_type) = reply.content_type {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    headers.extend(reply.headers);
    common_headers(headers, request_id);
    response
}

fn respond_refusal(refusal: &Refusal, request_id: &str) -> Response<Body> {
    let problem = refusal.problem(Some(request_id.to_owned()));
    let json = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = refusal.status;
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_static("application/problem+json");
    headers.insert(header::CONTENT_TYPE, content_type);
    if refusal.status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(retry_after) = refusal.retry_after {
        let secs = retry_after.as_secs_f64().ceil().max(1.0) as u64;
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    common_headers(headers, request_id);
    response
}

fn common_headers(headers: &mut HeaderMap, request_id: &str) {
    if let Ok(value) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, value);
    }
    let fixed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
