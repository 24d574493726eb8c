//! Everything that can go wrong, as one table: code, class, text.

use std::time::Duration;

use thiserror::Error;

use crate::types::{ExecutionId, NameError};

/// What a caller should make of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Asking again changes nothing: the request or the state is at fault.
    Terminal,
    /// The same request may succeed later.
    Retryable,
}

/// One error as the documentation shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// The stable word in APIs and logs.
    pub code: &'static str,
    /// The variant of [`EngineError`].
    pub variant: &'static str,
    pub class: ErrorClass,
    pub meaning: &'static str,
    /// What the caller can do about it.
    pub remedy: &'static str,
}

/// The errors that have no kinds.
const WITHOUT_KINDS: [ErrorEntry; 7] = [
    ErrorEntry {
        code: "not_found",
        variant: "NotFound",
        class: ErrorClass::Terminal,
        meaning: "it does not exist, or belongs to another namespace",
        remedy: "Check the id and the namespace; retention may have deleted it.",
    },
    ErrorEntry {
        code: "unique_key_held",
        variant: "UniqueKeyHeld",
        class: ErrorClass::Terminal,
        meaning: "another execution, which is named, holds the unique key until it ends",
        remedy: "Wait for the end of that execution, or cancel it.",
    },
    ErrorEntry {
        code: "transport",
        variant: "Transport",
        class: ErrorClass::Retryable,
        meaning: "the store could not be used; nothing was changed",
        remedy: "Send the same request again; check the database if it goes on.",
    },
    ErrorEntry {
        code: "outcome_unknown",
        variant: "OutcomeUnknown",
        class: ErrorClass::Retryable,
        meaning: "the store went away during the commit, so the change may or may not be stored",
        remedy: "Send the same request again with the same ids: a repeat is recognised.",
    },
    ErrorEntry {
        code: "unavailable",
        variant: "Unavailable",
        class: ErrorClass::Terminal,
        meaning: "not available to a caller that is confined to a namespace",
        remedy: "Use a token for all namespaces.",
    },
    ErrorEntry {
        code: "busy",
        variant: "ResourceExhausted",
        class: ErrorClass::Retryable,
        meaning: "a queue or a limit of the engine is full",
        remedy: "Send the same request again after the time that the answer names.",
    },
    ErrorEntry {
        code: "timeout",
        variant: "Timeout",
        class: ErrorClass::Retryable,
        meaning: "what the caller waited for has not happened in time",
        remedy: "Wait again, or longer.",
    },
];

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident {
        $($variant:ident = $code:literal, $class:ident, $meaning:literal, $remedy:literal;)+
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

            /// What is wrong.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }

            /// What the caller can do about it.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy),+ }
            }

            fn entries(variant: &'static str) -> impl Iterator<Item = ErrorEntry> {
                Self::ALL.iter().map(move |kind| ErrorEntry {
                    code: kind.code(),
                    variant,
                    class: kind.class(),
                    meaning: kind.meaning(),
                    remedy: kind.remedy(),
                })
            }
        }
    };
}

kinds!(
    /// The request itself is wrong.
    ValidationKind {
        InvalidInput = "invalid_input", Terminal,
            "an argument is missing, out of bounds or contradicts another",
            "Correct the argument that the detail names.";
        InvalidCapabilities = "invalid_capabilities", Terminal,
            "a capability is malformed, or there are too many of them",
            "Correct the capability that the detail names.";
        InvalidPolicyJson = "invalid_policy_json", Terminal,
            "the execution policy has a value that is not allowed",
            "Correct the field that the detail names.";
        PayloadTooLarge = "payload_too_large", Terminal,
            "a payload, result or frame is larger than the limit that the detail names",
            "Store the bytes elsewhere and pass a reference.";
        InvalidTagKey = "invalid_tag_key", Terminal,
            "a tag key is not of the form `namespace.name` in lower case",
            "Rename the tag, for example `team.name`.";
        InvalidCursor = "invalid_cursor", Terminal,
            "the cursor was not made by this engine, or was altered",
            "Start from the oldest or the latest event.";
        CursorFromOtherHistory = "cursor_from_other_history", Terminal,
            "the cursor belongs to another database, or to a log that was lost in a restore",
            "Read the current state, then subscribe from the latest event.";
        CursorBelowRetention = "cursor_below_retention", Terminal,
            "events after the cursor have been deleted by retention",
            "Read the current state, then subscribe from the oldest event.";
        Corruption = "corruption", Terminal,
            "a stored row cannot be read",
            "Run `flowfabric doctor`; correct or delete the row that the detail names.";
        InvalidToken = "invalid_token", Terminal,
            "the waitpoint token is forged, expired, or signed with a retired key",
            "Ask for a new token.";
        SignalNotAllowed = "signal_not_allowed", Terminal,
            "the waitpoint does not accept this signal or this source",
            "Send a signal that the waitpoint's condition names.";
        SignalLimitExceeded = "signal_limit_exceeded", Terminal,
            "the execution has received as many signals as it may",
            "Send no more signals to this execution.";
        InvalidKid = "invalid_kid", Terminal,
            "the key id of a waitpoint secret is unknown or malformed",
            "Use the id of a configured key.";
        WaitpointSecretMissing = "waitpoint_secret_missing", Terminal,
            "no waitpoint secret is configured, so no token can be made or checked",
            "Configure a secret, then seed it.";
        InvalidGraph = "invalid_graph", Terminal,
            "the graph has a cycle, an unknown node, a duplicate edge or an impossible group",
            "Correct the nodes or edges that the detail names.";
    }
);

kinds!(
    /// Somebody else got there first.
    ContentionKind {
        ExecutionNotEligible = "execution_not_eligible", Retryable,
            "the execution is not waiting to be handed out",
            "Wait until it is `waiting`, or read `explain` for what holds it.";
        ExecutionNotActive = "execution_not_active", Terminal,
            "no worker holds the execution",
            "Stop working on it: its lease has ended.";
        LeaseConflict = "lease_conflict", Retryable,
            "another worker holds the lease",
            "Claim again.";
        RetryExhausted = "retry_exhausted", Retryable,
            "others were faster again and again; nothing was changed",
            "Send the same request again.";
        CascadeRunning = "cascade_running", Retryable,
            "what happened to the flow before is still being told to its nodes",
            "Send the same request again after a moment.";
    }
);

kinds!(
    /// The request contradicts something that is already stored.
    ConflictKind {
        IdempotencyKeyReused = "idempotency_key_reused", Terminal,
            "the idempotency key was used for other work",
            "Use another key, or send the same work again.";
        ExecutionIdReused = "execution_id_reused", Terminal,
            "the execution id was used for other work",
            "Use another id.";
        ResultAlreadyRecorded = "result_already_recorded", Terminal,
            "another result was recorded before",
            "Keep the recorded result.";
        WaitpointAlreadyExists = "waitpoint_already_exists", Terminal,
            "the waitpoint is there already",
            "Use the existing waitpoint, or another key.";
        RotationConflict = "rotation_conflict", Terminal,
            "the key id is known with another secret",
            "Give every server the same secret for this key id.";
        TokenReused = "token_reused", Terminal,
            "the token id is taken",
            "Use another token id.";
        TokenNameTaken = "token_name_taken", Terminal,
            "a valid token of the same namespace has this name",
            "Use another name, or revoke the token that has it.";
        FlowIdReused = "flow_id_reused", Terminal,
            "the flow id was used for another graph",
            "Use another id, or send the same graph again.";
    }
);

kinds!(
    /// The execution is not in a state that allows this.
    StateKind {
        StaleLease = "stale_lease", Terminal,
            "the lease is not the current one: it was lost, ended or given to another worker",
            "Stop working on it; the current holder decides.";
        LeaseExpired = "lease_expired", Terminal,
            "the lease has expired",
            "Stop working on it, and renew leases earlier.";
        ExecutionNotTerminal = "execution_not_terminal", Terminal,
            "the execution has not ended, or it was cancelled: a cancelled execution cannot be \
             replayed, use `resubmit`",
            "Wait for its end, or start a cancelled execution's work anew with `resubmit`.";
        ExecutionNotEnded = "execution_not_ended", Terminal,
            "the execution has not ended",
            "Wait for its end, or cancel it.";
        MaxReplaysExhausted = "max_replays_exhausted", Terminal,
            "the execution was replayed as often as it may be",
            "Submit it again, or raise `max_replay_count` for new work.";
        NotRunnable = "not_runnable", Terminal,
            "the execution does not wait to be run: it runs, is suspended or has ended",
            "Wait until it is `waiting` or `delayed`.";
        AlreadySuspended = "already_suspended", Terminal,
            "the execution is suspended already",
            "Resume it first.";
        ExecutionNotSuspended = "execution_not_suspended", Terminal,
            "the execution is not suspended",
            "Nothing has to be resumed.";
        WaitpointNotPending = "waitpoint_not_pending", Terminal,
            "the waitpoint is in use or has ended",
            "Create another waitpoint.";
        PendingWaitpointExpired = "pending_waitpoint_expired", Terminal,
            "the waitpoint has expired before anybody waited for it",
            "Create another waitpoint.";
        WaitpointClosed = "waitpoint_closed", Terminal,
            "the waitpoint takes no more signals",
            "Send no more signals to it.";
        TargetNotSignalable = "target_not_signalable", Terminal,
            "the execution takes no signals in its state",
            "Wait until the execution is suspended or has a pending waitpoint.";
        NotInFlow = "not_in_flow", Terminal,
            "the execution is not a member of a flow",
            "Call this for members of flows only.";
        FlowEnded = "flow_ended", Terminal,
            "the flow has ended or is cancelled",
            "Submit a new flow, or replay a node of this one.";
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
    /// Only one execution at a time may live under a unique key, and another one does.
    #[error("unique_key_held: execution {holder} holds the unique key until it ends")]
    UniqueKeyHeld { holder: ExecutionId },
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
            Self::UniqueKeyHeld { .. } => "unique_key_held",
            Self::Transport { .. } => "transport",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::Unavailable { .. } => "unavailable",
            Self::ResourceExhausted { .. } => "busy",
            Self::Timeout { .. } => "timeout",
        }
    }

    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. } | Self::Unavailable { .. } | Self::UniqueKeyHeld { .. } => {
                ErrorClass::Terminal
            }
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

    /// Every error: the table behind `docs/errors.md`.
    pub fn table() -> Vec<ErrorEntry> {
        let mut table = WITHOUT_KINDS.to_vec();
        table.extend(ValidationKind::entries("Validation"));
        table.extend(ContentionKind::entries("Contention"));
        table.extend(ConflictKind::entries("Conflict"));
        table.extend(StateKind::entries("State"));
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
    /// A text or number of the call that no row of this store can have; nothing was written.
    #[error("{0}")]
    Refused(String),
    /// A bug has shown before anything was written.
    #[error("{0}; nothing was changed")]
    Panicked(String),
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
            Self::Refused(detail) => EngineError::invalid(detail),
            Self::Conflict(_) | Self::Retry(_) => {
                EngineError::Contention(ContentionKind::RetryExhausted)
            }
            other => EngineError::Transport { backend, source: Box::new(other) },
        }
    }
}

impl EngineError {
    /// What a store has reported, if this is that and no more.
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Transport { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }

    /// The store cannot be used, for whatever it is asked.
    pub(crate) fn is_of_store(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::OutcomeUnknown { .. }) && !self.is_panic()
    }

    /// The store has been closed, and will be in every later call.
    pub fn is_closed(&self) -> bool {
        matches!(self.store_error(), Some(StoreError::Closed))
    }

    /// A bug has shown, and nothing was written.
    pub fn is_panic(&self) -> bool {
        matches!(self.store_error(), Some(StoreError::Panicked(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique() {
        let table = EngineError::table();
        let mut codes: Vec<_> = table.iter().map(|entry| entry.code).collect();
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
    }

    #[test]
    fn every_error_says_what_is_wrong_and_what_to_do() {
        for entry in EngineError::table() {
            assert!(!entry.meaning.is_empty(), "{}", entry.code);
            assert!(entry.remedy.ends_with('.'), "{}", entry.code);
        }
        let told = EngineError::State(StateKind::NotInFlow).to_string();
        assert_eq!(told, "not_in_flow: the execution is not a member of a flow");
    }
}
