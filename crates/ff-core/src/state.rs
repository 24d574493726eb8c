//! The states of an execution. How each is spelled in storage lives in `rows::spelling`.

use serde::{Deserialize, Serialize};

/// The one state that users see; a function of the others, stored so that it can be filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PublicState {
    Waiting,
    Delayed,
    RateLimited,
    WaitingChildren,
    Active,
    Suspended,
    Resumable,
    Completed,
    Failed,
    Cancelled,
    Expired,
    Skipped,
}

impl PublicState {
    pub const ALL: [Self; 12] = [
        Self::Waiting,
        Self::Delayed,
        Self::RateLimited,
        Self::WaitingChildren,
        Self::Active,
        Self::Suspended,
        Self::Resumable,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
        Self::Skipped,
    ];

    pub fn is_finished(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Expired | Self::Skipped
        )
    }

    /// The word in the public API. Storage spells two of them differently.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delayed => "delayed",
            Self::RateLimited => "rate_limited",
            Self::WaitingChildren => "waiting_children",
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Resumable => "resumable",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Skipped => "skipped",
        }
    }
}

/// Where an execution stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifecyclePhase {
    Submitted,
    Runnable,
    Active,
    Suspended,
    Terminal,
    /// Ended by cancellation. Kept apart from `Terminal` because only the latter can be replayed.
    Cancelled,
}

impl LifecyclePhase {
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Terminal | Self::Cancelled)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnershipState {
    Unowned,
    Leased,
}

/// Whether a waiting execution may be handed out, and if not, what holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EligibilityState {
    EligibleNow,
    NotEligibleUntilTime,
    BlockedByDependencies,
    BlockedByBudget,
    BlockedByQuota,
    BlockedByRoute,
    BlockedByLaneState,
    BlockedByOperator,
    NotApplicable,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockingReason {
    None,
    WaitingForWorker,
    WaitingForRetryBackoff,
    WaitingForDelay,
    WaitingForChildren,
    WaitingForResumeDelay,
    WaitingForSignal,
    WaitingForApproval,
    WaitingForCallback,
    WaitingForToolResult,
    WaitingForBudget,
    WaitingForQuota,
    PausedByOperator,
    PausedByPolicy,
    PausedByFlowCancel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptState {
    PendingFirstAttempt,
    RunningAttempt,
    AttemptInterrupted,
    PendingRetryAttempt,
    PendingReplayAttempt,
    AttemptTerminal,
    Cancelled,
}

/// Why an attempt began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptType {
    Initial,
    Retry,
    Reclaim,
    Replay,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    Success,
    Retry,
    Failed,
    Cancelled,
    LeaseExpired,
    TimedOut,
    DeadlineExceeded,
    Skipped,
}

/// The one way in which a finished execution finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminalOutcome {
    Success,
    Failed,
    Cancelled,
    Expired,
    Skipped,
}

impl TerminalOutcome {
    pub fn public_state(self) -> PublicState {
        match self {
            Self::Success => PublicState::Completed,
            Self::Failed => PublicState::Failed,
            Self::Cancelled => PublicState::Cancelled,
            Self::Expired => PublicState::Expired,
            Self::Skipped => PublicState::Skipped,
        }
    }
}

/// A waiting execution's public state follows from what holds it.
pub fn public_state_while_runnable(eligibility: EligibilityState) -> PublicState {
    match eligibility {
        EligibilityState::NotEligibleUntilTime => PublicState::Delayed,
        EligibilityState::BlockedByDependencies => PublicState::WaitingChildren,
        EligibilityState::BlockedByBudget | EligibilityState::BlockedByQuota => {
            PublicState::RateLimited
        }
        EligibilityState::EligibleNow
        | EligibilityState::BlockedByRoute
        | EligibilityState::BlockedByLaneState
        | EligibilityState::BlockedByOperator
        | EligibilityState::NotApplicable
        | EligibilityState::Cancelled => PublicState::Waiting,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    #[default]
    Active,
    Paused,
}
