//! Suspending, waitpoints and signals.

use std::fmt;

use ff_core::contracts::{
    CreateWaitpointArgs, SignalEffect, SuspendArgs, WaitpointGrant, WaitpointKeySnapshot,
};
use ff_core::types::{SignalId, SuspensionId, TimestampMs, WaitpointId};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::{BytesError, Span, bytes};

/// The holder puts its execution down until something happens.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SuspendRequest {
    pub handle: String,
    pub suspension: SuspendArgs,
}

#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum SuspendAnswer {
    /// The lease is given back; the attempt goes on with another claim.
    Suspended {
        suspension_id: SuspensionId,
        waitpoints: Vec<WaitpointGrant>,
        timeout_at: Option<TimestampMs>,
    },
    /// There is nothing to wait for: the lease stands and the holder goes on.
    AlreadySatisfied { suspension_id: SuspensionId, signals: Vec<Signal> },
}

/// Payloads are taken as they are written, which what is derived for an enum with a tag cannot do:
/// it reads everything once before it knows what it reads.
impl<'de> Deserialize<'de> for SuspendAnswer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Status {
            Suspended,
            AlreadySatisfied,
        }

        #[derive(Deserialize)]
        struct Read {
            status: Status,
            suspension_id: SuspensionId,
            #[serde(default)]
            waitpoints: Vec<WaitpointGrant>,
            #[serde(default)]
            timeout_at: Option<TimestampMs>,
            #[serde(default)]
            signals: Vec<Signal>,
        }

        let Read { status, suspension_id, waitpoints, timeout_at, signals } =
            Read::deserialize(from)?;
        Ok(match status {
            Status::Suspended => Self::Suspended { suspension_id, waitpoints, timeout_at },
            Status::AlreadySatisfied => Self::AlreadySatisfied { suspension_id, signals },
        })
    }
}

/// A waitpoint ahead of the suspension that will use it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWaitpointRequest {
    pub handle: String,
    pub waitpoint: CreateWaitpointArgs,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObserveSignalsRequest {
    pub handle: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SignalsAnswer {
    pub signals: Vec<Signal>,
    /// Pass it as `after` for what follows; present when there may be more.
    pub next_after: Option<u32>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}

/// A signal that was accepted.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Signal {
    pub signal_id: SignalId,
    pub waitpoint_id: WaitpointId,
    pub waitpoint_key: String,
    pub signal_name: String,
    pub signal_category: String,
    pub source_type: String,
    pub source_identity: String,
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Instead of `payload` when the bytes are not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    pub payload_encoding: Option<String>,
    pub correlation_id: Option<String>,
    pub accepted_at: TimestampMs,
    /// Its place among the execution's signals, from 1; in lists alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// What it did; in lists alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<SignalEffect>,
}

impl Signal {
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, BytesError> {
        bytes::read(self.payload.as_deref(), self.payload_base64.as_deref())
    }
}

/// What is said to an execution that waits. Who says it is known from the token of the request.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    pub signal_name: String,
    /// The same id again is the same signal again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_id: Option<SignalId>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signal_category: String,
    #[serde(default, deserialize_with = "bytes::present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Any bytes, instead of `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_encoding: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// A second signal with this key is the first one again. `Idempotency-Key` says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// The same by a waitpoint's token, which is all that the sender needs.
#[derive(Clone, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSignalRequest {
    pub token: String,
    pub signal: SignalRequest,
}

impl fmt::Debug for TokenSignalRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = &self.signal;
        f.debug_struct("TokenSignalRequest").field("signal", signal).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResumeRequest {
    pub reason: String,
    pub delay: Span,
}

#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WaitpointTokenAnswer {
    /// Whoever has it may signal the waitpoint.
    pub token: String,
}

impl fmt::Debug for WaitpointTokenAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitpointTokenAnswer(redacted)")
    }
}

/// Every key that waitpoint tokens have been made with. What they are made from is never told.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WaitpointKeysAnswer {
    pub keys: Vec<WaitpointKeySnapshot>,
    /// Those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ff_core::contracts::UnreadableRecord>,
}

/// Makes another configured secret the one that tokens are made with.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RotateWaitpointSecretRequest {
    /// How long tokens of the key before it are still taken; `0s` cuts them off at once. A day if
    /// it is absent.
    pub grace: Span,
}

impl Default for RotateWaitpointSecretRequest {
    fn default() -> Self {
        Self { grace: Span::secs(24 * 60 * 60) }
    }
}
