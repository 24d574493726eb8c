//! Forgets a webhook and its attempts.

use std::sync::Arc;

use super::{RECENT, existing, webhook_event};
use crate::contracts::EventType;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{WebhookDeliveryRow, WebhookKey, WebhookRow, values};
use crate::store::{Change, Needs, Scan, World};
use crate::types::Namespace;

#[derive(Debug)]
pub struct DeleteWebhook {
    pub key: WebhookKey,
    pub scope: Option<Namespace>,
    pub by: Arc<str>,
}

impl DeleteWebhook {
    fn deliveries(&self) -> Scan {
        Scan::of::<WebhookDeliveryRow>(values![self.key.id]).limit(RECENT as usize)
    }
}

impl Operation for DeleteWebhook {
    type Reply = ();

    const NAME: &'static str = "delete_webhook";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WebhookRow>(&self.key);
        needs.scan(&self.deliveries());
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        let row = existing(world, &self.key, self.scope.as_ref())?;
        for delivery in world.scan::<WebhookDeliveryRow>(&self.deliveries()) {
            change.delete::<WebhookDeliveryRow>(&delivery.key);
        }
        change.delete::<WebhookRow>(&self.key);
        change.events.push(webhook_event(&row, EventType::WebhookDeleted, world.now, &self.by));
        Ok(((), change))
    }
}
