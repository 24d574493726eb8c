//! Workers as users see them, and which of them comes nearest to what an execution requires.

use crate::capability;
use crate::contracts::WorkerSnapshot;
use crate::rows::WorkerRow;
use crate::types::{LaneId, Namespace, WorkerId, WorkerInstanceId};

pub fn worker(row: WorkerRow) -> WorkerSnapshot {
    let namespace = Some(&*row.key.namespace).filter(|namespace| !namespace.is_empty());
    WorkerSnapshot {
        worker_id: WorkerId::new(&*row.worker_id),
        worker_instance_id: WorkerInstanceId::new(&*row.key.instance),
        namespace: namespace.map(Namespace::new),
        lanes: row.lanes.0.into_iter().map(LaneId::new).collect(),
        capabilities: row.capabilities.0.into_iter().collect(),
        liveness_ttl_ms: row.liveness_ttl_ms,
        registered_at: row.registered_at,
        last_heartbeat_at: row.last_heartbeat_at,
        expires_at: row.expires_at,
    }
}

/// The worker that misses fewest of the required capabilities, and which ones it misses.
pub(super) fn nearest<'w, 'c>(
    workers: &'w [WorkerRow],
    class: &'c str,
) -> Option<(&'w WorkerRow, Vec<&'c str>)> {
    let misses = |row: &'w WorkerRow| (row, capability::missing(class, &row.capabilities.0));
    workers.iter().map(misses).min_by_key(|(_, missing)| missing.len())
}
