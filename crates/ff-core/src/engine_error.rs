//! Everything that can go wrong, as one table: code, class, text.

use std::time::Duration;

use thiserror::Error;

use crate::types::NameError;

/// What a caller should make of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Asking again changes nothing: the request or the state is at fault.
    Terminal,
    /// The same request may succeed later.
    Retryable,
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident {
        $($variant:ident = $code:literal, $class:ident $(, $meaning:literal)?;)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($variant),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable word for this error in APIs and logs.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            pub const fn class(self) -> ErrorClass {
                match self { $(Self::$variant => ErrorClass::$class),+ }
            }

            /// What is the matter, where nobody can say more than that; empty where somebody can.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning)?)),+ }
            }
        }
    };
}

kinds!(
    /// The request itself is wrong.
    ValidationKind {
        InvalidInput = "invalid_input", Terminal;
        InvalidCapabilities = "invalid_capabilities", Terminal;
        InvalidPolicyJson = "invalid_policy_json", Terminal;
        PayloadTooLarge = "payload_too_large", Terminal;
        InvalidTagKey = "invalid_tag_key", Terminal;
        InvalidCursor = "invalid_cursor", Terminal;
        CursorFromOtherHistory = "cursor_from_other_history", Terminal;
        CursorBelowRetention = "cursor_below_retention", Terminal;
        Corruption = "corruption", Terminal;
        InvalidToken = "invalid_token", Terminal;
        SignalNotAllowed = "signal_not_allowed", Terminal;
        SignalLimitExceeded = "signal_limit_exceeded", Terminal;
        InvalidKid = "invalid_kid", Terminal;
        WaitpointSecretMissing = "waitpoint_secret_missing", Terminal;
        InvalidGraph = "invalid_graph", Terminal;
    }
);

kinds!(
    /// Somebody else got there first.
    ContentionKind {
        ExecutionNotEligible = "execution_not_eligible", Retryable,
            "the execution is not waiting to be handed out";
        ExecutionNotActive = "execution_not_active", Terminal,
            "no worker holds the execution";
        LeaseConflict = "lease_conflict", Retryable,
            "another worker holds the lease";
        RetryExhausted = "retry_exhausted", Retryable,
            "others were faster again and again; nothing was changed";
        CascadeRunning = "cascade_running", Retryable,
            "what happened to the flow before is still being told to its nodes";
    }
);

kinds!(
    /// The request contradicts something that is already stored.
    ConflictKind {
        IdempotencyKeyReused = "idempotency_key_reused", Terminal,
            "the idempotency key was used for other work";
        ExecutionIdReused = "execution_id_reused", Terminal,
            "the execution id was used for other work";
        ResultAlreadyRecorded = "result_already_recorded", Terminal,
            "another result was recorded before";
        WaitpointAlreadyExists = "waitpoint_already_exists", Terminal,
            "the waitpoint is there already";
        RotationConflict = "rotation_conflict", Terminal,
            "the key id is known with another secret";
        TokenReused = "token_reused", Terminal,
            "the token id is taken";
        FlowIdReused = "flow_id_reused", Terminal,
            "the flow id was used for another graph";
    }
);

kinds!(
    /// The execution is not in a state that allows this.
    StateKind {
        StaleLease = "stale_lease", Terminal,
            "the lease is not the current one: it was lost, ended or given to another worker";
        LeaseExpired = "lease_expired", Terminal,
            "the lease has expired";
        ExecutionNotTerminal = "execution_not_terminal", Terminal,
            "the execution has not ended";
        MaxReplaysExhausted = "max_replays_exhausted", Terminal,
            "the execution was replayed as often as it may be";
        NotRunnable = "not_runnable", Terminal,
            "the execution does not wait to be run: it runs, is suspended or has ended";
        AlreadySuspended = "already_suspended", Terminal,
            "the execution is suspended already";
        ExecutionNotSuspended = "execution_not_suspended", Terminal,
            "the execution is not suspended";
        WaitpointNotPending = "waitpoint_not_pending", Terminal,
            "the waitpoint is in use or has ended";
        PendingWaitpointExpired = "pending_waitpoint_expired", Terminal,
            "the waitpoint has expired before anybody waited for it";
        WaitpointClosed = "waitpoint_closed", Terminal,
            "the waitpoint takes no more signals";
        TargetNotSignalable = "target_not_signalable", Terminal,
            "the execution takes no signals in its state";
        NotInFlow = "not_in_flow", Terminal,
            "the execution is not a member of a flow";
        FlowEnded = "flow_ended", Terminal,
            "the flow has ended or is cancelled";
    }
);

/// The one error of the engine.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    #[error("no such {entity}")]
    NotFound { entity: &'static str },
    #[error("{}: {detail}", kind.code())]
    Validation { kind: ValidationKind, detail: String },
    #[error("{}: {}", .0.code(), .0.meaning())]
    Contention(ContentionKind),
    #[error("{}: {}", .0.code(), .0.meaning())]
    Conflict(ConflictKind),
    #[error("{}: {}", .0.code(), .0.meaning())]
    State(StateKind),
    /// The store could not be used; nothing was changed unless it says that the outcome is unknown.
    #[error("{backend}: {source}")]
    Transport { backend: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    /// The store went away while committing: the change may or may not have been kept. Ask again
    /// with the same ids; every write answers a repeat with the first outcome.
    #[error("{backend}: the outcome of the commit is unknown: {detail}")]
    OutcomeUnknown { backend: &'static str, detail: String },
    #[error("{op} is not available here")]
    Unavailable { op: &'static str },
    #[error("{pool} is full ({max} waiting)")]
    ResourceExhausted { pool: &'static str, max: usize, retry_after_ms: Option<u64> },
    #[error("{op} took longer than {elapsed:?}")]
    Timeout { op: &'static str, elapsed: Duration },
}

impl EngineError {
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::Validation { kind: ValidationKind::InvalidInput, detail: detail.into() }
    }

    pub fn validation(kind: ValidationKind, detail: impl Into<String>) -> Self {
        Self::Validation { kind, detail: detail.into() }
    }

    /// The stable word for this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::Validation { kind, .. } => kind.code(),
            Self::Contention(kind) => kind.code(),
            Self::Conflict(kind) => kind.code(),
            Self::State(kind) => kind.code(),
            Self::Transport { .. } => "transport",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::Unavailable { .. } => "unavailable",
            Self::ResourceExhausted { .. } => "busy",
            Self::Timeout { .. } => "timeout",
        }
    }

    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. } | Self::Unavailable { .. } => ErrorClass::Terminal,
            Self::Validation { kind, .. } => kind.class(),
            Self::Contention(kind) => kind.class(),
            Self::Conflict(kind) => kind.class(),
            Self::State(kind) => kind.class(),
            Self::Transport { .. }
            | Self::OutcomeUnknown { .. }
            | Self::ResourceExhausted { .. }
            | Self::Timeout { .. } => ErrorClass::Retryable,
        }
    }

    pub fn retryable(&self) -> bool {
        self.class() == ErrorClass::Retryable
    }

    /// Every code with its class: the table behind `docs/errors.md`.
    pub fn table() -> Vec<(&'static str, &'static str, ErrorClass, &'static str)> {
        let mut table = vec![
            (
                "not_found",
                "NotFound",
                ErrorClass::Terminal,
                "there is no such thing, or it is somebody else's",
            ),
            (
                "transport",
                "Transport",
                ErrorClass::Retryable,
                "the store could not be used; nothing was changed",
            ),
            (
                "outcome_unknown",
                "OutcomeUnknown",
                ErrorClass::Retryable,
                "the store went away during the commit",
            ),
            (
                "unavailable",
                "Unavailable",
                ErrorClass::Terminal,
                "not for a caller that is confined to a namespace",
            ),
            ("busy", "ResourceExhausted", ErrorClass::Retryable, "as much waits as may wait"),
            (
                "timeout",
                "Timeout",
                ErrorClass::Retryable,
                "what was waited for has not happened in time",
            ),
        ];
        table.extend(
            ValidationKind::ALL.iter().map(|k| (k.code(), "Validation", k.class(), k.meaning())),
        );
        table.extend(
            ContentionKind::ALL.iter().map(|k| (k.code(), "Contention", k.class(), k.meaning())),
        );
        table.extend(
            ConflictKind::ALL.iter().map(|k| (k.code(), "Conflict", k.class(), k.meaning())),
        );
        table.extend(StateKind::ALL.iter().map(|k| (k.code(), "State", k.class(), k.meaning())));
        table
    }
}

impl From<NameError> for EngineError {
    fn from(error: NameError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// What a store reports: cloneable, because one failed transaction is told to every caller in it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoreError {
    /// A new row was there already: load again and decide again.
    #[error("a row that should be new exists already: {0}")]
    Conflict(String),
    /// The transaction lost against another one: run it again.
    #[error("the transaction must be run again: {0}")]
    Retry(String),
    /// Nothing was written.
    #[error("{0}")]
    Failed(String),
    /// The store cannot be reached, or has no room for a caller; nothing was written.
    #[error("{0}")]
    Unavailable(String),
    /// The commit was sent and its answer never came.
    #[error("{0}")]
    Unknown(String),
    /// A stored value cannot be read.
    #[error("{0}")]
    Corrupt(String),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    pub fn into_engine_error(self, backend: &'static str) -> EngineError {
        match self {
            Self::Unknown(detail) => EngineError::OutcomeUnknown { backend, detail },
            Self::Corrupt(detail) => EngineError::validation(ValidationKind::Corruption, detail),
            Self::Conflict(_) | Self::Retry(_) => {
                EngineError::Contention(ContentionKind::RetryExhausted)
            }
            other => EngineError::Transport { backend, source: Box::new(other) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique() {
        let mut codes: Vec<_> = EngineError::table().into_iter().map(|row| row.0).collect();
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
    }

    #[test]
    fn errors_without_a_detail_say_what_is_the_matter() {
        for (code, variant, _, meaning) in EngineError::table() {
            assert_eq!(meaning.is_empty(), variant == "Validation", "{code}");
        }
        let told = EngineError::State(StateKind::NotInFlow).to_string();
        assert_eq!(told, "not_in_flow: the execution is not a member of a flow");
    }
}
