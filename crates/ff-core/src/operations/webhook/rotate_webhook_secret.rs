//! Deliveries are signed with another secret, and with the one before until its grace is over.

use std::sync::Arc;
use std::time::Duration;

use super::create_webhook::Secret;
use super::{existing, webhook_event};
use crate::contracts::{EventType, WebhookSnapshot};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{WebhookKey, WebhookRow};
use crate::store::{Change, Needs, World};
use crate::types::Namespace;
use crate::views;

#[derive(Debug)]
pub struct RotateWebhookSecret {
    pub key: WebhookKey,
    pub scope: Option<Namespace>,
    pub secret: Secret,
    pub grace: Duration,
    pub by: Arc<str>,
}

impl Operation for RotateWebhookSecret {
    type Reply = WebhookSnapshot;

    const NAME: &'static str = "rotate_webhook_secret";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WebhookRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(WebhookSnapshot, Change), EngineError> {
        let row = existing(world, &self.key, self.scope.as_ref())?;
        let stays = !self.grace.is_zero();
        let after = WebhookRow {
            old_secret: stays.then(|| row.secret.clone()),
            old_secret_until: stays.then(|| world.now.after(self.grace)),
            secret: self.secret.0.clone(),
            ..row
        };
        let mut change = Change::default();
        change.update(&after);
        let kind = EventType::WebhookSecretRotated;
        change.events.push(webhook_event(&after, kind, world.now, &self.by));
        Ok((views::webhook(&after), change))
    }
}
