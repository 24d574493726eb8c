//! Suspending, waiting, signalling: what is asked and told.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ResumeSignal;
use crate::condition::ResumeCondition;
use crate::state::BlockingReason;
use crate::token::WaitpointToken;
use crate::types::{
    ExecutionId, Namespace, SuspensionId, TimestampMs, WaitpointId, WorkerInstanceId,
};

/// Why an execution is suspended; it is what operators are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SuspensionReason {
    #[default]
    WaitingForSignal,
    StepBoundary,
    WaitingForApproval,
    WaitingForCallback,
    WaitingForToolResult,
    WaitingForOperatorReview,
    ManualPause,
    PausedByPolicy,
    PausedByBudget,
}

impl SuspensionReason {
    pub fn blocking_reason(self) -> BlockingReason {
        match self {
            Self::WaitingForSignal | Self::StepBoundary => BlockingReason::WaitingForSignal,
            Self::WaitingForApproval => BlockingReason::WaitingForApproval,
            Self::WaitingForCallback => BlockingReason::WaitingForCallback,
            Self::WaitingForToolResult => BlockingReason::WaitingForToolResult,
            Self::WaitingForOperatorReview | Self::ManualPause => BlockingReason::PausedByOperator,
            Self::PausedByPolicy => BlockingReason::PausedByPolicy,
            Self::PausedByBudget => BlockingReason::WaitingForBudget,
        }
    }
}

/// What happens when nobody has resumed the execution in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeoutBehavior {
    #[default]
    Fail,
    Cancel,
    Expire,
    /// It goes on, and finds a signal named [`TIMEOUT_SIGNAL`] among those that it waited for.
    AutoResumeWithTimeoutSignal,
    /// It stays suspended, for an operator to look at, and signals still count.
    Escalate,
}

/// The name of the signal that a time-out makes.
pub const TIMEOUT_SIGNAL: &str = "__timeout__";

/// A request for a token, and how long it is good for; as long as its waitpoint if absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TokenTerms {
    pub ttl_ms: Option<u64>,
}

/// A waitpoint that a suspension listens to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum WaitpointBinding {
    /// Made by the suspension. Without a token only an operator can signal it.
    Fresh { waitpoint_id: WaitpointId, waitpoint_key: String, token: Option<TokenTerms> },
    /// Made earlier by `create_waitpoint`; what has been signalled since then counts.
    UsePending { waitpoint_id: WaitpointId },
}

impl WaitpointBinding {
    /// A waitpoint with a token, under an identity of its own.
    pub fn fresh(waitpoint_key: impl Into<String>) -> Self {
        let token = Some(TokenTerms::default());
        Self::Fresh { waitpoint_id: WaitpointId::new(), waitpoint_key: waitpoint_key.into(), token }
    }

    pub fn id(&self) -> WaitpointId {
        let (Self::Fresh { waitpoint_id, .. } | Self::UsePending { waitpoint_id }) = self;
        *waitpoint_id
    }

    /// A waitpoint that needs no configured secret.
    pub fn without_token(waitpoint_key: impl Into<String>) -> Self {
        let (waitpoint_id, waitpoint_key) = (WaitpointId::new(), waitpoint_key.into());
        Self::Fresh { waitpoint_id, waitpoint_key, token: None }
    }
}

/// How a holder puts its execution down until something happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SuspendArgs {
    #[serde(default = "SuspensionId::new")]
    pub suspension_id: SuspensionId,
    #[serde(default)]
    pub reason: SuspensionReason,
    /// One for every key that the condition names, and no others.
    #[serde(default)]
    pub waitpoints: Vec<WaitpointBinding>,
    pub condition: ResumeCondition,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub timeout_behavior: TimeoutBehavior,
    /// How long after the condition is met the execution goes on.
    #[serde(default)]
    pub resume_delay_ms: u64,
    /// A note of the worker's own, handed back by `describe_suspension`.
    #[serde(default)]
    pub continuation: Option<String>,
    /// Names this wait within its execution: whoever asks for it again, in this attempt or a later
    /// one, is told what became of it.
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

impl SuspendArgs {
    /// Fresh waitpoints with tokens for whatever the condition names.
    pub fn new(condition: ResumeCondition) -> Self {
        let waitpoints =
            condition.waitpoint_keys().into_iter().map(WaitpointBinding::fresh).collect();
        Self {
            suspension_id: SuspensionId::new(),
            reason: SuspensionReason::default(),
            waitpoints,
            condition,
            timeout_ms: None,
            timeout_behavior: TimeoutBehavior::default(),
            resume_delay_ms: 0,
            continuation: None,
            idempotency_key: None,
        }
    }

    /// The same without tokens: operators and the embedding program signal it.
    #[must_use]
    pub fn without_tokens(mut self) -> Self {
        for waitpoint in &mut self.waitpoints {
            if let WaitpointBinding::Fresh { token, .. } = waitpoint {
                *token = None;
            }
        }
        self
    }

    #[must_use]
    pub fn waitpoints(mut self, waitpoints: impl IntoIterator<Item = WaitpointBinding>) -> Self {
        self.waitpoints = waitpoints.into_iter().collect();
        self
    }

    #[must_use]
    pub fn reason(mut self, reason: SuspensionReason) -> Self {
        self.reason = reason;
        self
    }

    #[must_use]
    pub fn timeout(mut self, timeout: Duration, behavior: TimeoutBehavior) -> Self {
        self.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self.timeout_behavior = behavior;
        self
    }

    #[must_use]
    pub fn resume_delay(mut self, delay: Duration) -> Self {
        self.resume_delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self
    }

    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }
}

/// A waitpoint as its maker is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitpointGrant {
    pub waitpoint_id: WaitpointId,
    pub waitpoint_key: String,
    /// What an outside caller needs to signal it, if it was asked for.
    pub token: Option<WaitpointToken>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspensionDetails {
    pub suspension_id: SuspensionId,
    pub waitpoints: Vec<WaitpointGrant>,
    pub timeout_at: Option<TimestampMs>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum SuspendOutcome {
    /// The lease is given back; the attempt goes on with another claim.
    Suspended(SuspensionDetails),
    /// There is nothing to wait for: the lease stands and the holder goes on.
    AlreadySatisfied { suspension_id: SuspensionId, signals: Vec<ResumeSignal> },
}

/// A waitpoint that is made before anybody waits for it, so that no signal can come too early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateWaitpointArgs {
    #[serde(default = "WaitpointId::new")]
    pub waitpoint_id: WaitpointId,
    /// Unique among the open waitpoints of the execution. Asking for the same one again, in this
    /// attempt or a later one, answers with the waitpoint that is there.
    pub waitpoint_key: String,
    /// How long it waits to be used by a suspension.
    pub expires_in_ms: u64,
    /// The only signals that it takes; any if empty.
    #[serde(default)]
    pub signal_names: Vec<String>,
    pub token: Option<TokenTerms>,
}

impl CreateWaitpointArgs {
    pub fn new(waitpoint_key: impl Into<String>, expires_in: Duration) -> Self {
        Self {
            waitpoint_id: WaitpointId::new(),
            waitpoint_key: waitpoint_key.into(),
            expires_in_ms: u64::try_from(expires_in.as_millis()).unwrap_or(u64::MAX),
            signal_names: Vec::new(),
            token: Some(TokenTerms::default()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PendingWaitpoint {
    #[serde(flatten)]
    pub waitpoint: WaitpointGrant,
    /// When it closes unless a suspension uses it.
    pub expires_at: TimestampMs,
}

/// An operator lets a suspended execution go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeArgs {
    pub execution_id: ExecutionId,
    #[serde(default)]
    pub by: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub delay_ms: u64,
}

/// Makes another configured secret the one that tokens are made with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RotateWaitpointSecretArgs {
    pub new_kid: String,
    /// How long tokens of the key before it are still taken; 0 cuts them off at once.
    pub grace_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RotateWaitpointSecretResult {
    Rotated {
        previous_kid: Option<String>,
        new_kid: String,
    },
    /// It is the one already.
    Noop {
        kid: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum SeedWaitpointSecretResult {
    Seeded { kid: String },
    AlreadySeeded { kid: String, same_secret: bool },
}

/// Whether a key makes tokens, or for how long its tokens are still taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitpointKeySnapshot {
    pub kid: String,
    pub active: bool,
    pub verifies_until: Option<TimestampMs>,
    /// Whether this host has its secret.
    pub configured: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitpointState {
    /// No suspension uses it yet.
    Pending,
    Active,
    Closed,
}

/// The one way in which a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitEnd {
    /// The condition was met.
    Satisfied,
    ResumedByOperator,
    /// Its time ran out and it went on.
    AutoResumed,
    /// Its time ran out and the execution ended.
    TimedOut,
    /// The execution ended for another reason.
    ExecutionEnded,
    /// No suspension came for the waitpoint in time.
    NeverUsed,
}

impl WaitEnd {
    /// Whether the execution went on.
    pub fn is_resumed(self) -> bool {
        matches!(self, Self::Satisfied | Self::ResumedByOperator | Self::AutoResumed)
    }
}

/// A waitpoint without its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitpointSnapshot {
    pub waitpoint_id: WaitpointId,
    pub waitpoint_key: String,
    pub execution_id: ExecutionId,
    pub namespace: Namespace,
    pub state: WaitpointState,
    pub signal_names: Vec<String>,
    pub signal_count: u32,
    pub created_at: TimestampMs,
    pub expires_at: Option<TimestampMs>,
    pub activated_at: Option<TimestampMs>,
    pub closed_at: Option<TimestampMs>,
    pub end: Option<WaitEnd>,
    pub token_kid: Option<String>,
    pub token_expires_at: Option<TimestampMs>,
}

/// What the bearer of a waitpoint's token is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub waitpoint: WaitpointSnapshot,
    pub execution_kind: String,
    /// Whether a signal would still be taken.
    pub is_open: bool,
}

/// The open waitpoints of a namespace, or all waitpoints of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListWaitpointsArgs {
    pub execution_id: Option<ExecutionId>,
    pub namespace: Option<Namespace>,
    pub cursor: Option<String>,
    /// 100 if zero.
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitpointPage {
    pub waitpoints: Vec<WaitpointSnapshot>,
    pub next_cursor: Option<String>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<super::UnreadableRecord>,
}

/// The suspension that an execution is in, or was in last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SuspensionSnapshot {
    pub suspension_id: SuspensionId,
    pub execution_id: ExecutionId,
    pub attempt_index: u32,
    pub reason: SuspensionReason,
    pub condition: ResumeCondition,
    pub suspended_by: WorkerInstanceId,
    pub suspended_at: TimestampMs,
    pub timeout_at: Option<TimestampMs>,
    pub timeout_behavior: TimeoutBehavior,
    pub resume_delay_ms: u64,
    pub continuation: Option<String>,
    pub idempotency_key: Option<String>,
    pub waitpoints: Vec<WaitpointSnapshot>,
    pub closed_at: Option<TimestampMs>,
    pub end: Option<WaitEnd>,
}
