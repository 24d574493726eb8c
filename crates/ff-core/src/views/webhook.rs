//! Webhooks as callers see them: everything except their secrets.

use crate::contracts::{EventType, WebhookDelivery, WebhookSnapshot};
use crate::rows::{WebhookDeliveryRow, WebhookRow};
use crate::types::{LaneId, Namespace};

pub fn webhook(row: &WebhookRow) -> WebhookSnapshot {
    WebhookSnapshot {
        webhook_id: row.key.id,
        namespace: Namespace::new(&*row.namespace),
        name: row.name.to_string(),
        url: row.url.to_string(),
        event_types: row.event_types.0.iter().filter_map(|word| EventType::parse(word)).collect(),
        lane_id: row.lane.as_deref().map(LaneId::new),
        state: row.state.0,
        created_by: row.created_by.to_string(),
        created_at: row.created_at,
        cursor: row.cursor.to_string(),
        delivered: row.delivered,
        last_delivered_at: row.last_delivered_at,
        failures: row.failures,
        failing_since: row.failing_since,
        next_attempt_at: row.next_attempt_at,
        last_error: row.last_error.as_deref().map(ToOwned::to_owned),
    }
}

pub fn webhook_delivery(row: &WebhookDeliveryRow) -> WebhookDelivery {
    WebhookDelivery {
        number: row.number,
        event_id: row.event_id.to_string(),
        event_type: EventType::parse(&row.event_type),
        at: row.at,
        status: row.status.and_then(|status| u16::try_from(status).ok()),
        duration_ms: row.duration_ms,
        error: row.error.as_deref().map(ToOwned::to_owned),
    }
}
