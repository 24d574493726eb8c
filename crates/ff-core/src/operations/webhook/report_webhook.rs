//! A deliverer says how far it has come with a webhook that it holds, and what went wrong.

use std::time::Duration;

use super::{RECENT, webhook_event};
use crate::contracts::{EventType, ReportWebhookArgs, WebhookAttempt, WebhookState};
use crate::engine_error::{EngineError, StateKind};
use crate::operations::Operation;
use crate::rows::{WebhookDeliveryKey, WebhookDeliveryRow, WebhookKey, WebhookRow, Word};
use crate::store::{Change, Needs, World};
use crate::types::TimestampMs;

/// A receiver that has failed for so long is not tried any more.
const GIVE_UP_MS: u64 = 3 * 24 * 60 * 60 * 1000;
const FIRST_WAIT_MS: u64 = 1_000;
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

#[derive(Debug)]
pub struct ReportWebhook {
    pub args: ReportWebhookArgs,
    pub entropy: u64,
}

impl Operation for ReportWebhook {
    type Reply = WebhookState;

    const NAME: &'static str = "report_webhook";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.record::<WebhookRow>(&self.key());
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        if let Some(row) = world.record::<WebhookRow>(&self.key()) {
            for at in 0..self.args.attempts.len() as u64 {
                let key = self.slot(row.attempts + 1 + at);
                needs.record::<WebhookDeliveryRow>(&key);
            }
        }
    }

    fn decide(&self, world: &World) -> Result<(WebhookState, Change), EngineError> {
        let (args, mut change) = (&self.args, Change::default());
        let row = world.record::<WebhookRow>(&self.key());
        let row = row.ok_or(EngineError::NotFound { entity: "webhook" })?;
        if row.owner != Some(args.owner) || row.owned_until.is_none_or(|until| until <= world.now) {
            return Err(EngineError::State(StateKind::StaleLease));
        }
        let mut after = row;
        after.cursor = args.cursor.as_str().into();
        for attempt in &args.attempts {
            self.note(world, &mut change, &mut after, attempt);
        }
        let failed = args.attempts.last().is_some_and(|attempt| attempt.error.is_some());
        if failed {
            let since = after.failing_since.unwrap_or(world.now);
            if args.gone || since.after_ms(GIVE_UP_MS) <= world.now {
                after.state = Word(WebhookState::Disabled);
                let by = "delivery".into();
                let event = webhook_event(&after, EventType::WebhookDisabled, world.now, &by);
                change.events.push(event);
            }
            after.next_attempt_at = Some(self.next_attempt(after.failures, world.now));
        }
        let keep = args.keep.filter(|_| !failed);
        after.owner = keep.map(|_| args.owner);
        after.owned_until = keep.map(|ttl| world.now.after(ttl));
        let Word(state) = after.state;
        change.update(&after);
        Ok((state, change))
    }
}

impl ReportWebhook {
    fn key(&self) -> WebhookKey {
        WebhookKey { id: self.args.webhook_id }
    }

    fn slot(&self, number: u64) -> WebhookDeliveryKey {
        let slot = u32::try_from(number % u64::from(RECENT)).unwrap_or_default();
        WebhookDeliveryKey { webhook: self.args.webhook_id, slot }
    }

    /// Counts one attempt and keeps it among the recent ones.
    fn note(
        &self,
        world: &World,
        change: &mut Change,
        row: &mut WebhookRow,
        attempt: &WebhookAttempt,
    ) {
        row.attempts += 1;
        match &attempt.error {
            None => {
                row.delivered += 1;
                row.last_delivered_at = Some(world.now);
                row.failures = 0;
                row.failing_since = None;
                row.next_attempt_at = None;
                row.last_error = None;
            }
            Some(error) => {
                row.failures = row.failures.saturating_add(1);
                row.failing_since = row.failing_since.or(Some(world.now));
                row.last_error = Some(error.as_str().into());
            }
        }
        let key = self.slot(row.attempts);
        let delivery = WebhookDeliveryRow {
            number: row.attempts,
            event_id: attempt.event_id.as_str().into(),
            event_type: attempt.event_type.map_or("", EventType::as_str).into(),
            at: world.now,
            status: attempt.status.map(u32::from),
            duration_ms: attempt.duration_ms,
            error: attempt.error.as_deref().map(Into::into),
            key,
        };
        match world.record::<WebhookDeliveryRow>(&delivery.key).is_some() {
            true => change.update(&delivery),
            false => change.insert(&delivery),
        }
    }

    /// Twice as long after each failure, with a part left to chance so that receivers which came
    /// back are not met by everybody at once.
    fn next_attempt(&self, failures: u32, now: TimestampMs) -> TimestampMs {
        let doublings = failures.saturating_sub(1).min(20);
        let longest = u64::try_from(LONGEST_WAIT.as_millis()).unwrap_or(u64::MAX);
        let wait = (FIRST_WAIT_MS << doublings).min(longest);
        let wait = Duration::from_millis(wait + self.entropy % (wait / 4));
        now.after(wait.max(self.args.retry_after.unwrap_or_default().min(LONGEST_WAIT)))
    }
}
