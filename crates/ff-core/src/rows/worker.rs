//! `ff_worker`: workers that have made themselves known.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::{Json, record};

use crate::types::TimestampMs;

record! {
    pub struct WorkerRow in "ff_worker" {
        key WorkerKey {
            /// Empty: it works for all of them.
            namespace: Arc<str> = [namespace: Text],
            instance: Arc<str> = [worker_instance_id: Text],
        }
        worker_id: Arc<str> = [worker_id: Text],
        lanes: Json<BTreeSet<String>> = [lanes: Text],
        capabilities: Json<Vec<String>> = [capabilities: Text],
        liveness_ttl_ms: u64 = [liveness_ttl_ms: Int],
        registered_at: TimestampMs = [registered_at_ms: Int],
        last_heartbeat_at: TimestampMs = [last_heartbeat_at_ms: Int],
        expires_at: TimestampMs = [expires_at_ms: Int],
        /// Names the timer that looks whether it is still alive.
        watch: Uuid = [watch_id: Uuid],
    }
    index BY_WATCH = ff_worker_watch[watch_id];
}

impl WorkerRow {
    pub fn is_alive(&self, now: TimestampMs) -> bool {
        self.expires_at > now
    }
}
