//! One attempt: connect to an address that was checked, send, and look at the status alone.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ff_core::contracts::{Event, WebhookAttempt};
use ff_core::types::TimestampMs;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, header};

use super::envelope;
use super::guard::Guard;
use super::places::Places;

const CONNECT: Duration = Duration::from_secs(5);
/// From the first byte to the head of the answer.
pub const PATIENCE: Duration = Duration::from_secs(15);

pub struct Sender {
    guard: Guard,
    /// Made when it is first needed, because most servers have no webhooks.
    client: OnceLock<Client>,
    places: Places,
    pub delivered: AtomicU64,
    pub failed: AtomicU64,
}

/// What became of an attempt.
pub struct Sent {
    pub attempt: WebhookAttempt,
    pub retry_after: Option<Duration>,
    /// The receiver has said that it wants no more.
    pub gone: bool,
}

/// What is to be sent, and what to sign it with.
pub struct Message<'m> {
    /// The webhook's own; empty if it is for all of them.
    pub namespace: &'m str,
    pub url: &'m str,
    pub secrets: &'m [Vec<u8>],
    pub id: &'m str,
    pub event: &'m Event,
    pub now: TimestampMs,
}

impl Sender {
    pub fn new(guard: Guard) -> Self {
        Self {
            guard,
            client: OnceLock::new(),
            places: Places::default(),
            delivered: AtomicU64::default(),
            failed: AtomicU64::default(),
        }
    }

    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    pub async fn send(&self, message: Message<'_>) -> Sent {
        let _place = self.places.take(message.namespace).await;
        let begun = Instant::now();
        let answered = self.post(&message).await;
        let (status, retry_after) = match &answered {
            Ok(response) => (Some(response.status()), retry_after(response)),
            Err(_) => (None, None),
        };
        let error = match (answered, status) {
            (_, Some(status)) if status.is_success() => None,
            (_, Some(status)) => Some(format!("the receiver answered {}", status.as_u16())),
            (Err(error), None) => Some(error),
            (Ok(_), None) => None,
        };
        let counted = if error.is_none() { &self.delivered } else { &self.failed };
        counted.fetch_add(1, Ordering::Relaxed);
        let attempt = WebhookAttempt {
            event_id: message.id.to_owned(),
            event_type: Some(message.event.event_type),
            status: status.map(|status| status.as_u16()),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            error,
        };
        Sent { attempt, retry_after, gone: status == Some(StatusCode::GONE) }
    }

    async fn post(&self, message: &Message<'_>) -> Result<Response, String> {
        let url = self.guard.check_url(message.url)?;
        let body = envelope::body(message.id, message.event);
        let timestamp = message.now.0 / 1000;
        let signature = envelope::signature(message.secrets, message.id, timestamp, &body);
        let request = self
            .client()?
            .post(url)
            .header(header::CONTENT_TYPE, "application/cloudevents+json; charset=UTF-8")
            .header("webhook-id", message.id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature)
            .body(body);
        request.send().await.map_err(told)
    }

    fn client(&self) -> Result<&Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // Another part of the program may have chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(self.guard.clone())
            .connect_timeout(CONNECT)
            .timeout(PATIENCE)
            .pool_max_idle_per_host(1)
            .user_agent(concat!("FlowFabric/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| format!("no client can be made: {error}"))?;
        Ok(self.client.get_or_init(|| client))
    }
}

/// Seconds alone are understood; dates are ignored.
fn retry_after(response: &Response) -> Option<Duration> {
    let given = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    given.parse().ok().map(Duration::from_secs)
}

/// The innermost reason, without the address, which may hold a secret.
fn told(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} seconds", PATIENCE.as_secs());
    }
    let error = error.without_url();
    let mut reason: &dyn std::error::Error = &error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    format!("the receiver cannot be reached: {reason}")
}
