//! The same for the log.

use ff_core::contracts::EventType;
use ff_core::state::PublicState;

use super::{event, good, lease, reports};
use crate::checker::{Kind, check};
use crate::evidence::LogEvent;
use crate::history::{Op, Outcome};

#[test]
fn stories_that_cannot_happen() {
    use EventType as E;
    let bad: [(&[(E, u64)], &str); 7] = [
        (&[(E::Claimed, 1), (E::LeaseExpired, 1)], "before its time"),
        (&[(E::Claimed, 1), (E::Claimed, 2)], "while somebody held it"),
        (&[(E::Claimed, 2), (E::LeaseRevoked, 3), (E::Claimed, 3)], "granted again"),
        (&[(E::Claimed, 2), (E::Completed, 1)], "stale epoch"),
        (&[(E::Claimed, 1), (E::Completed, 1), (E::Cancelled, 1)], "ended twice"),
        (&[(E::Claimed, 1), (E::Completed, 1), (E::Claimed, 2)], "after its end"),
        (&[(E::Completed, 0)], "not allowed"),
    ];
    for (steps, words) in bad {
        let steps = steps.iter().zip(2..).map(|((kind, epoch), at)| event(at, *kind, *epoch));
        let log = std::iter::once(event(1, E::Submitted, 0)).chain(steps).collect();
        reports(&good().with_log(log), Kind::DoubleAccepted, words);
    }
}

#[test]
fn holes_in_the_log() {
    let mut hole = good();
    hole.log.remove(1);
    reports(&hole, Kind::Gap, "its log is [1, 3]");
    let mut repeated = good();
    repeated.log.insert(1, repeated.log[1].clone());
    reports(&repeated, Kind::Gap, "its log is [1, 2, 2, 3]");
    let mut short = good();
    short.execution().version = 4;
    reports(&short, Kind::Gap, "is at version 4");
    let mut history = good();
    history.execution().history.pop();
    reports(&history, Kind::Gap, "its history is not");
    let mut state = good();
    state.execution().state = PublicState::Failed;
    reports(&state, Kind::Gap, "do not follow");
    let mut unreadable = good();
    unreadable.log_error = Some("a hole".into());
    reports(&unreadable, Kind::Gap, "cannot be read to its end");
    let mut foreign = good();
    foreign.log.push(LogEvent { id: "y".into(), ..event(1, EventType::Submitted, 0) });
    reports(&foreign, Kind::Gap, "speaks of y");
    let mut torn = good();
    torn.torn_lines = 3;
    reports(&torn, Kind::Gap, "unreadable lines");
}

#[test]
fn a_renewed_lease_that_expired_nevertheless() {
    let mut log = good().log;
    log[2] = LogEvent { at: 350, ..event(3, EventType::LeaseExpired, 1) };
    let mut evidence = good();
    evidence.history.truncate(4);
    let in_time = check(&evidence.clone().with_log(log.clone()), 1);
    assert_eq!(in_time.count(Kind::DoubleAccepted), 0, "{:?}", in_time.violations);
    evidence.accepted("3", &Op::Renew(lease(1)), Outcome::Renewed { until: 400 });
    reports(&evidence.with_log(log), Kind::DoubleAccepted, "before its time");
}
