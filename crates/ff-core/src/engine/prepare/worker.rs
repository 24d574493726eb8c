//! Checks what workers say of themselves.

use std::sync::Arc;

use uuid::Uuid;

use crate::capability;
use crate::contracts::{RegisterWorkerArgs, WorkerRef};
use crate::engine::prepare::check_count;
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::worker::RegisterWorker;
use crate::rows::WorkerKey;
use crate::types::Namespace;

pub(crate) fn prepare_register(
    args: RegisterWorkerArgs,
    scope: Option<&Namespace>,
) -> Result<RegisterWorker, EngineError> {
    let RegisterWorkerArgs { worker_instance_id, namespace, .. } = args;
    let key = worker_key(&WorkerRef { worker_instance_id, namespace }, scope)?;
    args.worker_id.check()?;
    check_count("lanes", args.lanes.len(), limits::CLAIM_LANES)?;
    for lane in &args.lanes {
        lane.check()?;
    }
    let tokens: Vec<&str> = args.capabilities.iter().map(String::as_str).collect();
    capability::check_offered(&tokens)?;
    let (ttl, limit) = (args.liveness_ttl_ms, limits::LIVENESS_TTL_MAX_MS);
    if !(1..=limit).contains(&ttl) {
        let detail = format!("{ttl} ms of liveness; allowed are 1 to {limit}");
        return Err(EngineError::invalid(detail));
    }
    Ok(RegisterWorker {
        key,
        worker_id: args.worker_id.0.into(),
        lanes: args.lanes.into_iter().map(|lane| lane.0).collect(),
        capabilities: args.capabilities.into_iter().collect(),
        liveness_ttl_ms: ttl,
        watch: Uuid::now_v7(),
    })
}

/// The key of a worker. A caller that is confined to a namespace names its own or none.
pub(crate) fn worker_key(
    worker: &WorkerRef,
    scope: Option<&Namespace>,
) -> Result<WorkerKey, EngineError> {
    worker.worker_instance_id.check()?;
    let namespace = worker_namespace(worker.namespace.as_ref(), scope)?;
    Ok(WorkerKey { namespace, instance: worker.worker_instance_id.as_str().into() })
}

/// The namespace as workers are stored by it; empty means all.
pub(crate) fn worker_namespace(
    namespace: Option<&Namespace>,
    scope: Option<&Namespace>,
) -> Result<Arc<str>, EngineError> {
    if let (Some(namespace), Some(scope)) = (namespace, scope)
        && namespace != scope
    {
        return Err(EngineError::invalid("the worker's namespace is not the caller's"));
    }
    let Some(namespace) = scope.or(namespace) else { return Ok("".into()) };
    namespace.check()?;
    Ok(namespace.as_str().into())
}
