//! Schedules: every due time has one run, and a schedule whose runs come one after the other never
//! has two of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ff_core::contracts::EventType;

use super::{Kind, Report};
use crate::evidence::{Evidence, FinalSchedule};
use crate::history::{Entry, Op, Outcome, Phase};
use crate::workload::many::{ALONE, EVERY_MS};

pub fn check(evidence: &Evidence, report: &mut Report) {
    let triggered = triggered(&evidence.history, report);
    let mut runs: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut started: HashMap<&str, u64> = HashMap::new();
    for (id, execution) in &evidence.executions {
        let Some((name, at)) = &execution.due else { continue };
        *started.entry(name).or_default() += 1;
        if !triggered.contains(id.as_str()) {
            runs.entry(name).or_default().push(*at);
        }
    }
    for id in triggered.iter().filter(|id| !evidence.executions.contains_key(**id)) {
        report.add(Kind::Lost, format!("{id} was acknowledged as a run and is not there"));
    }
    for name in runs.keys().filter(|name| !evidence.schedules.contains_key(**name)) {
        report.add(Kind::Lost, format!("schedule {name} has runs and is not there"));
    }
    for (name, schedule) in &evidence.schedules {
        let own = runs.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        once(name, schedule, own, report);
        let started = started.get(name.as_str()).copied().unwrap_or(0);
        if started != schedule.started {
            let told = schedule.started;
            let text = format!("schedule {name} has started {told} runs, {started} are there");
            report.add(Kind::Gap, text);
        }
    }
    one_after_the_other(evidence, report);
}

/// The runs that somebody asked for.
fn triggered<'e>(history: &'e [Entry], report: &mut Report) -> HashSet<&'e str> {
    let mut by_request: HashMap<&str, &str> = HashMap::new();
    for entry in history.iter().filter(|entry| entry.phase == Phase::Ok) {
        let (Op::Trigger { request, .. }, Some(Outcome::Accepted { id })) =
            (&entry.op, &entry.result)
        else {
            continue;
        };
        let first = *by_request.entry(request).or_insert(id);
        if first != id {
            let text = format!("request {request} was acknowledged as {first} and as {id}");
            report.add(Kind::DoubleAccepted, text);
        }
    }
    by_request.into_values().collect()
}

/// From the schedule's beginning to its last due time there is a run for each, or, where runs wait
/// for each other, as many as were neither left out nor wait.
fn once(name: &str, schedule: &FinalSchedule, runs: &[i64], report: &mut Report) {
    let dues: BTreeSet<i64> = runs.iter().copied().collect();
    if dues.len() < runs.len() {
        report.add(Kind::DoubleAccepted, format!("schedule {name}: a due time has two runs"));
    }
    let Some(last) = schedule.last_due else { return };
    let first = schedule.created_at - schedule.created_at.rem_euclid(EVERY_MS) + EVERY_MS;
    let expected: BTreeSet<i64> =
        (first..=last).step_by(EVERY_MS.unsigned_abs() as usize).collect();
    // A schedule that is made at a due time may or may not be due then.
    for due in dues.difference(&expected).filter(|due| **due != schedule.created_at) {
        report.add(Kind::DoubleAccepted, format!("schedule {name} was not due at {due}"));
    }
    let missing = expected.difference(&dues).count() as u64;
    let excused = schedule.overlapped + u64::from(schedule.buffered);
    if missing > excused {
        let text = format!("schedule {name}: {missing} due times have no run, {excused} may");
        report.add(Kind::Lost, text);
    }
}

/// A run is submitted when the one before it has ended.
fn one_after_the_other(evidence: &Evidence, report: &mut Report) {
    let alone = |id: &str| {
        let due = evidence.executions.get(id).and_then(|execution| execution.due.as_ref());
        due.is_some_and(|(name, _)| name == ALONE)
    };
    let mut running: Option<&str> = None;
    for event in evidence.log.iter().filter(|event| alone(&event.id)) {
        match event.event_type {
            EventType::Submitted => {
                if let Some(before) = running.replace(&event.id) {
                    let text = format!("{} was started beside {before}", event.id);
                    report.add(Kind::DoubleAccepted, text);
                }
            }
            kind if kind.is_finish() && running == Some(&event.id) => running = None,
            _ => {}
        }
    }
}
