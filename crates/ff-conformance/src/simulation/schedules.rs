//! A schedule in a run. All servers look at it, and in the end every instant at which it was due
//! has one run or was left out, and never both.

use std::collections::BTreeMap;

use ff_core::contracts::{
    MissedPolicy, OverlapPolicy, PutScheduleArgs, ScheduleId, ScheduleTemplate, Submission, Timing,
};
use ff_core::engine::clock::Clock;
use ff_core::operations::schedule::PutSchedule;
use ff_core::rows::{ExecutionRow, ScheduleRow};
use ff_core::store::memory::Tables;
use ff_core::types::TimestampMs;

use super::history::Plan;
use super::limits::records;
use super::message::NAMESPACE;
use super::{Checked, Simulation, broken};

const PAYLOAD: &[u8] = b"it is due";
/// What the creator of a run begins with.
const CREATOR: &str = "schedule/";

fn is_run(row: &ExecutionRow) -> bool {
    row.creator.starts_with(CREATOR)
}

impl Simulation {
    /// Half of the runs have a schedule, which is due a few times.
    pub(super) fn declare_schedule(&mut self) {
        if self.rng.bool() {
            return;
        }
        let every_ms = self.rng.u64(200..900);
        let ends_at = TimestampMs(self.clock.now().0 + self.rng.i64(1_000..6_000));
        let lane = if self.rng.bool() { "red" } else { "blue" };
        let template = ScheduleTemplate::new(lane, "due");
        let timing = Timing::Interval { every_ms, anchor: None };
        let policies = [
            OverlapPolicy::Allow,
            OverlapPolicy::Allow,
            OverlapPolicy::Skip,
            OverlapPolicy::BufferOne,
            OverlapPolicy::CancelRunning,
        ];
        let definition = PutScheduleArgs {
            overlap: policies[self.rng.usize(0..policies.len())],
            // So many that nothing is left out for being late.
            missed: MissedPolicy::All { max: 1_000 },
            jitter_ms: if self.rng.bool() { 0 } else { self.rng.u64(1..every_ms) },
            ends_at: Some(ends_at),
            ..PutScheduleArgs::new(ScheduleId::new(NAMESPACE, "often"), timing, template)
        };
        self.declare(PutSchedule { definition, payload: PAYLOAD.into(), partition: 0 });
    }

    /// After a commit: runs that have come are work like any other from then on.
    pub(super) fn meet_runs(&mut self) -> Checked {
        let met: Vec<ExecutionRow> = self.store.read(|tables| {
            let new =
                |row: &&ExecutionRow| is_run(row) && !self.history.plans.contains_key(&row.key);
            tables.executions.values().filter(new).cloned().collect()
        });
        for row in met {
            self.report.scheduled += 1;
            let submission = Submission::new(&*row.lane, &*row.kind).payload(PAYLOAD);
            self.history.plans.insert(row.key, Plan { submission, create: false });
        }
        self.store.read(check_once)
    }
}

/// Whether no schedule has anything left to start.
pub(super) fn have_ended(tables: &Tables) -> bool {
    let open = |row: &ScheduleRow| row.next_start.is_some() || row.runs.0.buffered.is_some();
    !records::<ScheduleRow>(tables).iter().any(open)
}

/// How many runs each due time has.
fn runs(tables: &Tables) -> BTreeMap<String, Vec<&ExecutionRow>> {
    let mut runs: BTreeMap<String, Vec<&ExecutionRow>> = BTreeMap::new();
    for row in tables.executions.values().filter(|row| is_run(row)) {
        let due = row.tags().get("schedule.due_at").cloned().unwrap_or_default();
        runs.entry(due).or_default().push(row);
    }
    runs
}

fn check_once(tables: &Tables) -> Checked {
    match runs(tables).into_iter().find(|(_, rows)| rows.len() > 1) {
        Some((due, rows)) => {
            let what = format!("{due} has {} runs", rows.len());
            Err(broken("a due time has one run", rows[0].key, what))
        }
        None => Ok(()),
    }
}

/// At the end: whatever was due was started or left out, and counted so.
pub(super) fn check(tables: &Tables) -> Checked {
    let runs = runs(tables);
    for row in records::<ScheduleRow>(tables) {
        let definition = &row.definition.0;
        let (Timing::Interval { every_ms, .. }, Some(end)) =
            (&definition.timing, definition.ends_at)
        else {
            continue;
        };
        let span = (end.0 - 1 - row.created_at.0).max(0).cast_unsigned();
        let due = span / every_ms;
        let started = runs.len() as u64;
        if started != row.started || started + row.overlapped != due {
            let (counted, left_out) = (row.started, row.overlapped);
            let what = format!(
                "it was due {due} times; {started} runs are there, {counted} were counted, \
                 {left_out} left out: {row:?}"
            );
            return Err(broken("every due time is dealt with once", None, what));
        }
    }
    Ok(())
}
