//! Streams as users see them. That a stream is closed is not stored: the rows of its execution say
//! so, and ending an execution that never said anything costs nothing for it.

use crate::contracts::{CloseReason, Frame, FrameId, StreamEnd, StreamSummary};
use crate::rows::{AttemptRow, ExecutionRow, FrameRow, SummaryRow};
use crate::state::{AttemptOutcome, PublicState};

pub fn frame(row: FrameRow) -> Frame {
    Frame {
        id: FrameId { attempt_index: row.key.attempt_index, sequence: row.key.sequence },
        frame_type: row.frame_type.to_string(),
        payload: row.payload,
        mode: row.mode.0,
        encoding: row.encoding.map(|encoding| encoding.to_string()),
        correlation_id: row.correlation_id.map(|id| id.to_string()),
        at: row.at,
    }
}

/// Nothing if the stored document cannot be read.
pub fn summary(row: &SummaryRow) -> Option<StreamSummary> {
    Some(StreamSummary {
        attempt_index: row.key.attempt_index,
        document: serde_json::from_str(&row.document).ok()?,
        version: row.version,
        first_applied_at: row.first_applied_at,
        last_updated_at: row.last_updated_at,
    })
}

/// Why nothing more comes in the stream of an attempt; nothing while something may.
pub fn stream_end(
    row: &ExecutionRow,
    attempts: &[AttemptRow],
    attempt_index: u32,
) -> Option<StreamEnd> {
    let is_current = row.attempt_index == attempt_index;
    if attempt_index >= row.attempt_index && !row.is_finished() {
        return None;
    }
    let attempt = attempts.iter().find(|attempt| attempt.key.index == attempt_index);
    let outcome = attempt.and_then(|attempt| attempt.outcome);
    let reason = match outcome {
        Some(outcome) => reason(outcome),
        None if is_current => reason_of(row.public_state),
        None => CloseReason::Superseded,
    };
    let closed_at = attempt.and_then(|attempt| attempt.ended_at);
    Some(StreamEnd {
        reason,
        closed_at: closed_at.or(row.terminal_at.filter(|_| is_current)),
        next_attempt: (attempt_index < row.attempt_index).then(|| attempt_index + 1),
    })
}

fn reason(outcome: AttemptOutcome) -> CloseReason {
    match outcome {
        AttemptOutcome::Success => CloseReason::AttemptSuccess,
        AttemptOutcome::Retry | AttemptOutcome::Failed => CloseReason::AttemptFailure,
        AttemptOutcome::Cancelled => CloseReason::AttemptCancelled,
        AttemptOutcome::LeaseExpired => CloseReason::LeaseExpired,
        AttemptOutcome::TimedOut => CloseReason::AttemptTimeout,
        AttemptOutcome::DeadlineExceeded => CloseReason::Expired,
        AttemptOutcome::Skipped => CloseReason::Skipped,
    }
}

/// Of an execution that ended while nobody had it in hand.
fn reason_of(state: PublicState) -> CloseReason {
    match state {
        PublicState::Completed => CloseReason::AttemptSuccess,
        PublicState::Failed => CloseReason::AttemptFailure,
        PublicState::Cancelled => CloseReason::AttemptCancelled,
        PublicState::Expired => CloseReason::Expired,
        PublicState::Skipped => CloseReason::Skipped,
        _ => CloseReason::Superseded,
    }
}
