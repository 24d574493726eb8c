//! A suspension's time has run out, or nobody came for a waitpoint in time.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::end::{Resumption, close_waitpoint, end_waits, resume};
use super::{more_to_resume, needs_of, put, suspension, waitpoint};
use crate::contracts::{
    EventType, SignalEffect, SuspensionReason, TIMEOUT_SIGNAL, TimeoutBehavior, WaitEnd,
    WaitpointState,
};
use crate::operations::execution::finish::{AttemptEnding, Ending, finish};
use crate::operations::execution::transition;
use crate::rows::{
    ExecutionRow, SignalCountKey, SignalCountRow, SignalKey, SignalRow, SuspensionRow, TimerKind,
    TimerRow, WaitpointKey, WaitpointRow, Word,
};
use crate::state::{AttemptOutcome, LifecyclePhase, TerminalOutcome};
use crate::store::{Change, Needs, World, Write};
use crate::types::{CancelSource, TimestampMs};

/// Why an execution ended whose suspension ran out.
const TIMED_OUT: &str = "suspension_timeout";

pub(crate) fn more(world: &World, needs: &mut Needs, timer: &TimerRow) {
    for member in &timer.members {
        let execution = member.execution;
        match timer.key.kind {
            TimerKind::Suspension => {
                needs_of(needs, execution);
                needs.record::<SignalCountRow>(&SignalCountKey { execution });
                more_to_resume(world, needs, execution);
            }
            TimerKind::Waitpoint => {
                let waitpoint_id = timer.key.subject;
                needs.record::<WaitpointRow>(&WaitpointKey { execution, waitpoint_id });
            }
            _ => {}
        }
    }
}

pub(crate) fn suspension_due(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
) -> Option<TimestampMs> {
    if row.is_finished() {
        end_waits(world, change, row, WaitEnd::ExecutionEnded);
        return None;
    }
    let wait = suspension(world, row.key).filter(SuspensionRow::is_open)?;
    let timeout = wait.timeout_at.filter(|_| row.phase == LifecyclePhase::Suspended)?;
    if timeout > world.now {
        return Some(timeout);
    }
    let outcome = match wait.timeout_behavior.0 {
        TimeoutBehavior::Fail => TerminalOutcome::Failed,
        TimeoutBehavior::Cancel => TerminalOutcome::Cancelled,
        TimeoutBehavior::Expire => TerminalOutcome::Expired,
        TimeoutBehavior::AutoResumeWithTimeoutSignal => {
            signal_timeout(world, change, &wait);
            let how = Resumption::new(WaitEnd::AutoResumed, wait.resume_delay_ms);
            resume(world, change, row, wait, how);
            return None;
        }
        TimeoutBehavior::Escalate => {
            escalate(world, change, row, wait);
            return None;
        }
    };
    let mut ending =
        Ending::new(outcome, world.now, AttemptEnding::FromOutside(AttemptOutcome::TimedOut));
    ending.reason = Some(TIMED_OUT.into());
    ending.wait_end = WaitEnd::TimedOut;
    match outcome {
        TerminalOutcome::Cancelled => ending.by = Some(CancelSource::SystemTimeout.as_str().into()),
        _ => ending.category = Some(TIMED_OUT.into()),
    }
    finish(world, change, row, ending, |_| {});
    None
}

/// The signal that a time-out makes. It comes from no waitpoint.
fn signal_timeout(world: &World, change: &mut Change, wait: &SuspensionRow) {
    let execution = wait.key.execution;
    let key = SignalCountKey { execution };
    let known = world.record::<SignalCountRow>(&key);
    let number = known.as_ref().map_or(0, |known| known.count) + 1;
    let counted = SignalCountRow { key, count: number };
    put(change, &counted, known.is_some());
    let dedup: Arc<str> = format!("timeout:{}", wait.number).into();
    change.insert(&SignalRow {
        key: SignalKey { execution, waitpoint_id: Uuid::nil(), dedup },
        // One suspension runs out once, so its identity can serve again.
        signal_id: wait.suspension_id,
        number,
        suspension: wait.number,
        waitpoint_key: "".into(),
        name: TIMEOUT_SIGNAL.into(),
        category: "timeout".into(),
        source_type: "system".into(),
        source_identity: "timeout".into(),
        correlation_id: None,
        payload: None,
        payload_encoding: None,
        effect: Word(SignalEffect::ResumeConditionSatisfied),
        accepted_at: world.now,
    });
}

/// It waits on, for an operator to look at.
fn escalate(world: &World, change: &mut Change, row: &ExecutionRow, mut wait: SuspensionRow) {
    let details = json!({
        "suspension_id": wait.suspension_id,
        "reason": wait.reason.0,
        "timeout_at": wait.timeout_at.map(|at| at.0),
    });
    wait.timeout_at = None;
    wait.reason = Word(SuspensionReason::WaitingForOperatorReview);
    let mut after = row.clone();
    after.blocking = wait.reason.0.blocking_reason();
    change.update(&wait);
    transition(change, row, after, EventType::Escalated, world.now, |event| {
        event.details(&details)
    });
}

pub(crate) fn waitpoint_due(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    waitpoint_id: Uuid,
) -> Option<TimestampMs> {
    let mut found = waitpoint(world, row.key, waitpoint_id)?;
    if found.state() != WaitpointState::Pending {
        return None;
    }
    if found.is_alive(world.now) {
        return found.expires_at;
    }
    close_waitpoint(change, &mut found, WaitEnd::NeverUsed, world.now);
    change.executions.push(Write::Update(row.clone()));
    None
}
