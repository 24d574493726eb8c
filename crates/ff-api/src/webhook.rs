//! Webhooks: who is told of events outside.

use std::fmt;

use ff_core::contracts::{EventType, WebhookDelivery, WebhookSnapshot};
use ff_core::types::LaneId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Span;

/// A receiver of events. It is told of what happens from now on, in the namespace of the request.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhookRequest {
    /// `https://…` or `http://…`. Addresses of this network are refused unless `webhook_allow` has
    /// them.
    pub url: String,
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Only events of these types; all of them if it is absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<EventType>,
    /// Only events of this lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane_id: Option<LaneId>,
}

/// One of the two answers that show a secret.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedWebhook {
    /// `whsec_` and base64: what deliveries are signed with. It cannot be read again.
    pub secret: String,
    #[serde(flatten)]
    pub snapshot: WebhookSnapshot,
}

impl fmt::Debug for CreatedWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = &self.snapshot;
        f.debug_struct("CreatedWebhook").field("snapshot", snapshot).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RotateWebhookSecretRequest {
    /// How long deliveries are signed with the old secret too; a day if it is absent.
    pub grace: Span,
}

impl Default for RotateWebhookSecretRequest {
    fn default() -> Self {
        Self { grace: Span::secs(24 * 60 * 60) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WebhooksAnswer {
    pub webhooks: Vec<WebhookSnapshot>,
    /// Pass it as `after` for what follows; present when there is more.
    pub next_after: Option<Uuid>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WebhookDeliveriesAnswer {
    /// The last 50 attempts, the newest first.
    pub deliveries: Vec<WebhookDelivery>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}
