//! Schedules of which one thing at a time is wrong.

use super::{also_ran, completed, good, reports};
use crate::checker::{Kind, check};
use crate::evidence::{Evidence, FinalExecution, FinalSchedule};
use crate::history::{self, Op, Outcome};
use crate::workload::many::{ALONE, EVERY_MS, PAYLOAD, STEADY};

fn run(evidence: &mut Evidence, id: &str, name: &str, due: i64) {
    let due = Some((name.to_owned(), due * EVERY_MS));
    let last = FinalExecution { due, ..completed(history::hash(PAYLOAD)) };
    also_ran(evidence, id, last);
}

/// A schedule that has been due three times.
fn scheduled(name: &str) -> Evidence {
    let mut evidence = good();
    for (id, due) in [("r1", 1), ("r2", 2), ("r3", 3)] {
        run(&mut evidence, id, name, due);
    }
    let last = FinalSchedule {
        created_at: EVERY_MS / 2,
        last_due: Some(3 * EVERY_MS),
        started: 3,
        overlapped: 0,
        buffered: false,
    };
    evidence.schedules.insert(name.into(), last);
    evidence
}

fn schedule(evidence: &mut Evidence) -> &mut FinalSchedule {
    evidence.schedules.get_mut(STEADY).unwrap()
}

#[test]
fn a_due_time_without_a_run_or_with_two() {
    assert_eq!(check(&scheduled(STEADY), 1).violations, []);
    let mut missed = scheduled(STEADY);
    schedule(&mut missed).last_due = Some(4 * EVERY_MS);
    reports(&missed, Kind::Lost, "1 due times have no run, 0 may");
    schedule(&mut missed).overlapped = 1;
    assert_eq!(check(&missed, 1).violations, []);
    let mut twice = scheduled(STEADY);
    run(&mut twice, "r4", STEADY, 3);
    schedule(&mut twice).started = 4;
    reports(&twice, Kind::DoubleAccepted, "a due time has two runs");
    let mut early = scheduled(STEADY);
    run(&mut early, "r4", STEADY, 4);
    reports(&early, Kind::DoubleAccepted, "was not due at 4000");
    let mut miscounted = scheduled(STEADY);
    schedule(&mut miscounted).started = 2;
    reports(&miscounted, Kind::Gap, "has started 2 runs, 3 are there");
    let mut gone = scheduled(STEADY);
    gone.schedules.clear();
    reports(&gone, Kind::Lost, "has runs and is not there");
    let mut other = scheduled(STEADY);
    other.executions.get_mut("r2").unwrap().payload = 1;
    reports(&other, Kind::Lost, "another payload than its schedule");
}

#[test]
fn a_run_that_somebody_asked_for() {
    let asked = |evidence: &mut Evidence, op_id: &str, id: &str| {
        let trigger = Op::Trigger { schedule: STEADY.into(), request: "q".into() };
        evidence.accepted(op_id, &trigger, Outcome::Accepted { id: id.into() });
    };
    let mut evidence = scheduled(STEADY);
    run(&mut evidence, "asked", STEADY, 3);
    schedule(&mut evidence).started = 4;
    asked(&mut evidence, "trigger", "asked");
    assert_eq!(check(&evidence, 1).violations, []);
    asked(&mut evidence, "again", "r1");
    reports(&evidence, Kind::DoubleAccepted, "request q was acknowledged as asked and as r1");
    let mut lost = scheduled(STEADY);
    asked(&mut lost, "trigger", "asked");
    reports(&lost, Kind::Lost, "asked was acknowledged as a run and is not there");
}

#[test]
fn runs_that_should_have_waited_for_each_other() {
    let mut evidence = scheduled(ALONE);
    assert_eq!(check(&evidence, 1).violations, []);
    let end = evidence.log.iter().position(|event| event.id == "r1" && event.version == 3);
    let late = evidence.log.remove(end.unwrap());
    evidence.log.push(late);
    reports(&evidence, Kind::DoubleAccepted, "r2 was started beside r1");
}
