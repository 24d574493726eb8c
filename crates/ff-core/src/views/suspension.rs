//! Suspensions, waitpoints and signals as users see them.

use serde_json::json;
use uuid::Uuid;

use crate::condition::ResumeCondition;
use crate::contracts::{
    Explanation, ResumeSignal, SignalSnapshot, SuspensionSnapshot, TimeoutBehavior,
    UnreadableRecord, WaitpointKeySnapshot, WaitpointPage, WaitpointSnapshot,
};
use crate::engine_error::{EngineError, ValidationKind};
use crate::rows::spelling::Spelling;
use crate::rows::{
    ExecutionRow, SignalRow, SuspensionRow, Value, WaitpointKeyRow, WaitpointRow, values,
};
use crate::types::{
    ExecutionKey, Namespace, SignalId, SuspensionId, TimestampMs, WaitpointId, WorkerInstanceId,
};

pub fn resume_signal(row: &SignalRow) -> ResumeSignal {
    ResumeSignal {
        signal_id: SignalId(row.signal_id),
        waitpoint_id: WaitpointId(row.key.waitpoint_id),
        waitpoint_key: row.waitpoint_key.to_string(),
        signal_name: row.name.to_string(),
        signal_category: row.category.to_string(),
        source_type: row.source_type.to_string(),
        source_identity: row.source_identity.to_string(),
        payload: row.payload.as_ref().map(|bytes| bytes.to_vec()),
        payload_encoding: row.payload_encoding.as_ref().map(ToString::to_string),
        correlation_id: row.correlation_id.as_ref().map(ToString::to_string),
        accepted_at: row.accepted_at,
    }
}

pub fn signal(row: &SignalRow) -> SignalSnapshot {
    SignalSnapshot {
        signal: resume_signal(row),
        number: row.number,
        idempotency_key: row.key.dedup.strip_prefix("key:").map(str::to_owned),
        effect: row.effect.0,
    }
}

pub fn waitpoint(row: &WaitpointRow) -> WaitpointSnapshot {
    WaitpointSnapshot {
        waitpoint_id: WaitpointId(row.key.waitpoint_id),
        waitpoint_key: row.waitpoint_key.to_string(),
        execution_id: row.key.execution.execution_id(),
        namespace: Namespace::new(&*row.namespace),
        state: row.state(),
        signal_names: row.signal_names.0.clone(),
        signal_count: row.signal_count,
        created_at: row.created_at,
        expires_at: row.expires_at,
        activated_at: row.activated_at,
        closed_at: row.closed_at,
        end: row.end.map(|end| end.0),
        token_kid: row.token_kid.as_ref().map(ToString::to_string),
        token_expires_at: row.token_expires_at,
    }
}

pub fn suspension(row: &SuspensionRow, waitpoints: &[WaitpointRow]) -> SuspensionSnapshot {
    SuspensionSnapshot {
        suspension_id: SuspensionId(row.suspension_id),
        execution_id: row.key.execution.execution_id(),
        attempt_index: row.attempt_index,
        reason: row.reason.0,
        condition: row.condition.0.clone(),
        suspended_by: WorkerInstanceId::new(&*row.suspended_by),
        suspended_at: row.suspended_at,
        timeout_at: row.timeout_at,
        timeout_behavior: row.timeout_behavior.0,
        resume_delay_ms: row.resume_delay_ms,
        continuation: row.continuation.as_ref().map(ToString::to_string),
        idempotency_key: row.idempotency_key.as_ref().map(ToString::to_string),
        waitpoints: waitpoints.iter().map(waitpoint).collect(),
        closed_at: row.closed_at,
        end: row.end.map(|end| end.0),
    }
}

/// Why a suspended execution does not run.
pub fn explain_suspended(
    row: &ExecutionRow,
    wait: &SuspensionRow,
    now: TimestampMs,
) -> Explanation {
    let for_what = match (&wait.condition.0, wait.waitpoints.0.len()) {
        (ResumeCondition::OperatorOnly, _) => "an operator".to_owned(),
        (ResumeCondition::TimeoutOnly, _) => "its time-out".to_owned(),
        (_, 1) => "signals on 1 waitpoint".to_owned(),
        (_, many) => format!("signals on {many} waitpoints"),
    };
    let timeout = wait.timeout_at.map(|at| at.in_words(now));
    let then = match (timeout, wait.timeout_behavior.0) {
        (None, _) => String::new(),
        (Some(at), TimeoutBehavior::Fail) => format!(" At {at} it fails."),
        (Some(at), TimeoutBehavior::Cancel) => format!(" At {at} it is cancelled."),
        (Some(at), TimeoutBehavior::Expire) => format!(" At {at} it expires."),
        (Some(at), TimeoutBehavior::AutoResumeWithTimeoutSignal) => {
            format!(" At {at} it goes on anyway.")
        }
        (Some(at), TimeoutBehavior::Escalate) => format!(" At {at} an operator is asked."),
    };
    Explanation {
        execution_id: row.key.execution_id(),
        public_state: row.public_state,
        rule: row.blocking.word().into(),
        words: format!("It is suspended and waits for {for_what}.{then}"),
        details: json!({
            "suspension_id": wait.suspension_id,
            "reason": wait.reason.0,
            "condition": wait.condition.0,
            "waitpoint_ids": wait.waitpoints.0,
            "timeout_at": wait.timeout_at,
            "timeout_behavior": wait.timeout_behavior.0,
        }),
        next_change_at: wait.timeout_at,
    }
}

pub fn waitpoint_key(row: &WaitpointKeyRow, configured: bool) -> WaitpointKeySnapshot {
    WaitpointKeySnapshot {
        kid: row.key.kid.to_string(),
        active: row.active,
        verifies_until: row.verifies_until,
        configured,
    }
}

/// A page of waitpoints; `more` says that there are others after it.
pub fn waitpoint_page(
    rows: &[WaitpointRow],
    more: bool,
    unreadable: Vec<UnreadableRecord>,
) -> WaitpointPage {
    let next_cursor = rows.last().filter(|_| more).map(|row| {
        let ExecutionKey { partition, id } = row.key.execution;
        let (at, waitpoint) = (row.created_at.0, row.key.waitpoint_id.simple());
        format!("{at}.{waitpoint}.{partition}.{}", id.simple())
    });
    WaitpointPage { waitpoints: rows.iter().map(waitpoint).collect(), next_cursor, unreadable }
}

/// Where a list of waitpoints goes on.
pub struct WaitpointCursor {
    at: TimestampMs,
    waitpoint: Uuid,
    execution: ExecutionKey,
}

impl WaitpointCursor {
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        Self::parts(text).ok_or_else(|| {
            let detail = "the page cursor cannot be read";
            EngineError::validation(ValidationKind::InvalidCursor, detail)
        })
    }

    fn parts(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let at = TimestampMs(parts.next()?.parse().ok()?);
        let waitpoint = Uuid::try_parse(parts.next()?).ok()?;
        let partition = parts.next()?.parse().ok()?;
        let id = Uuid::try_parse(parts.next()?).ok()?;
        let execution = ExecutionKey { partition, id };
        parts.next().is_none().then_some(Self { at, waitpoint, execution })
    }

    /// Behind this one in the order of a namespace.
    pub fn in_namespace(&self) -> Vec<Value> {
        values![self.at, self.waitpoint, self.execution]
    }

    /// Behind this one in the order of an execution.
    pub fn in_execution(&self) -> Vec<Value> {
        values![self.waitpoint]
    }
}
