//! One webhook: waits for an event, takes the webhook, delivers, says how far it has come.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ff_core::contracts::{
    ClaimWebhookOutcome, ClaimedWebhook, Event, EventFilter, ReportWebhookArgs, WebhookAttempt,
    WebhookSnapshot, WebhookState,
};
use ff_core::engine::{StartAt, Subscription};
use ff_core::engine_backend::{EngineBackend, WebhookOperations};
use ff_core::engine_error::{EngineError, ValidationKind};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Webhooks;
use super::secret;
use super::sender::{Message, PATIENCE};

/// How long a webhook is taken for: longer than it takes to notice that a report is due.
const LEASE: Duration = Duration::from_secs(60);
/// Reports are made after so many events or so much time.
const REPORT_EVENTS: usize = 32;
const REPORT_AFTER: Duration = Duration::from_secs(20);
/// A place in the log is written down so often even if nothing there is for this webhook, lest the
/// log forgets what comes after the place that is written down.
const NOTE_AFTER: Duration = Duration::from_secs(10 * 60);
/// How often a webhook is looked at that another server has, or that is to be left alone.
const LOOK_AT_LEASE: Duration = Duration::from_secs(5);
const LOOK_AT_WAIT: Duration = Duration::from_secs(30);
const AFTER_ERROR: Duration = Duration::from_secs(1);

const _: () = assert!(LEASE.as_secs() > REPORT_AFTER.as_secs() + PATIENCE.as_secs() + 10);

pub struct Follower {
    pub webhooks: Arc<Webhooks>,
    pub id: Uuid,
    pub changed: watch::Receiver<u64>,
    pub closing: CancellationToken,
}

impl Follower {
    /// Ends when the webhook is not active any more, or the server closes.
    pub async fn run(mut self) {
        while !self.closing.is_cancelled() {
            match self.round().await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(EngineError::NotFound { .. }) => return,
                Err(error) => {
                    tracing::warn!(webhook = %self.id, %error, "a webhook has to wait");
                    self.pause(AFTER_ERROR).await;
                }
            }
        }
    }

    /// Waits for something to tell, and tells it.
    async fn round(&mut self) -> Result<ControlFlow<()>, EngineError> {
        self.changed.borrow_and_update();
        let webhook = self.backend().describe_webhook(self.id).await?;
        if webhook.state != WebhookState::Active {
            return Ok(ControlFlow::Break(()));
        }
        let (mut subscription, lost) = self.subscribe(&webhook).await?;
        let first = tokio::select! {
            biased;
            () = self.closing.cancelled() => return Ok(ControlFlow::Break(())),
            _ = self.changed.changed() => return Ok(ControlFlow::Continue(())),
            first = tokio::time::timeout(NOTE_AFTER, subscription.next()) => first,
        };
        let first = first.ok().transpose()?;
        if first.is_none() && subscription.cursor() == webhook.cursor {
            return Ok(ControlFlow::Continue(()));
        }
        let claimed = self.backend().claim_webhook(self.id, self.webhooks.owner, LEASE).await?;
        match claimed {
            ClaimWebhookOutcome::Idle => Ok(ControlFlow::Break(())),
            ClaimWebhookOutcome::Busy { until } => {
                let wait = until.since(self.backend().engine().store().now());
                // Whoever has it may give it back sooner, and another server may resume it.
                let look = if wait <= LEASE { LOOK_AT_LEASE } else { LOOK_AT_WAIT };
                self.pause(wait.clamp(Duration::from_millis(10), look)).await;
                Ok(ControlFlow::Continue(()))
            }
            ClaimWebhookOutcome::Claimed(claimed) => {
                let moved = claimed.webhook.cursor != webhook.cursor;
                let mut delivery = Delivery::new(self, *claimed, lost);
                if moved {
                    // Another server has come further in the meantime.
                    delivery.report(false).await?;
                    return Ok(ControlFlow::Continue(()));
                }
                if first.is_none() {
                    delivery.cursor = subscription.cursor();
                }
                delivery.run(&mut subscription, first).await?;
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    /// The events of the webhook after its place. If the log has forgotten that place, it goes on
    /// with the oldest that there is, and says so among its attempts.
    async fn subscribe(
        &self,
        webhook: &WebhookSnapshot,
    ) -> Result<(Subscription, bool), EngineError> {
        let filter = EventFilter {
            namespace: Some(webhook.namespace.clone()).filter(|name| !name.as_str().is_empty()),
            lane_id: webhook.lane_id.clone(),
            event_types: webhook.event_types.clone(),
            ..EventFilter::default()
        };
        let start = StartAt::After(webhook.cursor.clone());
        match self.backend().subscribe(filter.clone(), start).await {
            Err(EngineError::Validation {
                kind: ValidationKind::CursorBelowRetention | ValidationKind::CursorFromOtherHistory,
                ..
            }) => Ok((self.backend().subscribe(filter, StartAt::Oldest).await?, true)),
            opened => opened.map(|subscription| (subscription, false)),
        }
    }

    fn backend(&self) -> &dyn EngineBackend {
        &*self.webhooks.backend
    }

    /// Waits, but not past a change or the end.
    async fn pause(&mut self, wait: Duration) {
        tokio::select! {
            () = self.closing.cancelled() => {}
            _ = self.changed.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// An attempt that nothing was sent for.
fn unsigned(id: &str, event: &Event, why: String) -> WebhookAttempt {
    WebhookAttempt {
        event_id: id.to_owned(),
        event_type: Some(event.event_type),
        status: None,
        duration_ms: 0,
        error: Some(why),
    }
}

/// What has been done since the webhook was taken.
struct Delivery<'f> {
    follower: &'f Follower,
    claimed: ClaimedWebhook,
    changed: watch::Receiver<u64>,
    cursor: String,
    attempts: Vec<WebhookAttempt>,
    retry_after: Option<Duration>,
    gone: bool,
}

impl<'f> Delivery<'f> {
    fn new(follower: &'f Follower, claimed: ClaimedWebhook, lost: bool) -> Self {
        let forgotten = WebhookAttempt {
            event_id: String::new(),
            event_type: None,
            status: None,
            duration_ms: 0,
            error: Some("the log has forgotten events that were not delivered".to_owned()),
        };
        Self {
            follower,
            changed: follower.changed.clone(),
            cursor: claimed.webhook.cursor.clone(),
            claimed,
            attempts: if lost { vec![forgotten] } else { Vec::new() },
            retry_after: None,
            gone: false,
        }
    }

    /// Delivers one event after the other until one fails or none is left.
    async fn run(
        &mut self,
        subscription: &mut Subscription,
        first: Option<Event>,
    ) -> Result<(), EngineError> {
        let mut begun = Instant::now();
        let mut next = first;
        while let Some(event) = next.take() {
            let failed = !self.deliver(subscription, &event).await;
            let closing = self.follower.closing.is_cancelled();
            if !failed && !closing {
                next = subscription.try_next().await?;
            }
            let full = self.attempts.len() >= REPORT_EVENTS || begun.elapsed() >= REPORT_AFTER;
            // Somebody has changed a webhook; it may be this one.
            let stale = self.changed.has_changed().unwrap_or(true);
            if next.is_some() && (full || stale) {
                if !self.renew().await? {
                    return Ok(());
                }
                begun = Instant::now();
            }
        }
        self.report(false).await
    }

    /// Reports and takes the webhook anew, so that its secrets are those of now; says whether it
    /// could.
    async fn renew(&mut self) -> Result<bool, EngineError> {
        self.changed.borrow_and_update();
        self.report(true).await?;
        let (id, owner) = (self.follower.id, self.follower.webhooks.owner);
        match self.follower.backend().claim_webhook(id, owner, LEASE).await? {
            ClaimWebhookOutcome::Claimed(claimed) => {
                self.claimed = *claimed;
                Ok(true)
            }
            ClaimWebhookOutcome::Idle | ClaimWebhookOutcome::Busy { .. } => Ok(false),
        }
    }

    /// What to sign with.
    fn secrets(&self) -> Result<Vec<Vec<u8>>, String> {
        let keys = self.follower.backend().engine().keyring();
        self.claimed.secrets.iter().map(|stored| secret::open(keys, stored)).collect()
    }

    /// One attempt; says whether it was taken.
    async fn deliver(&mut self, subscription: &Subscription, event: &Event) -> bool {
        let webhooks = &self.follower.webhooks;
        let id = subscription.event_id().unwrap_or_default();
        let secrets = match self.secrets() {
            Ok(secrets) => secrets,
            Err(why) => {
                self.attempts.push(unsigned(id, event, why));
                return false;
            }
        };
        let message = Message {
            namespace: self.claimed.webhook.namespace.as_str(),
            url: &self.claimed.webhook.url,
            secrets: &secrets,
            id,
            event,
            now: webhooks.backend.engine().store().now(),
        };
        let sent = webhooks.sender.send(message).await;
        let taken = sent.attempt.error.is_none();
        if taken {
            self.cursor = event.cursor.clone();
        }
        self.attempts.push(sent.attempt);
        self.retry_after = sent.retry_after;
        self.gone = sent.gone;
        taken
    }

    async fn report(&mut self, keep: bool) -> Result<(), EngineError> {
        let args = ReportWebhookArgs {
            webhook_id: self.follower.id,
            owner: self.follower.webhooks.owner,
            cursor: self.cursor.clone(),
            attempts: std::mem::take(&mut self.attempts),
            keep: keep.then_some(LEASE),
            retry_after: self.retry_after.take(),
            gone: self.gone,
        };
        self.follower.backend().report_webhook(args).await.map(drop)
    }
}
