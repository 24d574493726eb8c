//! Keeps a webhook, from a place in the log on.

use std::sync::Arc;

use super::webhook_event;
use crate::contracts::{EventType, WebhookSnapshot, WebhookState};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::Operation;
use crate::rows::{Json, WebhookKey, WebhookRow, Word, values};
use crate::store::{Change, Needs, Scan, World};
use crate::views;

#[derive(Debug)]
pub struct CreateWebhook {
    pub key: WebhookKey,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub url: Arc<str>,
    pub event_types: Vec<String>,
    pub lane: Option<Arc<str>>,
    pub secret: Secret,
    pub created_by: Arc<str>,
    pub cursor: Arc<str>,
}

/// Bytes that are not printed.
pub struct Secret(pub Arc<[u8]>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl CreateWebhook {
    fn others(&self) -> Scan {
        Scan::of::<WebhookRow>(values![self.namespace])
            .by(&WebhookRow::BY_NAMESPACE)
            .limit(limits::WEBHOOKS)
            .unlocked()
    }
}

impl Operation for CreateWebhook {
    type Reply = WebhookSnapshot;

    const NAME: &'static str = "create_webhook";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WebhookRow>(&self.key);
        needs.scan(&self.others());
    }

    fn decide(&self, world: &World) -> Result<(WebhookSnapshot, Change), EngineError> {
        let max = limits::WEBHOOKS;
        if world.scan::<WebhookRow>(&self.others()).len() >= max {
            let detail = format!("the namespace has {max} webhooks, which is the limit");
            return Err(EngineError::invalid(detail));
        }
        let row = WebhookRow {
            key: self.key.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            url: self.url.clone(),
            event_types: Json(self.event_types.clone()),
            lane: self.lane.clone(),
            state: Word(WebhookState::Active),
            secret: self.secret.0.clone(),
            old_secret: None,
            old_secret_until: None,
            created_by: self.created_by.clone(),
            created_at: world.now,
            cursor: self.cursor.clone(),
            attempts: 0,
            delivered: 0,
            last_delivered_at: None,
            failures: 0,
            failing_since: None,
            next_attempt_at: None,
            last_error: None,
            owner: None,
            owned_until: None,
        };
        let mut change = Change::default();
        change.insert(&row);
        let event = webhook_event(&row, EventType::WebhookCreated, world.now, &self.created_by);
        change.events.push(event);
        Ok((views::webhook(&row), change))
    }
}
