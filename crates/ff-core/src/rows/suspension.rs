//! `ff_suspension`, `ff_waitpoint`, `ff_signal` and what belongs to them.
//!
//! All of it hangs on an execution, which is written by whoever changes it, except the keys of
//! waitpoint tokens. Of those only the ids are stored: their secrets are the host's configuration.

use std::sync::Arc;

use uuid::Uuid;

use super::{ExecutionRow, Json, Word, record};
use crate::condition::{Progress, ResumeCondition};
use crate::contracts::{SignalEffect, SuspensionReason, TimeoutBehavior, WaitEnd, WaitpointState};
use crate::token::{NONCE_BYTES, TokenClaims};
use crate::types::{ExecutionKey, TimestampMs};

record! {
    /// The suspension that an execution is in, or was in last.
    pub struct SuspensionRow in "ff_suspension", guarded {
        key SuspensionKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
        }
        suspension_id: Uuid = [suspension_id: Uuid],
        /// Counts the execution's suspensions from 1.
        number: u32 = [number: Int4],
        /// How often the execution had been replayed.
        generation: u32 = [generation: Int4],
        attempt_index: u32 = [attempt_index: Int4],
        /// The lease that ended with it, which tells a repeated call from another one.
        lease_epoch: u64 = [lease_epoch: Int],
        reason: Word<SuspensionReason> = [reason: Text],
        condition: Json<ResumeCondition> = [condition: Json],
        progress: Json<Progress> = [progress: Text],
        /// In the order in which they were asked for.
        waitpoints: Json<Vec<Uuid>> = [waitpoints: Text],
        suspended_by: Arc<str> = [suspended_by: Text],
        suspended_at: TimestampMs = [suspended_at_ms: Int],
        timeout_at: Option<TimestampMs> = [timeout_at_ms: Int],
        timeout_behavior: Word<TimeoutBehavior> = [timeout_behavior: Text],
        resume_delay_ms: u64 = [resume_delay_ms: Int],
        continuation: Option<Arc<str>> = [continuation: Text],
        idempotency_key: Option<Arc<str>> = [idempotency_key: Text],
        /// Met before it began: the holder kept its lease.
        at_once: bool = [at_once: Bool],
        closed_at: Option<TimestampMs> = [closed_at_ms: Int],
        end: Option<Word<WaitEnd>> = [end_reason: Text],
    }
}

record! {
    /// What became of a suspension that was asked for under a key.
    pub struct SuspensionOutcomeRow in "ff_suspension_outcome", guarded {
        key SuspensionOutcomeKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
            idempotency_key: Arc<str> = [idempotency_key: Text],
        }
        suspension_id: Uuid = [suspension_id: Uuid],
        number: u32 = [number: Int4],
        generation: u32 = [generation: Int4],
        closed_at: TimestampMs = [closed_at_ms: Int],
        end: Word<WaitEnd> = [end_reason: Text],
    }
}

record! {
    /// A place where signals for an execution arrive.
    pub struct WaitpointRow in "ff_waitpoint", guarded {
        key WaitpointKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
            waitpoint_id: Uuid = [waitpoint_id: Uuid],
        }
        waitpoint_key: Arc<str> = [waitpoint_key: Text],
        namespace: Arc<str> = [namespace: Text],
        open: bool = [open: Bool],
        /// The suspension that uses it; 0 while none does.
        suspension: u32 = [suspension: Int4],
        generation: u32 = [generation: Int4],
        /// The only signals that its token may bring; any if empty.
        signal_names: Json<Vec<String>> = [signal_names: Text],
        signal_count: u32 = [signal_count: Int4],
        created_at: TimestampMs = [created_at_ms: Int],
        /// When it closes if no suspension has come to use it.
        expires_at: Option<TimestampMs> = [expires_at_ms: Int],
        activated_at: Option<TimestampMs> = [activated_at_ms: Int],
        closed_at: Option<TimestampMs> = [closed_at_ms: Int],
        end: Option<Word<WaitEnd>> = [end_reason: Text],
        /// The key that its token is made with, if it has one.
        token_kid: Option<Arc<str>> = [token_kid: Text],
        token_expires_at: Option<TimestampMs> = [token_expires_at_ms: Int],
        nonce: Arc<[u8]> = [nonce: Bytes],
    }
    index OPEN = ff_waitpoint_open[partition_key, execution_id, open, waitpoint_id];
    index BY_NAMESPACE = ff_waitpoint_namespace
        [namespace, open, created_at_ms, waitpoint_id, partition_key, execution_id];
}

record! {
    /// An accepted signal. What makes a second one the same is its key.
    pub struct SignalRow in "ff_signal", guarded {
        key SignalKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
            waitpoint_id: Uuid = [waitpoint_id: Uuid],
            dedup: Arc<str> = [dedup: Text],
        }
        signal_id: Uuid = [signal_id: Uuid],
        /// Counts the execution's signals from 1.
        number: u32 = [number: Int4],
        /// The suspension that it brought forward; 0 if none.
        suspension: u32 = [suspension: Int4],
        waitpoint_key: Arc<str> = [waitpoint_key: Text],
        name: Arc<str> = [signal_name: Text],
        category: Arc<str> = [signal_category: Text],
        source_type: Arc<str> = [source_type: Text],
        source_identity: Arc<str> = [source_identity: Text],
        correlation_id: Option<Arc<str>> = [correlation_id: Text],
        payload: Option<Arc<[u8]>> = [payload: Bytes],
        payload_encoding: Option<Arc<str>> = [payload_encoding: Text],
        effect: Word<SignalEffect> = [effect: Text],
        accepted_at: TimestampMs = [accepted_at_ms: Int],
    }
    index BY_NUMBER = ff_signal_number[partition_key, execution_id, number];
    index BY_SUSPENSION = ff_signal_suspension[partition_key, execution_id, suspension, number];
}

record! {
    /// How many signals an execution has accepted.
    pub struct SignalCountRow in "ff_signal_count", guarded {
        key SignalCountKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
        }
        count: u32 = [signal_count: Int4],
    }
}

record! {
    /// A key of waitpoint tokens, without its secret.
    pub struct WaitpointKeyRow in "ff_waitpoint_key" {
        key Kid {
            kid: Arc<str> = [kid: Text],
        }
        /// Tokens are made with it.
        active: bool = [active: Bool],
        /// Until when its tokens are taken, once they are not made with it.
        verifies_until: Option<TimestampMs> = [verifies_until_ms: Int],
        /// Tells two secrets under one id apart, and says nothing about either.
        secret_check: Arc<str> = [secret_check: Text],
        created_at: TimestampMs = [created_at_ms: Int],
    }
}

impl SuspensionRow {
    pub fn is_open(&self) -> bool {
        self.closed_at.is_none()
    }

    /// Whether this is the wait that the attempt in hand was resumed from.
    pub fn resumed(&self, row: &ExecutionRow) -> bool {
        self.attempt_index == row.attempt_index
            && self.generation == row.replay_count()
            && self.end.is_some_and(|end| end.0.is_resumed())
    }
}

impl WaitpointRow {
    pub fn state(&self) -> WaitpointState {
        match (self.open, self.suspension) {
            (false, _) => WaitpointState::Closed,
            (true, 0) => WaitpointState::Pending,
            (true, _) => WaitpointState::Active,
        }
    }

    /// Open, and not past the time within which a suspension must come for it.
    pub fn is_alive(&self, now: TimestampMs) -> bool {
        let expired = self.suspension == 0 && self.expires_at.is_some_and(|at| at <= now);
        self.open && !expired
    }

    /// What its token says. Made from the row, the token is the same whenever it is made.
    pub fn claims(&self) -> TokenClaims {
        let mut nonce = [0; NONCE_BYTES];
        let len = self.nonce.len().min(NONCE_BYTES);
        nonce[..len].copy_from_slice(&self.nonce[..len]);
        TokenClaims {
            namespace: self.namespace.clone(),
            execution: self.key.execution,
            waitpoint: self.key.waitpoint_id,
            generation: self.generation,
            signal_names: self.signal_names.0.clone(),
            expires_at: self.token_expires_at,
            nonce,
        }
    }
}

impl WaitpointKeyRow {
    /// Whether its tokens are taken at this moment.
    pub fn verifies(&self, now: TimestampMs) -> bool {
        self.active || self.verifies_until.is_some_and(|until| now < until)
    }
}
