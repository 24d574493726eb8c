//! Keeping webhooks, and handing each to one deliverer at a time.

mod claim_webhook;
mod create_webhook;
mod delete_webhook;
mod pause_webhook;
mod report_webhook;
mod rotate_webhook_secret;

pub use claim_webhook::ClaimWebhook;
pub use create_webhook::{CreateWebhook, Secret};
pub use delete_webhook::DeleteWebhook;
pub use pause_webhook::{PauseWebhook, ResumeWebhook};
pub use report_webhook::ReportWebhook;
pub use rotate_webhook_secret::RotateWebhookSecret;

use std::sync::Arc;

use serde_json::json;

use crate::contracts::EventType;
use crate::engine_error::EngineError;
use crate::rows::{EventRow, WebhookKey, WebhookRow};
use crate::store::World;
use crate::types::{Namespace, TimestampMs};

/// So many of the last attempts are kept.
pub(crate) const RECENT: u32 = 50;

/// The webhook, if the caller may know of it.
fn existing(
    world: &World,
    key: &WebhookKey,
    scope: Option<&Namespace>,
) -> Result<WebhookRow, EngineError> {
    let row = world.record::<WebhookRow>(key);
    let row = row.filter(|row| scope.is_none_or(|scope| scope.as_str() == &*row.namespace));
    row.ok_or(EngineError::NotFound { entity: "webhook" })
}

/// Where events go is for the log; an address may hold a password, so it is not.
fn webhook_event(row: &WebhookRow, kind: EventType, at: TimestampMs, by: &Arc<str>) -> EventRow {
    let details = json!({ "webhook_id": row.key.id, "name": &*row.name });
    let by = Some(by.clone()).filter(|by| !by.is_empty());
    EventRow::bare(kind, row.namespace.clone(), at).details(&details).by(by)
}
