//! One entry of the log, and what a subscriber asks for.

use serde::{Deserialize, Serialize};

use super::Actor;
use crate::state::PublicState;
use crate::types::{ExecutionId, FlowId, LaneId, Namespace, TimestampMs};

macro_rules! event_types {
    ($($(#[$doc:meta])* $variant:ident = $word:literal;)+) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum EventType { $($(#[$doc])* $variant),+ }

        impl EventType {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

event_types! {
    Submitted = "submitted";
    Claimed = "claimed";
    Completed = "completed";
    Failed = "failed";
    Cancelled = "cancelled";
    Expired = "expired";
    Skipped = "skipped";
    RetryScheduled = "retry_scheduled";
    Delayed = "delayed";
    /// A delay or a back-off is over.
    Ready = "ready";
    LeaseExpired = "lease_expired";
    LeaseRevoked = "lease_revoked";
    PriorityChanged = "priority_changed";
    Replayed = "replayed";
    Rescheduled = "rescheduled";
    TagsChanged = "tags_changed";
    Held = "held";
    FlowCancelRequested = "flow_cancel_requested";
    Suspended = "suspended";
    WaitpointCreated = "waitpoint_created";
    SignalDelivered = "signal_delivered";
    /// A suspended execution goes on.
    Resumed = "resumed";
    /// A suspension's time has run out, and an operator should look at it.
    Escalated = "escalated";
    /// The first key that waitpoint tokens are made with was chosen.
    WaitpointKeySeeded = "waitpoint_key_seeded";
    WaitpointKeyRotated = "waitpoint_key_rotated";
    /// The parents of a member, or the nodes that it added, let it go on.
    Unblocked = "unblocked";
    /// A member was given a parent before it had started.
    Blocked = "blocked";
    /// A holder waits for the nodes that it has added to its flow.
    WaitingChildren = "waiting_children";
    FlowSubmitted = "flow_submitted";
    FlowExtended = "flow_extended";
    FlowCompleted = "flow_completed";
    FlowFailed = "flow_failed";
    /// A member of an ended flow runs again.
    FlowReopened = "flow_reopened";
    FlowReplayed = "flow_replayed";
    LanePaused = "lane_paused";
    LaneResumed = "lane_resumed";
    WorkerRegistered = "worker_registered";
    WorkerRetired = "worker_retired";
    /// It gave no sign of life for as long as it had said.
    WorkerLost = "worker_lost";
    TokenCreated = "token_created";
    TokenRevoked = "token_revoked";
    /// A budget or a quota has no room for it: it waits.
    Limited = "limited";
    /// Somebody lets it go on that its budget had suspended.
    Approved = "approved";
    BudgetAttached = "budget_attached";
    LimitDeclared = "limit_declared";
    LimitDeleted = "limit_deleted";
    BudgetBreached = "budget_breached";
    BudgetSoftBreached = "budget_soft_breached";
    BudgetReset = "budget_reset";
    BudgetReleased = "budget_released";
    SchedulePut = "schedule_put";
    SchedulePaused = "schedule_paused";
    ScheduleResumed = "schedule_resumed";
    ScheduleDeleted = "schedule_deleted";
    ScheduleBackfill = "schedule_backfill";
    /// Due times passed without a run.
    ScheduleLeftOut = "schedule_left_out";
    BulkStarted = "bulk_started";
    BulkFinished = "bulk_finished";
    BulkCancelled = "bulk_cancelled";
    WebhookCreated = "webhook_created";
    WebhookPaused = "webhook_paused";
    WebhookResumed = "webhook_resumed";
    WebhookSecretRotated = "webhook_secret_rotated";
    /// Its receiver has failed for too long, or has said that it is gone.
    WebhookDisabled = "webhook_disabled";
    WebhookDeleted = "webhook_deleted";
    /// What is stored of the event cannot be read; `details.unreadable` says why.
    Unreadable = "unreadable";
}

impl EventType {
    /// Whether an execution ended with this event.
    pub fn is_finish(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Expired | Self::Skipped
        )
    }
}

/// One accepted transition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Resuming a subscription here yields the next event.
    pub cursor: String,
    pub at: TimestampMs,
    pub event_type: EventType,
    pub namespace: Namespace,
    pub lane_id: Option<LaneId>,
    pub execution_kind: Option<String>,
    pub execution_id: Option<ExecutionId>,
    pub flow_id: Option<FlowId>,
    pub from: Option<PublicState>,
    pub to: Option<PublicState>,
    /// Counts the execution's transitions from 1, without holes.
    pub version: u64,
    pub attempt_index: u32,
    pub lease_epoch: u64,
    /// The worker instance or the person that caused it, where known.
    pub by: Option<String>,
    /// The token, the address and the request that caused it, if it came through a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    pub details: serde_json::Value,
}

/// Which events a subscriber wants; an absent part means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub namespace: Option<Namespace>,
    pub lane_id: Option<LaneId>,
    pub execution_kind: Option<String>,
    pub flow_id: Option<FlowId>,
    pub event_types: Vec<EventType>,
    /// Only what operators and admins have done through a server.
    pub audit: bool,
}
