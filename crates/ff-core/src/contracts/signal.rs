//! Signals: what is said to an execution that waits, and what came of it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::token::WaitpointToken;
use crate::types::{ExecutionId, SignalId, TimestampMs, WaitpointId};

/// Which waitpoint is signalled, and by what right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalTarget {
    /// Whoever has the token may.
    Token(WaitpointToken),
    /// The embedding program or an operator may.
    Waitpoint { execution_id: ExecutionId, waitpoint_id: WaitpointId },
}

/// Who a signal counts as where a condition counts sources. Two signals are of one source if these
/// are equal, by whatever route they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalSource {
    /// The bearer of a waitpoint's token. A waitpoint has one token, so its id names the token.
    WaitpointToken(WaitpointId),
    /// The bearer of an API token. Its name is not enough: names are given again.
    ApiToken(Uuid),
    /// A caller that the embedding program names.
    Named { kind: String, identity: String },
}

impl SignalSource {
    pub fn kind(&self) -> &str {
        match self {
            Self::WaitpointToken(_) => "waitpoint_token",
            Self::ApiToken(_) => "api_token",
            Self::Named { kind, .. } => kind,
        }
    }

    pub fn identity(&self) -> String {
        match self {
            Self::WaitpointToken(id) => id.to_string(),
            Self::ApiToken(id) => id.to_string(),
            Self::Named { identity, .. } => identity.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliverSignalArgs {
    pub target: SignalTarget,
    #[serde(default = "SignalId::new")]
    pub signal_id: SignalId,
    pub signal_name: String,
    #[serde(default)]
    pub signal_category: String,
    /// Who says so, if the target is not a token: a token is its own source, see
    /// [`SignalSource`]. Conditions that count sources believe it, so a server that lets outside
    /// callers in must fill it from what it knows of them.
    #[serde(default)]
    pub source_type: String,
    #[serde(default)]
    pub source_identity: String,
    /// Kept byte for byte.
    #[serde(default)]
    pub payload: Option<Vec<u8>>,
    #[serde(default)]
    pub payload_encoding: Option<String>,
    #[serde(default)]
    pub correlation_id: Option<String>,
    /// A second signal with this key on the same waitpoint is the first one again. Without a key
    /// the signal's id is taken.
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

impl DeliverSignalArgs {
    pub fn new(target: SignalTarget, signal_name: impl Into<String>) -> Self {
        Self {
            target,
            signal_id: SignalId::new(),
            signal_name: signal_name.into(),
            signal_category: String::new(),
            source_type: String::new(),
            source_identity: String::new(),
            payload: None,
            payload_encoding: None,
            correlation_id: None,
            idempotency_key: None,
        }
    }

    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    #[must_use]
    pub fn source(mut self, kind: impl Into<String>, identity: impl Into<String>) -> Self {
        (self.source_type, self.source_identity) = (kind.into(), identity.into());
        self
    }

    #[must_use]
    pub fn from_source(self, source: &SignalSource) -> Self {
        self.source(source.kind(), source.identity())
    }

    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }
}

/// What an accepted signal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignalEffect {
    /// Kept for the suspension that will use the waitpoint.
    BufferedForPendingWaitpoint,
    /// It counts, and the condition wants more.
    AppendedToWaitpoint,
    /// It matches, and adds nothing to what has come before.
    AppendedToWaitpointDuplicate,
    SignalIgnoredNotInCondition,
    SignalIgnoredMatcherFailed,
    /// The execution goes on.
    ResumeConditionSatisfied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum SignalOutcome {
    Accepted {
        signal_id: SignalId,
        effect: SignalEffect,
    },
    /// It has been delivered before, and this is what it did then.
    Duplicate {
        existing_signal_id: SignalId,
        effect: SignalEffect,
    },
}

/// A signal that a suspension got what it waited for from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeSignal {
    pub signal_id: SignalId,
    pub waitpoint_id: WaitpointId,
    pub waitpoint_key: String,
    pub signal_name: String,
    pub signal_category: String,
    pub source_type: String,
    pub source_identity: String,
    pub payload: Option<Vec<u8>>,
    pub payload_encoding: Option<String>,
    pub correlation_id: Option<String>,
    pub accepted_at: TimestampMs,
}

/// A signal as it was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalSnapshot {
    #[serde(flatten)]
    pub signal: ResumeSignal,
    /// Its place among the execution's signals, from 1.
    pub number: u32,
    pub idempotency_key: Option<String>,
    pub effect: SignalEffect,
}

/// The signals of an execution in the order in which they were accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSignalsArgs {
    pub execution_id: ExecutionId,
    /// Only those after this place.
    #[serde(default)]
    pub after: u32,
    /// 100 if zero.
    #[serde(default)]
    pub limit: usize,
}
