//! Takes a bulk operation further, or forgets one that ended long ago.

use super::{KEPT_MS, action, counts, event, reach};
use crate::contracts::{BulkState, EventType};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::operations::timer::Sweeping;
use crate::rows::{
    BulkFailureKey, BulkFailureRow, BulkKey, BulkRow, ExecutionRow, TimerRow, Word, values,
};
use crate::store::{Change, ListQuery, Needs, Scan, Walk, World};
use crate::types::{ExecutionKey, TimestampMs};

/// So many executions are looked at in one transaction.
const STEPS: usize = 2_000;

pub(crate) fn more(world: &World, needs: &mut Needs, timer: &TimerRow, chunk: usize) {
    let key = BulkKey { id: timer.key.subject };
    needs.record::<BulkRow>(&key);
    let Some(row) = world.record::<BulkRow>(&key) else { return };
    if row.state.0 != BulkState::Running {
        if is_old(&row, world.now) {
            needs.scan(&failures(&row));
        }
        return;
    }
    let after = row.looked_at.zip(row.looked_id);
    let filter = ListQuery { after, limit: chunk, ..reach(&row) };
    needs.walks.insert(row.key.id, Walk { filter, steps: STEPS });
    let Some(walked) = world.walks.get(&row.key.id) else { return };
    for (_, key) in &walked.keys {
        if let Some(execution) = world.executions.get(key) {
            action::more(world, needs, execution, &row.definition.0.args.action);
        }
    }
}

/// Says when to look again.
pub(crate) fn due(
    world: &World,
    change: &mut Change,
    timer: &TimerRow,
    sweeping: &mut Sweeping,
) -> Option<TimestampMs> {
    let mut row = world.record::<BulkRow>(&BulkKey { id: timer.key.subject })?;
    if row.state.0 != BulkState::Running {
        return forget(world, change, &row);
    }
    let Some(walked) = world.walks.get(&row.key.id) else { return Some(timer.key.due_at) };
    let begun = row.looked_at.zip(row.looked_id);
    let mut before = begun;
    if before.is_some() && walked.last.is_some() && walked.last <= before {
        // A sweep before this one in the batch has gone this way already.
        return Some(timer.key.due_at);
    }
    let mut reached = walked.last;
    let mut more = walked.more;
    let filter = reach(&row);
    for (at, key) in &walked.keys {
        // A sweep before this one in the batch was held up behind it.
        if begun.is_some_and(|begun| (*at, key.id) <= begun) {
            continue;
        }
        // How this sweep has left it is seen by the next one.
        if sweeping.moved.contains(key) {
            reached = if mutants::active(Mutant::BulkTwice) { begun } else { before };
            more = true;
            break;
        }
        deal_with(world, change, &mut row, &filter, *key, sweeping);
        before = Some((*at, key.id));
    }
    if let Some((at, id)) = reached {
        (row.looked_at, row.looked_id) = (Some(at), Some(id));
    }
    if !more {
        row.state = Word(BulkState::Finished);
        row.finished_at = Some(world.now);
        change.events.push(event(&row, EventType::BulkFinished, world.now, counts(&row)));
    }
    change.update(&row);
    Some(if more { world.now } else { world.now.after_ms(KEPT_MS) })
}

fn deal_with(
    world: &World,
    change: &mut Change,
    row: &mut BulkRow,
    filter: &ListQuery,
    key: ExecutionKey,
    sweeping: &mut Sweeping,
) {
    let named = |execution: &&ExecutionRow| filter.matches(execution);
    let Some(execution) = world.executions.get(&key).filter(named) else {
        row.skipped += 1;
        return;
    };
    let (before, told) = (change.executions.len(), change.events.len());
    match action::act(world, change, execution, &row.definition.0.args.action) {
        Ok(true) => row.changed += 1,
        Ok(false) => row.skipped += 1,
        Err(error) => {
            row.failed += 1;
            if row.failed <= limits::BULK_FAILURES {
                change.insert(&BulkFailureRow {
                    key: BulkFailureKey { bulk: row.key.id, number: row.failed },
                    execution: key,
                    code: error.code().into(),
                    reason: error.to_string().into(),
                });
            }
        }
    }
    for event in &mut change.events[told..] {
        event.add_detail("bulk_id", row.key.id.to_string().into());
        if let Some(caller) = &row.definition.0.caller {
            event.stamp(caller);
        }
    }
    sweeping.note_moved(change, before);
}

fn is_old(row: &BulkRow, now: TimestampMs) -> bool {
    row.finished_at.is_some_and(|at| at.after_ms(KEPT_MS) <= now)
}

fn failures(row: &BulkRow) -> Scan {
    Scan::of::<BulkFailureRow>(values![row.key.id]).limit(limits::BULK_FAILURES as usize)
}

fn forget(world: &World, change: &mut Change, row: &BulkRow) -> Option<TimestampMs> {
    if !is_old(row, world.now) {
        return row.finished_at.map(|at| at.after_ms(KEPT_MS));
    }
    for failure in world.scan::<BulkFailureRow>(&failures(row)) {
        change.delete::<BulkFailureRow>(&failure.key);
    }
    change.delete::<BulkRow>(&row.key);
    None
}
