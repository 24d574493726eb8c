//! A paused webhook is told nothing until it is resumed, and then everything that it has missed.

use std::sync::Arc;

use super::{existing, webhook_event};
use crate::contracts::{EventType, WebhookSnapshot, WebhookState};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{WebhookKey, WebhookRow, Word};
use crate::store::{Change, Needs, World};
use crate::types::Namespace;
use crate::views;

#[derive(Debug)]
pub struct PauseWebhook {
    pub key: WebhookKey,
    pub scope: Option<Namespace>,
    pub by: Arc<str>,
}

#[derive(Debug)]
pub struct ResumeWebhook {
    pub key: WebhookKey,
    pub scope: Option<Namespace>,
    pub by: Arc<str>,
}

impl Operation for PauseWebhook {
    type Reply = WebhookSnapshot;

    const NAME: &'static str = "pause_webhook";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WebhookRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(WebhookSnapshot, Change), EngineError> {
        let row = existing(world, &self.key, self.scope.as_ref())?;
        if row.state == Word(WebhookState::Paused) {
            return Ok((views::webhook(&row), Change::default()));
        }
        let after = WebhookRow { state: Word(WebhookState::Paused), ..row };
        Ok(changed(&after, EventType::WebhookPaused, world, &self.by))
    }
}

impl Operation for ResumeWebhook {
    type Reply = WebhookSnapshot;

    const NAME: &'static str = "resume_webhook";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WebhookRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(WebhookSnapshot, Change), EngineError> {
        let row = existing(world, &self.key, self.scope.as_ref())?;
        if row.state == Word(WebhookState::Active) && row.next_attempt_at.is_none() {
            return Ok((views::webhook(&row), Change::default()));
        }
        let after = WebhookRow {
            state: Word(WebhookState::Active),
            failures: 0,
            failing_since: None,
            next_attempt_at: None,
            ..row
        };
        Ok(changed(&after, EventType::WebhookResumed, world, &self.by))
    }
}

fn changed(
    after: &WebhookRow,
    kind: EventType,
    world: &World,
    by: &Arc<str>,
) -> (WebhookSnapshot, Change) {
    let mut change = Change::default();
    change.update(after);
    change.events.push(webhook_event(after, kind, world.now, by));
    (views::webhook(after), change)
}
