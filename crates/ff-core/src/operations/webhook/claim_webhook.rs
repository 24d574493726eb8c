//! A deliverer takes a webhook to itself for a while, so that no event is told by two at once.

use std::time::Duration;

use uuid::Uuid;

use super::existing;
use crate::contracts::{ClaimWebhookOutcome, ClaimedWebhook, WebhookState};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{WebhookKey, WebhookRow, Word};
use crate::store::{Change, Needs, World};
use crate::views;

#[derive(Debug)]
pub struct ClaimWebhook {
    pub key: WebhookKey,
    pub owner: Uuid,
    pub ttl: Duration,
}

impl Operation for ClaimWebhook {
    type Reply = ClaimWebhookOutcome;

    const NAME: &'static str = "claim_webhook";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WebhookRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<(ClaimWebhookOutcome, Change), EngineError> {
        let row = existing(world, &self.key, None)?;
        if row.state != Word(WebhookState::Active) {
            return Ok((ClaimWebhookOutcome::Idle, Change::default()));
        }
        let foreign = row.owner.is_some_and(|owner| owner != self.owner);
        let held = row.owned_until.filter(|until| foreign && *until > world.now);
        let later = row.next_attempt_at.filter(|at| *at > world.now);
        if let Some(until) = held.max(later) {
            return Ok((ClaimWebhookOutcome::Busy { until }, Change::default()));
        }
        let after = WebhookRow {
            owner: Some(self.owner),
            owned_until: Some(world.now.after(self.ttl)),
            ..row
        };
        let old = after.old_secret_until.filter(|until| *until > world.now);
        let old = old.and(after.old_secret.as_ref());
        let secrets = [Some(&after.secret), old].into_iter().flatten();
        let claimed = ClaimedWebhook {
            webhook: views::webhook(&after),
            secrets: secrets.map(|secret| secret.to_vec()).collect(),
        };
        let mut change = Change::default();
        change.update(&after);
        Ok((ClaimWebhookOutcome::Claimed(Box::new(claimed)), change))
    }
}
