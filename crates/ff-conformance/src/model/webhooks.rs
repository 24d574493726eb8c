//! Webhooks in a sequence: kept, changed, and told by two deliverers. Their identities are drawn by
//! each backend, so a sequence names them by their age.

use std::time::Duration;

use ff_core::contracts::{
    ClaimWebhookOutcome, CreateWebhookArgs, EventFilter, EventType, ReportWebhookArgs,
    RotateWebhookSecretArgs, WebhookAttempt, WebhookSnapshot,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{EngineBackend, WebhookOperations};
use ff_core::engine_error::EngineError;
use ff_core::limits;
use ff_core::types::Namespace;
use uuid::Uuid;

use super::generate::Sequence;
use super::log;
use super::step::text;

/// A call about webhooks, and the namespace that they are in.
#[derive(Clone, Debug)]
pub struct WebhookStep {
    namespace: Namespace,
    call: WebhookCall,
}

#[derive(Clone, Debug)]
enum WebhookCall {
    Create(Box<CreateWebhookArgs>),
    List {
        after: Option<usize>,
        limit: usize,
    },
    Describe(usize),
    Pause(usize),
    Resume(usize),
    Rotate(usize, u8, Duration),
    Delete(usize),
    Deliveries(usize),
    Claim(usize, Uuid, Duration),
    /// A claim, what the log says since the last report, and a report of it.
    Deliver(usize, Delivery),
    /// A report of one who may not hold it.
    Report(usize, Delivery),
}

/// What a deliverer makes of a webhook that it holds.
#[derive(Clone, Debug)]
struct Delivery {
    owner: Uuid,
    lease: Duration,
    /// How many attempts it reports at most.
    most: usize,
    error: Option<&'static str>,
    keep: bool,
    gone: bool,
}

impl WebhookStep {
    pub async fn run(&self, on: &dyn EngineBackend) -> String {
        match self.call.clone() {
            WebhookCall::Create(args) => text(on, &on.create_webhook(*args).await.map(nameless)),
            WebhookCall::List { after, limit } => {
                let after = match after {
                    Some(at) => Some(self.id(on, at).await),
                    None => None,
                };
                let listed = on.list_webhooks(Some(&self.namespace), after, limit).await;
                text(on, &listed.map(|listed| all_nameless(listed.items)))
            }
            WebhookCall::Describe(at) => {
                let id = self.id(on, at).await;
                text(on, &on.describe_webhook(id).await.map(nameless))
            }
            WebhookCall::Pause(at) => {
                let id = self.id(on, at).await;
                text(on, &on.pause_webhook(id, "model").await.map(nameless))
            }
            WebhookCall::Resume(at) => {
                let id = self.id(on, at).await;
                text(on, &on.resume_webhook(id, "model").await.map(nameless))
            }
            WebhookCall::Rotate(at, secret, grace) => {
                let (webhook_id, secret) = (self.id(on, at).await, vec![secret; 32]);
                let args = RotateWebhookSecretArgs { webhook_id, secret, grace, by: "me".into() };
                text(on, &on.rotate_webhook_secret(args).await.map(nameless))
            }
            WebhookCall::Delete(at) => {
                let id = self.id(on, at).await;
                text(on, &on.delete_webhook(id, "model").await)
            }
            WebhookCall::Deliveries(at) => {
                let id = self.id(on, at).await;
                text(on, &on.list_webhook_deliveries(id).await)
            }
            WebhookCall::Claim(at, owner, lease) => {
                let id = self.id(on, at).await;
                text(on, &on.claim_webhook(id, owner, lease).await.map(said))
            }
            WebhookCall::Deliver(at, delivery) => {
                let id = self.id(on, at).await;
                match on.claim_webhook(id, delivery.owner, delivery.lease).await {
                    Ok(ClaimWebhookOutcome::Claimed(claimed)) => {
                        let before =
                            text(on, &(nameless(claimed.webhook.clone()), claimed.secrets));
                        let told = delivery.tell(on, &claimed.webhook).await;
                        format!("{before} {}", text(on, &told))
                    }
                    refused => text(on, &refused.map(said)),
                }
            }
            WebhookCall::Report(at, delivery) => match self.own(on).await {
                Ok(own) if at < own.len() => text(on, &delivery.tell(on, &own[at]).await),
                other => text(on, &other.map(all_nameless)),
            },
        }
    }

    /// Those of the sequence, the oldest first.
    async fn own(&self, on: &dyn EngineBackend) -> Result<Vec<WebhookSnapshot>, EngineError> {
        let listed = on.list_webhooks(Some(&self.namespace), None, limits::PAGE).await?;
        Ok(listed.items)
    }

    async fn id(&self, on: &dyn EngineBackend, at: usize) -> Uuid {
        let own = self.own(on).await.unwrap_or_default();
        own.get(at).map_or(Uuid::nil(), |webhook| webhook.webhook_id)
    }
}

impl Delivery {
    /// Reads what the webhook has not been told, and reports it. What there was, and the answer.
    async fn tell(
        &self,
        on: &dyn EngineBackend,
        webhook: &WebhookSnapshot,
    ) -> Result<String, EngineError> {
        let filter = EventFilter {
            namespace: Some(webhook.namespace.clone()),
            lane_id: webhook.lane_id.clone(),
            event_types: webhook.event_types.clone(),
            ..EventFilter::default()
        };
        let start = StartAt::After(webhook.cursor.clone());
        let (events, end) = log::drain(on.subscribe(filter, start).await?).await?;
        let events = log::comparable(events);
        let attempts = events.iter().take(self.most).map(|event| WebhookAttempt {
            event_id: format!("{:?}", event.execution_id),
            event_type: Some(event.event_type),
            status: Some(if self.error.is_some() { 500 } else { 200 }),
            duration_ms: 5,
            error: self.error.map(ToOwned::to_owned),
        });
        let args = ReportWebhookArgs {
            webhook_id: webhook.webhook_id,
            owner: self.owner,
            cursor: if self.error.is_some() { webhook.cursor.clone() } else { end },
            attempts: attempts.collect(),
            keep: self.keep.then_some(self.lease),
            // Longer than it would wait otherwise, a part of which is left to chance.
            retry_after: self.error.map(|_| self.wait_after(webhook.failures)),
            gone: self.gone,
        };
        let reported = on.report_webhook(args).await;
        Ok(format!("{events:?} {reported:?}"))
    }

    fn wait_after(&self, failures: u32) -> Duration {
        Duration::from_secs(2 << (failures + self.most as u32).min(10))
    }
}

fn said(outcome: ClaimWebhookOutcome) -> String {
    match outcome {
        ClaimWebhookOutcome::Claimed(claimed) => {
            format!("{:?} {:?}", nameless(claimed.webhook), claimed.secrets)
        }
        ClaimWebhookOutcome::Busy { until } => format!("busy until {until:?}"),
        ClaimWebhookOutcome::Idle => "idle".into(),
    }
}

fn nameless(webhook: WebhookSnapshot) -> WebhookSnapshot {
    WebhookSnapshot { webhook_id: Uuid::nil(), cursor: String::new(), ..webhook }
}

fn all_nameless(webhooks: Vec<WebhookSnapshot>) -> Vec<WebhookSnapshot> {
    webhooks.into_iter().map(nameless).collect()
}

impl Sequence {
    fn about_webhooks(&self, call: WebhookCall) -> WebhookStep {
        WebhookStep { namespace: self.namespace(), call }
    }

    pub(super) fn webhook_step(&mut self) -> WebhookStep {
        let at = self.rng().usize(..3) / 2;
        let call = match self.rng().u32(..20) {
            0..4 => WebhookCall::Create(Box::new(self.create_webhook())),
            4 => WebhookCall::Pause(at),
            5..7 => WebhookCall::Resume(at),
            7 => WebhookCall::Rotate(at, self.rng().u8(..), self.wait()),
            8 => WebhookCall::Delete(at),
            9 => WebhookCall::Describe(at),
            10 => WebhookCall::Deliveries(at),
            11 => WebhookCall::Claim(at, self.deliverer(), self.wait()),
            12 => WebhookCall::Report(at, self.delivery()),
            13 => {
                let limit = self.rng().usize(1..4);
                WebhookCall::List { after: self.some(50, |_| at), limit }
            }
            _ => WebhookCall::Deliver(at, self.delivery()),
        };
        self.about_webhooks(call)
    }

    fn deliverer(&mut self) -> Uuid {
        Uuid::from_u128(self.rng().u128(1..3))
    }

    fn delivery(&mut self) -> Delivery {
        let error = self.some(25, |_| "refused");
        Delivery {
            owner: self.deliverer(),
            lease: self.wait(),
            most: self.rng().usize(1..4),
            error,
            keep: self.rng().bool(),
            gone: error.is_some() && self.rng().u32(..4) == 0,
        }
    }

    fn create_webhook(&mut self) -> CreateWebhookArgs {
        let types = [EventType::Submitted, EventType::Claimed, EventType::Completed];
        let event_types = self.some(60, |own| types[own.rng().usize(..3)..].to_vec());
        CreateWebhookArgs {
            namespace: self.namespace(),
            name: self.some(80, |_| "hook".into()).unwrap_or_default(),
            // One of them is refused.
            url: match self.rng().u32(..20) {
                0 => String::new(),
                _ => "https://example.com/hook".into(),
            },
            event_types: event_types.unwrap_or_default(),
            lane_id: self.some(40, Self::any_lane),
            secret: vec![self.rng().u8(..); 32],
            created_by: "model".into(),
        }
    }

    /// Reads that show all that there is of the sequence's webhooks.
    pub(super) fn every_webhook(&self) -> Vec<WebhookStep> {
        let list = WebhookCall::List { after: None, limit: limits::PAGE };
        let deliveries = (0..3).map(WebhookCall::Deliveries);
        [list].into_iter().chain(deliveries).map(|call| self.about_webhooks(call)).collect()
    }
}
