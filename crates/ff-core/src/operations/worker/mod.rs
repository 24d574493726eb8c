//! Workers make themselves known, and drop out when they are silent for too long.

pub(crate) mod due;
mod heartbeat_worker;
mod register_worker;
mod retire_worker;

pub use heartbeat_worker::HeartbeatWorker;
pub use register_worker::RegisterWorker;
pub use retire_worker::RetireWorker;

use serde_json::json;

use crate::contracts::EventType;
use crate::rows::{EventRow, WorkerRow};
use crate::types::TimestampMs;

fn event(row: &WorkerRow, event_type: EventType, now: TimestampMs) -> EventRow {
    let details = json!({
        "worker_instance_id": &*row.key.instance,
        "worker_id": &*row.worker_id,
        "last_heartbeat_at": row.last_heartbeat_at,
    });
    EventRow::bare(event_type, row.key.namespace.clone(), now).details(&details)
}
