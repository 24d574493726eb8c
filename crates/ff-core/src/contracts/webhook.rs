//! Webhooks: who is told of events outside, and what became of telling them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::EventType;
use crate::types::{LaneId, Namespace, TimestampMs};

/// A webhook to keep. It is told of events from now on.
#[derive(Clone)]
pub struct CreateWebhookArgs {
    /// Only events of this namespace; empty means of all of them.
    pub namespace: Namespace,
    pub name: String,
    pub url: String,
    /// Only events of these types; empty means of all of them.
    pub event_types: Vec<EventType>,
    /// Only events of this lane.
    pub lane_id: Option<LaneId>,
    /// What deliveries are signed with.
    pub secret: Vec<u8>,
    pub created_by: String,
}

/// Replaces what deliveries are signed with; both are used until the grace is over.
#[derive(Clone)]
pub struct RotateWebhookSecretArgs {
    pub webhook_id: Uuid,
    pub secret: Vec<u8>,
    pub grace: Duration,
    pub by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WebhookState {
    Active,
    /// Somebody has stopped it; what happens meanwhile is told when it is resumed.
    Paused,
    /// It has failed for too long, or its receiver has said that it is gone.
    Disabled,
}

/// A webhook as its keeper sees it: everything except its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookSnapshot {
    pub webhook_id: Uuid,
    /// Empty: of all namespaces.
    pub namespace: Namespace,
    pub name: String,
    pub url: String,
    pub event_types: Vec<EventType>,
    pub lane_id: Option<LaneId>,
    pub state: WebhookState,
    pub created_by: String,
    pub created_at: TimestampMs,
    /// The place in the log up to which everything has been told.
    pub cursor: String,
    /// How many events have been delivered.
    pub delivered: u64,
    pub last_delivered_at: Option<TimestampMs>,
    /// Failures in a row.
    pub failures: u32,
    pub failing_since: Option<TimestampMs>,
    pub next_attempt_at: Option<TimestampMs>,
    pub last_error: Option<String>,
}

/// One attempt to tell one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookDelivery {
    /// Counts the attempts of the webhook from 1.
    pub number: u64,
    /// The `webhook-id` of the event; the same in every attempt.
    pub event_id: String,
    pub event_type: Option<EventType>,
    pub at: TimestampMs,
    /// What the receiver answered, if it did.
    pub status: Option<u16>,
    pub duration_ms: u64,
    /// Absent if it was delivered.
    pub error: Option<String>,
}

/// A webhook that one deliverer has to itself for a while.
#[derive(Clone)]
pub struct ClaimedWebhook {
    pub webhook: WebhookSnapshot,
    /// What to sign with, the newest first.
    pub secrets: Vec<Vec<u8>>,
}

/// What became of a deliverer that wanted a webhook.
#[derive(Clone)]
pub enum ClaimWebhookOutcome {
    Claimed(Box<ClaimedWebhook>),
    /// Another deliverer has it, or it is to be left alone until then.
    Busy {
        until: TimestampMs,
    },
    /// It is paused or disabled.
    Idle,
}

/// What a deliverer has done for a webhook that it holds.
#[derive(Clone, Debug)]
pub struct ReportWebhookArgs {
    pub webhook_id: Uuid,
    pub owner: Uuid,
    /// Everything up to here has been told.
    pub cursor: String,
    pub attempts: Vec<WebhookAttempt>,
    /// Whether it goes on; otherwise the webhook is given back.
    pub keep: Option<Duration>,
    /// The receiver wants no attempt before this much time has passed.
    pub retry_after: Option<Duration>,
    /// The receiver has said that it is gone.
    pub gone: bool,
}

/// One attempt, as the deliverer saw it.
#[derive(Clone, Debug)]
pub struct WebhookAttempt {
    pub event_id: String,
    pub event_type: Option<EventType>,
    pub status: Option<u16>,
    pub duration_ms: u64,
    pub error: Option<String>,
}

// What opens doors is not printed.
impl fmt::Debug for CreateWebhookArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateWebhookArgs").field("url", &self.url).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClaimedWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedWebhook").field("webhook", &self.webhook).finish_non_exhaustive()
    }
}

impl fmt::Debug for RotateWebhookSecretArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = &self.webhook_id;
        f.debug_struct("RotateWebhookSecretArgs").field("webhook_id", id).finish_non_exhaustive()
    }
}
