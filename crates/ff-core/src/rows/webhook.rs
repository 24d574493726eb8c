//! `ff_webhook`: who is told of events outside, and how far that has come.

use std::sync::Arc;

use uuid::Uuid;

use super::{Json, Word, record};
use crate::contracts::WebhookState;
use crate::types::TimestampMs;

record! {
    pub struct WebhookRow in "ff_webhook" {
        key WebhookKey {
            id: Uuid = [webhook_id: Uuid],
        }
        /// Empty: of all namespaces.
        namespace: Arc<str> = [namespace: Text],
        name: Arc<str> = [name: Text],
        url: Arc<str> = [url: Text],
        event_types: Json<Vec<String>> = [event_types: Json],
        lane: Option<Arc<str>> = [lane_id: Text],
        state: Word<WebhookState> = [state: Text],
        secret: Arc<[u8]> = [secret: Bytes],
        /// Signs too until its time is over.
        old_secret: Option<Arc<[u8]>> = [old_secret: Bytes],
        old_secret_until: Option<TimestampMs> = [old_secret_until_ms: Int],
        created_by: Arc<str> = [created_by: Text],
        created_at: TimestampMs = [created_at_ms: Int],
        cursor: Arc<str> = [log_cursor: Text],
        /// Counts attempts, so that the recent ones are found by their number.
        attempts: u64 = [attempts: Int],
        delivered: u64 = [delivered: Int],
        last_delivered_at: Option<TimestampMs> = [last_delivered_at_ms: Int],
        failures: u32 = [failures: Int4],
        failing_since: Option<TimestampMs> = [failing_since_ms: Int],
        next_attempt_at: Option<TimestampMs> = [next_attempt_at_ms: Int],
        last_error: Option<Arc<str>> = [last_error: Text],
        /// The deliverer that has it, until its time is over.
        owner: Option<Uuid> = [owner_id: Uuid],
        owned_until: Option<TimestampMs> = [owned_until_ms: Int],
    }
    index BY_NAMESPACE = ff_webhook_by_namespace[namespace, webhook_id];
}

record! {
    /// One of the last attempts; the oldest makes room for the newest.
    pub struct WebhookDeliveryRow in "ff_webhook_delivery" {
        key WebhookDeliveryKey {
            webhook: Uuid = [webhook_id: Uuid],
            slot: u32 = [slot: Int4],
        }
        number: u64 = [number: Int],
        event_id: Arc<str> = [event_id: Text],
        event_type: Arc<str> = [event_type: Text],
        at: TimestampMs = [at_ms: Int],
        status: Option<u32> = [status: Int4],
        duration_ms: u64 = [duration_ms: Int],
        error: Option<Arc<str>> = [error: Text],
    }
}
