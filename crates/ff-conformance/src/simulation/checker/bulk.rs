//! Bulk operations at the end: each has come to everything that it names, and to nothing twice.

use ff_core::contracts::{BulkAction, BulkState, EventType};
use ff_core::rows::{BulkRow, EventRow};
use serde_json::Value;

use super::super::limits::records;
use super::super::message::Answer;
use super::super::{Checked, broken};
use super::Evidence;

pub(super) fn check(evidence: &Evidence) -> Checked {
    let rows = records::<BulkRow>(evidence.tables);
    for (_, op, answer) in evidence.history.acks() {
        if let Answer::Bulk(id) = answer
            && !rows.iter().any(|row| row.key.id == *id)
        {
            let what = format!("{:?} was acknowledged and is not there", op.verb);
            return Err(broken("I1 an acknowledged submission is kept", None, what));
        }
    }
    rows.iter().try_for_each(|row| check_reach(evidence, row))?;
    rows.iter().try_for_each(|row| check_changes(evidence, row, &rows))
}

/// It has come to all that were there when it was started; to those that came later under an
/// earlier time, because the clock went back, it may have come.
fn check_reach(evidence: &Evidence, row: &BulkRow) -> Checked {
    if row.state.0 == BulkState::Running {
        let what = format!("everything has ended and this has not: {row:?}");
        return Err(broken("I46 no stuck work", None, what));
    }
    let filter = &row.definition.0.args.filter;
    let named = evidence.tables.executions.values().filter(|execution| {
        let lane = filter.lane_id.as_ref().is_none_or(|lane| *lane.0 == *execution.lane);
        lane && execution.created_at <= row.created_at
    });
    let (mut at_least, mut at_most) = (0, 0);
    let started = started(evidence, row);
    for execution in named {
        at_most += 1;
        let first = evidence.events.get(&execution.key).and_then(|events| events.first());
        let there = first.zip(started).is_some_and(|(first, start)| first.seq < start.seq);
        at_least += u64::from(there);
    }
    let done = row.done();
    // Those that a filter names by their state come and go.
    let all = filter.states.is_empty() && row.state.0 == BulkState::Finished;
    if done > at_most || (all && done < at_least) {
        let what = format!("of {at_least} to {at_most} executions it came to {done}: {row:?}");
        return Err(broken("a bulk operation comes to each execution once", None, what));
    }
    Ok(())
}

fn started<'e>(evidence: &'e Evidence, row: &BulkRow) -> Option<&'e EventRow> {
    let id = row.key.id.to_string();
    evidence.tables.events.values().find(|event| {
        let details = event.details.as_deref().unwrap_or_default();
        event.event_type == EventType::BulkStarted && details.contains(&id)
    })
}

/// What it says that it has changed is what the log says. A call that was sent twice has started
/// two that say the same.
fn check_changes(evidence: &Evidence, row: &BulkRow, rows: &[BulkRow]) -> Checked {
    let action = &row.definition.0.args.action;
    if matches!(action, BulkAction::Replay | BulkAction::ChangePriority { .. }) {
        return Ok(());
    }
    let by_it = |event: &&EventRow| {
        let details = event.details.as_deref();
        let details = details.and_then(|json| serde_json::from_str::<Value>(json).ok());
        let details = details.unwrap_or_default();
        match action {
            BulkAction::Cancel { reason } => {
                event.event_type == EventType::Cancelled && details["reason"] == **reason
            }
            BulkAction::SetTags { tags } => {
                let same = serde_json::json!(tags);
                event.event_type == EventType::TagsChanged && details["tags"] == same
            }
            BulkAction::Replay | BulkAction::ChangePriority { .. } => false,
        }
    };
    let changed = evidence.tables.events.values().filter(by_it).count() as u64;
    let same = rows.iter().filter(|other| other.definition.0.args.action == *action);
    if changed != same.map(|row| row.changed).sum::<u64>() {
        let what = format!("the log has {changed} changes of {row:?}");
        return Err(broken("a bulk operation counts what it changes", None, what));
    }
    Ok(())
}
