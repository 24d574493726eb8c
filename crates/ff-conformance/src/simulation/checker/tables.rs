//! The tables at the end: what is there, whether it is whole, and whether the log tells the same.

use ff_core::contracts::EventType;
use ff_core::rows::{AttemptRow, Blob, ExecutionRow, TimerKind};
use ff_core::types::ExecutionKey;

use super::super::{Checked, broken};
use super::Evidence;
use super::log::BY_HEADER;

pub(super) fn check(evidence: &Evidence) -> Checked {
    for row in evidence.tables.executions.values() {
        check_execution(evidence, row)?;
        check_attempts(evidence, row)?;
    }
    for key in evidence.events.keys() {
        if !evidence.tables.executions.contains_key(key) {
            return Err(broken("I32 events are about rows", *key, "an event without its row"));
        }
    }
    // A key of a quota is kept for a while after its last use, and so is a bulk operation.
    let kept = [TimerKind::Idempotency, TimerKind::Limit, TimerKind::Bulk];
    let left = |kind| !kept.contains(&kind);
    match evidence.tables.timers.values().find(|timer| left(timer.key.kind)) {
        Some(timer) => {
            let about: Option<ExecutionKey> = timer.members.first().map(|member| member.execution);
            let what = format!("everything has ended and this is left: {timer:?}");
            Err(broken("no timer outlives its use", about, what))
        }
        None => Ok(()),
    }
}

fn check_execution(evidence: &Evidence, row: &ExecutionRow) -> Checked {
    let Some(plan) = evidence.history.plans.get(&row.key) else {
        return Err(broken("I2 no phantoms", row.key, "nobody submitted it"));
    };
    let stored = match &row.payload {
        Blob::Here(bytes) => &bytes[..],
        Blob::Absent | Blob::Apart => &[],
    };
    if stored != plan.submission.input_payload {
        return Err(broken("I1 the payload is kept", row.key, "other bytes are stored"));
    }
    let last = evidence.events.get(&row.key).and_then(|events| events.last());
    let same = last.is_some_and(|last| {
        last.version == row.version
            && last.to == Some(row.public_state)
            && last.lease_epoch == row.lease_epoch
    });
    if !same {
        let what = format!("the row and its last event differ: {row:#?}");
        return Err(broken("I32 one event per transition", row.key, what));
    }
    Ok(())
}

fn check_attempts(evidence: &Evidence, row: &ExecutionRow) -> Checked {
    let of_row = |attempt: &&AttemptRow| attempt.key.execution == row.key;
    let attempts: Vec<_> = evidence.tables.attempts.values().filter(of_row).collect();
    let by_header = row.cancelled_by.as_deref() == Some(BY_HEADER);
    for (expected, attempt) in (0..).zip(&attempts) {
        let whole = attempt.key.index == expected && expected <= row.attempt_index;
        let over = attempt.key.index == row.attempt_index || attempt.outcome.is_some();
        let leased = attempt.is_leased() && !by_header;
        if !whole || !over || leased || attempt.lease_epoch > row.lease_epoch {
            let what = format!("attempt {expected} is wrong: {attempt:#?}");
            return Err(broken("I14 attempts have no holes and end", row.key, what));
        }
    }
    let moves_on = |kind| matches!(kind, EventType::RetryScheduled | EventType::LeaseExpired);
    let events = evidence.events.get(&row.key).map(Vec::as_slice).unwrap_or_default();
    let moved = events.iter().filter(|event| moves_on(event.event_type)).count();
    if moved != row.attempt_index as usize || attempts.len() < moved {
        let what = format!("{} attempts after {moved} retries and reclaims", attempts.len());
        return Err(broken("I14 attempts have no holes and end", row.key, what));
    }
    Ok(())
}
