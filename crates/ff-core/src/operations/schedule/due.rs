//! Looks at a schedule: starts what has come due, and what waited for a run that has ended.

use serde_json::json;

use super::run::{Run, needs_of_run, remember, start};
use super::{Calendar, calendar, event, next_look, rules};
use crate::contracts::{EventType, OverlapPolicy};
use crate::engine_error::EngineError;
use crate::mutants::{self, Mutant};
use crate::operations::Note;
use crate::operations::execution::{cancel, ending};
use crate::operations::timer::Sweeping;
use crate::rows::{ScheduleKey, ScheduleRow, TimerRow};
use crate::store::{Change, Needs, World};
use crate::types::{ExecutionId, ExecutionKey, TimestampMs};

/// At most this many runs are started in one look; the rest follow in the next.
const STARTS: usize = 100;
/// A schedule that this program cannot read is looked at again after so long.
const UNREADABLE_MS: u64 = 60_000;

/// What a look at a schedule finds.
struct Look {
    calendar: Calendar,
    /// Due times that are run if others allow it, oldest first.
    dues: Vec<TimestampMs>,
    /// Whatever was due up to here has been dealt with after this look.
    looked_until: TimestampMs,
    /// Due times were left out because they were missed.
    missed: bool,
    /// There is more than one look can start.
    again: bool,
    backfill: Vec<TimestampMs>,
}

pub(crate) fn more(world: &World, needs: &mut Needs, timer: &TimerRow) {
    let key = ScheduleKey { id: timer.key.subject };
    needs.record::<ScheduleRow>(&key);
    let Some(row) = world.record::<ScheduleRow>(&key) else { return };
    let Ok(look) = look(&row, world.now) else { return };
    for due in row.runs.0.buffered.iter().chain(&look.dues).chain(&look.backfill) {
        needs_of_run(needs, &row, &Run::Due(*due));
    }
    for running in &row.runs.0.running {
        needs.execution(running.key());
        if row.definition.0.overlap == OverlapPolicy::CancelRunning {
            ending::more(world, needs, running.key());
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
    let before = world.record::<ScheduleRow>(&ScheduleKey { id: timer.key.subject })?;
    let look = match look(&before, world.now) {
        Ok(look) => look,
        Err(error) => {
            sweeping.notes.push(note(&before, "a schedule cannot be read", error.to_string()));
            // Another program may be able to read it, and this one after an upgrade.
            return Some(world.now.after_ms(UNREADABLE_MS));
        }
    };
    let mut row = before.clone();
    let running = still_running(world, &row);
    if running.iter().any(|key| sweeping.moved.contains(key)) {
        // This sweep has already moved one of them, so how it stands is seen in the next.
        return Some(timer.key.due_at);
    }
    row.runs.0.running.retain(|id| running.contains(&id.key()));

    let buffered = row.runs.0.buffered.filter(|_| !row.is_paused());
    let policy = row.definition.0.overlap;
    let verdict = rules::overlap(policy, !running.is_empty(), buffered, &look.dues);
    if verdict.cancel_running {
        cancel_running(world, change, &mut row, &running, sweeping);
    }
    let mut refused = Vec::new();
    for due in &verdict.start {
        refused.extend(start_due(world, change, &mut row, *due, sweeping, true));
    }
    for due in &look.backfill {
        refused.extend(start_due(world, change, &mut row, *due, sweeping, false));
    }
    if !row.is_paused() {
        row.runs.0.buffered = verdict.buffered;
    }
    row.runs.0.refused += refused.len() as u64;
    row.overlapped += verdict.left_out.len() as u64;
    row.looked_until = look.looked_until;
    row.last_due = look.dues.last().copied().or(row.last_due);
    advance_backfill(&mut row, &look.backfill);
    tell_left_out(world, change, &before, &look, &verdict.left_out);
    tell_refused(world, change, &before, &refused);
    let next = next_look(&mut row, &look.calendar, world.now);
    if row != before {
        change.update(&row);
    }
    // One that waits for a run which was refused has nothing to wait for.
    let alone = row.runs.0.running.is_empty() && row.runs.0.buffered.is_some() && !row.is_paused();
    if look.again || alone { Some(world.now) } else { next }
}

fn note(row: &ScheduleRow, what: &'static str, why: String) -> Note {
    Note { subject: format!("schedule {} in namespace {}", row.name, row.namespace), what, why }
}

fn look(row: &ScheduleRow, now: TimestampMs) -> Result<Look, EngineError> {
    let calendar = calendar(row)?;
    let backfill = row.runs.0.backfills.first().map_or_else(Vec::new, |backfill| {
        let dues = calendar.upcoming(backfill.after, STARTS);
        dues.into_iter().take_while(|due| *due < backfill.until).collect()
    });
    let mut look = Look {
        calendar,
        dues: Vec::new(),
        looked_until: row.looked_until,
        missed: false,
        again: false,
        backfill,
    };
    if !row.is_paused() {
        look.find_due(row, now);
    }
    Ok(look)
}

impl Look {
    fn find_due(&mut self, row: &ScheduleRow, now: TimestampMs) {
        let missed = row.definition.0.missed;
        let reach = rules::reach(missed);
        let (mut dues, older) = self.calendar.newest(row.looked_until, now, reach + 1);
        // Only the last one can be waiting for its jitter.
        dues.pop_if(|due| self.calendar.start_of(*due) > now);
        let Some(last) = dues.last().copied() else { return };
        let late_ms = |due| {
            let late = now.since(self.calendar.start_of(due));
            u64::try_from(late.as_millis()).unwrap_or(u64::MAX)
        };
        let found = dues.len();
        self.dues = rules::made_up(missed, dues, late_ms);
        if mutants::active(Mutant::DueTimeLost) {
            self.dues = self.dues.split_off(self.dues.len().saturating_sub(1));
        }
        self.missed = older || self.dues.len() < found;
        self.looked_until = last;
        if self.dues.len() > STARTS {
            self.dues.truncate(STARTS);
            self.looked_until = self.dues[STARTS - 1];
            self.again = true;
        }
    }
}

/// Runs that were started and have not finished. One that is gone has.
fn still_running(world: &World, row: &ScheduleRow) -> Vec<ExecutionKey> {
    let open = |key: &ExecutionKey| world.executions.get(key).is_some_and(|run| !run.is_finished());
    row.runs.0.running.iter().map(ExecutionId::key).filter(open).collect()
}

fn cancel_running(
    world: &World,
    change: &mut Change,
    row: &mut ScheduleRow,
    running: &[ExecutionKey],
    sweeping: &mut Sweeping,
) {
    for run in running.iter().filter_map(|key| world.executions.get(key)) {
        let reason = "the next run of its schedule is due";
        if cancel(world, change, run, reason, "schedule", world.now).is_ok() {
            sweeping.moved.insert(run.key);
        }
    }
    row.runs.0.running.clear();
}

/// Starts one run, or says why there is none.
fn start_due(
    world: &World,
    change: &mut Change,
    row: &mut ScheduleRow,
    due: TimestampMs,
    sweeping: &mut Sweeping,
    counts: bool,
) -> Option<(TimestampMs, EngineError)> {
    match start(world, change, &mut sweeping.accepted, row, &Run::Due(due)) {
        Ok(run) if counts => remember(row, &run),
        Ok(_) => {}
        Err(error) => {
            sweeping.notes.push(note(row, "a scheduled run was refused", error.to_string()));
            return Some((due, error));
        }
    }
    None
}

fn advance_backfill(row: &mut ScheduleRow, done: &[TimestampMs]) {
    let Some(backfill) = row.runs.0.backfills.first_mut() else { return };
    match done.last() {
        Some(last) if done.len() == STARTS => backfill.after = *last,
        _ => {
            row.runs.0.backfills.remove(0);
        }
    }
}

/// One event for all that a look has left out.
fn tell_left_out(
    world: &World,
    change: &mut Change,
    row: &ScheduleRow,
    look: &Look,
    left_out: &[TimestampMs],
) {
    let mut tell = |details| {
        change.events.push(event(row, EventType::ScheduleLeftOut, world.now, details));
    };
    if look.missed {
        let after = row.looked_until.0;
        let until = look.dues.first().map_or(look.looked_until.0, |first| first.0 - 1);
        tell(json!({ "why": "missed", "after": after, "until": until }));
    }
    if let (Some(first), Some(last)) = (left_out.first(), left_out.last()) {
        let runs = left_out.len();
        tell(json!({ "why": "overlap", "from": first.0, "until": last.0, "runs": runs }));
    }
}

/// One event for all runs that a look could not submit; such runs are mostly refused alike.
fn tell_refused(
    world: &World,
    change: &mut Change,
    row: &ScheduleRow,
    refused: &[(TimestampMs, EngineError)],
) {
    if let (Some((first, _)), Some((last, error))) = (refused.first(), refused.last()) {
        let details = json!({
            "why": "refused",
            "code": error.code(),
            "from": first.0,
            "until": last.0,
            "runs": refused.len(),
        });
        change.events.push(event(row, EventType::ScheduleLeftOut, world.now, details));
    }
}
