//! Steps and frames of which one thing at a time is wrong.

use uuid::Uuid;

use super::{ID, good, granted, lease, reports};
use crate::checker::{Kind, check};
use crate::evidence::{Evidence, Spoken};
use crate::history::{Op, Outcome};

fn step() -> Op {
    Op::Step { lease: lease(1), name: "charge".into(), seed: 0, value: 5 }
}

/// A step was recorded under the first lease.
fn stepped() -> Evidence {
    let mut evidence = good();
    evidence.history.drain(4..);
    evidence.accepted("step", &step(), Outcome::Recorded { value: 5 });
    evidence.execution().steps = vec![("charge".into(), 5)];
    evidence
}

#[test]
fn a_step_that_is_lost_or_twice_there() {
    assert_eq!(check(&stepped(), 1).violations, []);
    let mut lost = stepped();
    lost.execution().steps.clear();
    reports(&lost, Kind::Lost, "acknowledged step \"charge\" is not there");
    let mut changed = stepped();
    changed.execution().steps[0].1 = 6;
    reports(&changed, Kind::Lost, "acknowledged step \"charge\" is not there");
    let mut twice = stepped();
    twice.execution().steps.push(("charge".into(), 5));
    reports(&twice, Kind::DoubleAccepted, "a step is there twice");
    let mut both = stepped();
    both.accepted("again", &step(), Outcome::Recorded { value: 6 });
    reports(&both, Kind::DoubleAccepted, "told in two ways");
}

#[test]
fn a_next_holder_that_was_not_told_of_a_step() {
    let mut evidence = stepped();
    let (claim, grants) = granted(2);
    evidence.accepted("claim", &claim, grants);
    reports(&evidence, Kind::Lost, "epoch 2 was not told of step \"charge\"");
    let told = |report: crate::checker::Report| {
        report.violations.iter().filter(|one| one.text.contains("not told")).count()
    };
    let last = evidence.history.last_mut().unwrap();
    if let Some(Outcome::Granted { grants }) = &mut last.result {
        grants[0].steps.insert("charge".into(), 5);
    }
    assert_eq!(told(check(&evidence, 1)), 0);
}

const CALL: Uuid = Uuid::from_u128(3);

/// Two frames were said in one call, which is known to be there.
fn spoke() -> Evidence {
    let mut evidence = good();
    evidence.history.drain(4..);
    let append = Op::Append { lease: lease(1), append_id: CALL, frames: 2 };
    evidence.accepted("append", &append, Outcome::Appended { attempt: 0, first: 1, last: 2 });
    evidence.execution().frames.insert(0, vec![frame(1, CALL, 0), frame(2, CALL, 1)]);
    evidence
}

fn frame(sequence: u64, append_id: Uuid, at: u32) -> Spoken {
    Spoken { sequence, append_id, at }
}

fn frames(evidence: &mut Evidence) -> &mut Vec<Spoken> {
    evidence.executions.get_mut(ID).unwrap().frames.get_mut(&0).unwrap()
}

#[test]
fn frames_that_are_lost_repeated_or_out_of_order() {
    assert_eq!(check(&spoke(), 1).violations, []);
    let mut lost = spoke();
    frames(&mut lost).pop();
    reports(&lost, Kind::Lost, "are not there");
    let mut disordered = spoke();
    frames(&mut disordered).swap(0, 1);
    reports(&disordered, Kind::Gap, "have holes");
    let mut twice = spoke();
    let again = [frame(3, CALL, 0), frame(4, CALL, 1)];
    frames(&mut twice).extend(again);
    reports(&twice, Kind::DoubleAccepted, "in part or twice");
    let mut foreign = spoke();
    frames(&mut foreign).push(frame(3, Uuid::from_u128(4), 0));
    reports(&foreign, Kind::DoubleAccepted, "in part or twice");
    let mut elsewhere = spoke();
    let append = Op::Append { lease: lease(1), append_id: CALL, frames: 2 };
    elsewhere.accepted("again", &append, Outcome::Appended { attempt: 0, first: 3, last: 4 });
    reports(&elsewhere, Kind::DoubleAccepted, "was told another place");
}
