//! The registry of workers.

use async_trait::async_trait;

use super::EngineBackend;
use crate::contracts::{
    HeartbeatOutcome, ListWorkersArgs, Listed, RegisterWorkerArgs, RegisterWorkerOutcome,
    RetireOutcome, WorkerRef, WorkerSnapshot,
};
use crate::engine::{check_count, prepare_register, worker_key, worker_namespace};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::worker::{HeartbeatWorker, RetireWorker};
use crate::rows::{WorkerRow, values};
use crate::store::Scan;
use crate::views;

#[async_trait]
pub trait WorkerOperations: EngineBackend {
    /// A worker makes itself known for as long as it gives signs of life.
    async fn register_worker(
        &self,
        args: RegisterWorkerArgs,
    ) -> Result<RegisterWorkerOutcome, EngineError> {
        let operation = prepare_register(args, self.scope())?;
        self.engine().run_as(self.caller(), operation).await
    }

    async fn heartbeat_worker(&self, worker: &WorkerRef) -> Result<HeartbeatOutcome, EngineError> {
        let key = worker_key(worker, self.scope())?;
        self.engine().run_as(self.caller(), HeartbeatWorker { key }).await
    }

    /// A worker goes. What it holds stays its own until it is ended or expires.
    async fn retire_worker(&self, worker: &WorkerRef) -> Result<RetireOutcome, EngineError> {
        let key = worker_key(worker, self.scope())?;
        self.engine().run_as(self.caller(), RetireWorker { key }).await
    }

    /// Workers that are alive, by namespace and instance.
    async fn list_workers(
        &self,
        args: ListWorkersArgs,
    ) -> Result<Listed<WorkerSnapshot>, EngineError> {
        let limit = if args.limit == 0 { 100 } else { args.limit };
        check_count("workers", limit, limits::PAGE)?;
        let one = self.scope().is_some() || args.namespace.is_some();
        let namespace = worker_namespace(args.namespace.as_ref(), self.scope())?;
        let prefix = if one { values![namespace] } else { Vec::new() };
        let mut after = match &args.after {
            Some(worker) => worker_key(worker, self.scope()).map(Some)?,
            None => None,
        };
        let mut found = Listed::default();
        loop {
            let behind = match &after {
                Some(key) if one => values![key.instance],
                Some(key) => values![key.namespace, key.instance],
                None => Vec::new(),
            };
            let scan = Scan::of::<WorkerRow>(prefix.clone()).after(behind).limit(limits::PAGE);
            let page = super::scan::find::<WorkerRow>(self.engine(), scan).await?;
            found.unreadable.extend(page.unreadable);
            let (now, workers) = (page.now, page.records);
            let read = workers.len();
            after = workers.last().map(|row| row.key.clone());
            let of_lane = |row: &WorkerRow| match &args.lane_id {
                Some(lane) => row.lanes.0.contains(lane.as_str()),
                None => true,
            };
            let alive = workers.into_iter().filter(|row| row.is_alive(now) && of_lane(row));
            found.items.extend(alive.map(views::worker));
            if found.len() >= limit || read < limits::PAGE {
                found.items.truncate(limit);
                return Ok(found);
            }
        }
    }
}

impl<B: EngineBackend + ?Sized> WorkerOperations for B {}
