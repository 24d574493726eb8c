//! Bulk operations of which one thing at a time is wrong.

use ff_core::contracts::EventType;
use ff_core::state::PublicState;

use super::{ID, event, good, reports};
use crate::checker::{Kind, check};
use crate::evidence::{Evidence, FinalSweep, LogEvent};
use crate::history::{Op, Outcome, Phase, Sweep};

const MARK: &str = "m";

fn asked() -> Op {
    Op::Sweep(Sweep { mark: MARK.into(), lane: "alpha".into(), created_from: 0, cancels: false })
}

fn marked(version: u64) -> LogEvent {
    let completed = Some(PublicState::Completed);
    LogEvent {
        event_type: EventType::TagsChanged,
        from: completed,
        to: completed,
        reason: Some(MARK.into()),
        ..event(version, EventType::Completed, 1)
    }
}

/// One sweep, which came to the one execution that there is.
fn swept() -> Evidence {
    let mut evidence = good();
    evidence.accepted("sweep", &asked(), Outcome::Done);
    let last = FinalSweep {
        lane: "alpha".into(),
        cancels: false,
        created_from: 0,
        created_at: 10,
        finished: true,
        matched: 1,
        done: 1,
        changed: 1,
    };
    evidence.sweeps.insert(MARK.into(), last);
    let mut log = evidence.log.clone();
    log.push(marked(4));
    evidence.with_log(log)
}

fn sweep(evidence: &mut Evidence) -> &mut FinalSweep {
    evidence.sweeps.get_mut(MARK).unwrap()
}

#[test]
fn a_sweep_that_does_not_end_or_is_lost() {
    assert_eq!(check(&swept(), 1).violations, []);
    let mut stuck = swept();
    sweep(&mut stuck).finished = false;
    reports(&stuck, Kind::Stuck, "sweep m has come to 1 only");
    let mut lost = swept();
    lost.sweeps.clear();
    reports(&lost, Kind::Lost, "sweep m was acknowledged and is not there");
    let mut unknown = good();
    unknown.line("sweep", &asked(), Phase::Invoke, None);
    assert_eq!(check(&unknown, 1).violations, []);
    let mut nobody = swept();
    nobody.history.truncate(6);
    reports(&nobody, Kind::DoubleAccepted, "sweep m was started by nobody");
}

#[test]
fn a_sweep_that_misses_something_or_comes_twice() {
    let mut missed = good();
    missed.accepted("sweep", &asked(), Outcome::Done);
    let last = FinalSweep { changed: 0, done: 0, ..swept().sweeps[MARK].clone() };
    missed.sweeps.insert(MARK.into(), last);
    reports(&missed, Kind::Lost, "sweep m missed 1 of 1");
    reports(&missed, Kind::Lost, "sweep m came to 0 of 1");
    sweep(&mut missed).cancels = true;
    reports(&missed, Kind::Lost, "sweep m missed 1 of 1");
    let mut log = swept().log;
    log.push(marked(5));
    reports(&swept().with_log(log), Kind::DoubleAccepted, "sweep m came to something twice");
    let mut miscounted = swept();
    sweep(&mut miscounted).changed = 2;
    reports(&miscounted, Kind::Gap, "tells of 2 changes, there are 1");
    let mut again = swept();
    sweep(&mut again).done = 2;
    reports(&again, Kind::DoubleAccepted, "came to 2 and changed 1");
    let mut foreign = swept();
    foreign.executions.get_mut(ID).unwrap().lane = "beta".into();
    reports(&foreign, Kind::DoubleAccepted, "came to x, not its own");
    let mut later = swept();
    later.executions.get_mut(ID).unwrap().created_at = 11;
    reports(&later, Kind::DoubleAccepted, "came to x, not its own");
}
