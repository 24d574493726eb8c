//! The registry of workers.

use axum::http::Method;
use ff_api::{RegisterWorkerRequest, Scope, WorkersAnswer};
use ff_core::contracts::{
    HeartbeatOutcome, ListWorkersArgs, Listed, RegisterWorkerArgs, RegisterWorkerOutcome,
    RetireOutcome, WorkerRef, WorkerSnapshot,
};
use ff_core::engine_backend::WorkerOperations;
use ff_core::types::{LaneId, Namespace, WorkerInstanceId};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{Nothing, Route};
use crate::wire;

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/workers"),
            ("register_worker", "Makes a worker known for as long as it gives signs of life."),
            Scope::Work,
            register,
        ),
        Route::new(
            (Method::POST, "/v1/workers/{worker_instance_id}/heartbeat"),
            ("heartbeat_worker", "A sign of life."),
            Scope::Work,
            heartbeat,
        ),
        Route::new(
            (Method::DELETE, "/v1/workers/{worker_instance_id}"),
            ("retire_worker", "A worker goes; what it holds stays its own until it expires."),
            Scope::Work,
            retire,
        ),
        Route::new(
            (Method::GET, "/v1/workers"),
            ("list_workers", "Workers that are alive."),
            Scope::Read,
            list,
        ),
    ]
}

async fn register(
    call: Call<Nothing, RegisterWorkerRequest>,
) -> Answered<Answer<RegisterWorkerOutcome>> {
    let body = call.body;
    let ttl = body.liveness_ttl.0.as_millis();
    let args = RegisterWorkerArgs {
        worker_id: body.worker_id,
        worker_instance_id: body.worker_instance_id,
        namespace: call.door.namespace().ok().cloned(),
        lanes: body.lanes,
        capabilities: body.capabilities,
        liveness_ttl_ms: u64::try_from(ttl).unwrap_or(u64::MAX),
    };
    Ok(Answer::json(call.door.backend().register_worker(args).await?))
}

async fn heartbeat(call: Call<Nothing, Nothing>) -> Answered<Answer<HeartbeatOutcome>> {
    Ok(Answer::json(call.door.backend().heartbeat_worker(&worker(&call)).await?))
}

async fn retire(call: Call<Nothing, Nothing>) -> Answered<Answer<RetireOutcome>> {
    Ok(Answer::json(call.door.backend().retire_worker(&worker(&call)).await?))
}

fn worker(call: &Call<Nothing, Nothing>) -> WorkerRef {
    let worker_instance_id = WorkerInstanceId::new(call.param("worker_instance_id"));
    WorkerRef { worker_instance_id, namespace: call.door.namespace().ok().cloned() }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct WorkerQuery {
    lane_id: Option<String>,
    /// `next_after` of the page before.
    after: Option<String>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list(call: Call<WorkerQuery, Nothing>) -> Answered<Answer<WorkersAnswer>> {
    let limit = wire::limit(call.query.limit, 100)?;
    let namespace = call.door.namespace().ok().cloned();
    let after = call.query.after.as_deref().map(|after| place(namespace.as_ref(), after));
    let after = after.transpose()?;
    let lane_id = call.query.lane_id.clone().map(LaneId::new);
    let args = ListWorkersArgs { namespace: namespace.clone(), lane_id, after, limit };
    let Listed { items: workers, unreadable } = call.door.backend().list_workers(args).await?;
    let last = workers.last().filter(|_| workers.len() == limit);
    let next_after = last.map(|worker| next_after(namespace.as_ref(), worker));
    Ok(Answer::json(WorkersAnswer { workers, next_after, unreadable }))
}

/// A place in the list: an instance, and before it the length and the name of its namespace in a
/// list of all namespaces, where instances of several may have one name.
fn next_after(listed: Option<&Namespace>, worker: &WorkerSnapshot) -> String {
    let own = worker.namespace.as_ref().map_or("", Namespace::as_str);
    let instance = worker.worker_instance_id.as_str();
    listed.map_or_else(|| format!("{}:{own}{instance}", own.len()), |_| instance.to_owned())
}

fn place(listed: Option<&Namespace>, after: &str) -> Answered<WorkerRef> {
    if let Some(namespace) = listed {
        let worker_instance_id = WorkerInstanceId::new(after);
        return Ok(WorkerRef { worker_instance_id, namespace: Some(namespace.clone()) });
    }
    let parse = || {
        let (length, names) = after.split_once(':')?;
        names.split_at_checked(length.parse().ok()?)
    };
    let (namespace, instance) = parse().ok_or_else(|| {
        Refusal::invalid("after must be next_after of the page before (with namespace=*)")
    })?;
    Ok(WorkerRef {
        worker_instance_id: WorkerInstanceId::new(instance),
        namespace: Some(namespace).filter(|own| !own.is_empty()).map(Namespace::new),
    })
}
