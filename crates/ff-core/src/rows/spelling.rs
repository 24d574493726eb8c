//! How each enum is written in storage, and every other word that is understood when reading.
//!
//! Rows written by hand, or by other programs, use words outside these enums; they are read as the
//! nearest meaning. Only this file and the predicates in the stores' SQL know the words.

use super::{CascadeKind, EdgeKind, FlowState, LimitKind, TimerKind};
use crate::contracts::{
    BulkState, EdgeGroupState, FrameMode, SignalEffect, SuspensionReason, TimeoutBehavior, WaitEnd,
    WebhookState,
};
use crate::state::{
    AttemptOutcome, AttemptState, AttemptType, BlockingReason, EligibilityState, LaneState,
    LifecyclePhase, OwnershipState, PublicState, TerminalOutcome,
};

/// An enum with a stored word for each value.
pub trait Spelling: Sized {
    fn word(self) -> &'static str;

    /// `None` means a word that has no meaning here.
    fn read(word: &str) -> Option<Self>;
}

macro_rules! spelling {
    ($type:ty { $($variant:ident = $word:literal $(| $also:literal)*),+ $(,)? } $($else:expr)?) => {
        impl Spelling for $type {
            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            fn read(word: &str) -> Option<Self> {
                match word {
                    $($word $(| $also)* => Some(Self::$variant),)+
                    _ => spelling!(@else $($else)?),
                }
            }
        }
    };
    (@else) => { None };
    (@else $else:expr) => { Some($else) };
}

spelling!(LifecyclePhase {
    Submitted = "submitted",
    Runnable = "runnable" | "eligible" | "blocked" | "pending",
    Active = "active",
    Suspended = "suspended",
    Terminal = "terminal",
    Cancelled = "cancelled",
});

spelling!(OwnershipState { Unowned = "unowned", Leased = "leased" } Self::Unowned);

spelling!(EligibilityState {
    EligibleNow = "eligible_now" | "pending_claim",
    NotEligibleUntilTime = "not_eligible_until_time",
    BlockedByDependencies = "blocked_by_dependencies",
    BlockedByBudget = "blocked_by_budget",
    BlockedByQuota = "blocked_by_quota",
    BlockedByRoute = "blocked_by_route",
    BlockedByLaneState = "blocked_by_lane_state",
    BlockedByOperator = "blocked_by_operator",
    NotApplicable = "not_applicable",
    Cancelled = "cancelled",
} Self::NotApplicable);

spelling!(PublicState {
    Waiting = "waiting" | "pending",
    Delayed = "delayed",
    RateLimited = "rate_limited",
    WaitingChildren = "waiting_children",
    Active = "running" | "active",
    Suspended = "suspended",
    Resumable = "resumable",
    Completed = "completed" | "success",
    Failed = "failed",
    Cancelled = "cancelled",
    Expired = "expired",
    Skipped = "skipped",
} Self::Waiting);

spelling!(BlockingReason {
    None = "none",
    WaitingForWorker = "waiting_for_worker"
        | "waiting_for_capable_worker"
        | "waiting_for_locality_match",
    WaitingForRetryBackoff = "waiting_for_retry_backoff",
    WaitingForDelay = "waiting_for_delay",
    WaitingForChildren = "waiting_for_children",
    WaitingForResumeDelay = "waiting_for_resume_delay",
    WaitingForSignal = "waiting_for_signal",
    WaitingForApproval = "waiting_for_approval",
    WaitingForCallback = "waiting_for_callback",
    WaitingForToolResult = "waiting_for_tool_result",
    WaitingForBudget = "waiting_for_budget",
    WaitingForQuota = "waiting_for_quota",
    PausedByOperator = "paused_by_operator",
    PausedByPolicy = "paused_by_policy",
    PausedByFlowCancel = "paused_by_flow_cancel",
} Self::None);

spelling!(LimitKind { Budget = "budget", Quota = "quota" });

spelling!(WebhookState { Active = "active", Paused = "paused", Disabled = "disabled" });

spelling!(AttemptState {
    PendingFirstAttempt = "pending_first_attempt" | "pending" | "initial",
    RunningAttempt = "running_attempt" | "running",
    AttemptInterrupted = "attempt_interrupted",
    PendingRetryAttempt = "pending_retry_attempt",
    PendingReplayAttempt = "pending_replay_attempt",
    AttemptTerminal = "attempt_terminal" | "terminal_failed",
    Cancelled = "cancelled",
} Self::PendingFirstAttempt);

spelling!(AttemptType {
    Initial = "initial",
    Retry = "retry",
    Reclaim = "reclaim",
    Replay = "replay",
} Self::Initial);

spelling!(AttemptOutcome {
    Success = "success",
    Retry = "retry",
    Failed = "failed" | "failure",
    Cancelled = "cancelled",
    LeaseExpired = "lease_expired"
        | "lease_expired_reclaimable"
        | "interrupted_reclaimed"
        | "interrupted"
        | "attempt_interrupted",
    TimedOut = "timed_out",
    DeadlineExceeded = "deadline_exceeded",
    Skipped = "skipped",
} Self::Failed);

spelling!(FlowState {
    Open = "open",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
} Self::Open);

spelling!(EdgeGroupState {
    Pending = "pending",
    Satisfied = "satisfied",
    Impossible = "impossible",
    Cancelled = "cancelled",
} Self::Pending);

spelling!(EdgeKind { Depends = "depends", Awaits = "awaits" } Self::Depends);

spelling!(CascadeKind {
    Ended = "ended",
    Reopened = "reopened",
    Decided = "decided",
    Siblings = "siblings",
    Returned = "returned",
    Members = "members",
    Backlog = "backlog",
    Forget = "forget",
});

spelling!(TerminalOutcome {
    Success = "success",
    Failed = "failed",
    Cancelled = "cancelled",
    Expired = "expired",
    Skipped = "skipped",
});

spelling!(LaneState { Active = "active", Paused = "paused" } Self::Active);

spelling!(TimerKind {
    Lease = "lease",
    Ready = "ready",
    Deadline = "deadline",
    AttemptTimeout = "attempt_timeout",
    Idempotency = "idempotency",
    Cascade = "cascade",
    Suspension = "suspension",
    Waitpoint = "waitpoint",
    Worker = "worker",
    Limit = "limit",
    Schedule = "schedule",
    Bulk = "bulk",
});

spelling!(SuspensionReason {
    WaitingForSignal = "waiting_for_signal",
    StepBoundary = "step_boundary",
    WaitingForApproval = "waiting_for_approval",
    WaitingForCallback = "waiting_for_callback",
    WaitingForToolResult = "waiting_for_tool_result",
    WaitingForOperatorReview = "waiting_for_operator_review",
    ManualPause = "manual_pause",
    PausedByPolicy = "paused_by_policy",
    PausedByBudget = "paused_by_budget",
} Self::WaitingForSignal);

spelling!(TimeoutBehavior {
    Fail = "fail",
    Cancel = "cancel",
    Expire = "expire",
    AutoResumeWithTimeoutSignal = "auto_resume_with_timeout_signal",
    Escalate = "escalate",
});

spelling!(WaitEnd {
    Satisfied = "satisfied",
    ResumedByOperator = "resumed_by_operator",
    AutoResumed = "auto_resumed",
    TimedOut = "timed_out",
    ExecutionEnded = "execution_ended",
    NeverUsed = "never_used",
});

spelling!(SignalEffect {
    BufferedForPendingWaitpoint = "buffered_for_pending_waitpoint",
    AppendedToWaitpoint = "appended_to_waitpoint",
    AppendedToWaitpointDuplicate = "appended_to_waitpoint_duplicate",
    SignalIgnoredNotInCondition = "signal_ignored_not_in_condition",
    SignalIgnoredMatcherFailed = "signal_ignored_matcher_failed",
    ResumeConditionSatisfied = "resume_condition_satisfied",
});

spelling!(FrameMode { Durable = "durable", Summary = "summary", BestEffort = "best_effort" });

spelling!(BulkState {
    Running = "running",
    Finished = "finished",
    Cancelled = "cancelled",
});

/// Every word that is read as this state.
pub fn words_of(state: PublicState) -> Vec<&'static str> {
    let known = ["pending", "active", "success", state.word()];
    known.into_iter().filter(|word| PublicState::read(word) == Some(state)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trips<T: Spelling + Copy + PartialEq + std::fmt::Debug>(all: &[T]) {
        for value in all {
            assert_eq!(T::read(value.word()), Some(*value));
        }
    }

    #[test]
    fn every_word_reads_back() {
        round_trips(&PublicState::ALL);
        round_trips(&[
            LifecyclePhase::Submitted,
            LifecyclePhase::Runnable,
            LifecyclePhase::Active,
            LifecyclePhase::Suspended,
            LifecyclePhase::Terminal,
            LifecyclePhase::Cancelled,
        ]);
    }

    #[test]
    fn words_of_other_writers_are_understood() {
        assert_eq!(PublicState::Active.word(), "running");
        assert_eq!(PublicState::read("active"), Some(PublicState::Active));
        assert_eq!(PublicState::read("success"), Some(PublicState::Completed));
        assert_eq!(AttemptState::read("initial"), Some(AttemptState::PendingFirstAttempt));
        assert_eq!(FlowState::read("active"), Some(FlowState::Open));
        for word in ["eligible", "blocked", "pending"] {
            assert_eq!(LifecyclePhase::read(word), Some(LifecyclePhase::Runnable));
        }
        assert_eq!(EligibilityState::read("pending_claim"), Some(EligibilityState::EligibleNow));
        assert_eq!(LifecyclePhase::read("nonsense"), None);
    }
}
