//! Flows and signals of which one thing at a time is wrong.

use std::collections::BTreeMap;

use ff_core::contracts::{EdgeGroupSnapshot, EdgeGroupState, EdgePolicy, EventType, FlowStatus};
use ff_core::state::PublicState;
use uuid::Uuid;

use super::{Evidence, Kind, LogEvent, also_ran, check, completed, event, good, reports};
use crate::evidence::{FLOW, FinalFlow};
use crate::graph::Planted;
use crate::history::{Grant, Lease, Op, Outcome, Phase};

/// Two nodes, the second behind the first.
fn planted() -> Planted {
    let flow = Uuid::from_u128(7);
    let plant = |seed| Planted { flow, partition: 0, seed };
    let pair = |planted: &Planted| {
        let nodes = planted.nodes();
        nodes.len() == 2 && nodes[1].parents == [0] && nodes[1].policy == EdgePolicy::AllOf
    };
    (0..).map(plant).find(pair).expect("some seed makes such a graph")
}

/// A member that ran, in the state that it ended in.
fn ran(evidence: &mut Evidence, at: usize) {
    let work = planted().nodes()[at].work.clone();
    let grant = Grant { lease: lease_of(&work.id), payload: work.payload, steps: BTreeMap::new() };
    let claim = Op::Claim { worker: "w".into() };
    evidence.accepted(&format!("claim-{at}"), &claim, Outcome::Granted { grants: vec![grant] });
    also_ran(evidence, &work.id, completed(work.payload));
}

fn lease_of(id: &str) -> Lease {
    Lease { id: id.into(), epoch: 1, handle: String::new() }
}

fn of_flow(event_type: EventType) -> LogEvent {
    let id = format!("{FLOW}{}/{}", planted().flow, event_type.as_str());
    let endings = Some(BTreeMap::from([("completed".to_owned(), 2)]));
    let base = event(1, EventType::Submitted, 0);
    LogEvent { id, event_type, from: None, to: None, endings, ..base }
}

fn with_flow(order: [usize; 2]) -> Evidence {
    let mut evidence = good();
    evidence.accepted("plant", &Op::Plant(planted()), Outcome::Done);
    order.into_iter().for_each(|at| ran(&mut evidence, at));
    evidence.also_logged(&[of_flow(EventType::FlowCompleted)]);
    let counts = BTreeMap::from([(PublicState::Completed, 2)]);
    let group = EdgeGroupSnapshot {
        policy: EdgePolicy::AllOf,
        state: EdgeGroupState::Satisfied,
        parents: 1,
        succeeded: 1,
        failed: 0,
        skipped: 0,
    };
    let groups = BTreeMap::from([(planted().nodes()[1].work.id.clone(), group)]);
    let last = FinalFlow { status: FlowStatus::Completed, counts, groups };
    evidence.flows.insert(planted().flow, last);
    evidence
}

#[test]
fn a_good_flow() {
    assert_eq!(check(&with_flow([0, 1]), 1).violations, []);
}

#[test]
fn a_child_before_its_parent() {
    let evidence = with_flow([1, 0]);
    reports(&evidence, Kind::DoubleAccepted, "was claimed, its parents say Pending");
}

#[test]
fn a_flow_that_is_not_what_its_members_are() {
    let flow = planted().flow;
    let mut lost = with_flow([0, 1]);
    lost.flows.clear();
    reports(&lost, Kind::Lost, "was acknowledged and is not there");
    let mut open = with_flow([0, 1]);
    open.flows.get_mut(&flow).unwrap().status = FlowStatus::Open;
    reports(&open, Kind::Stuck, "all members have ended");
    let mut drifted = with_flow([0, 1]);
    drifted.flows.get_mut(&flow).unwrap().counts.clear();
    reports(&drifted, Kind::Gap, "its members are");
    let mut failed = with_flow([0, 1]);
    failed.flows.get_mut(&flow).unwrap().status = FlowStatus::Failed;
    failed.also_logged(&[of_flow(EventType::FlowFailed)]);
    reports(&failed, Kind::DoubleAccepted, "has failed, and nobody in it");
    let mut cancelled = with_flow([0, 1]);
    cancelled.flows.get_mut(&flow).unwrap().status = FlowStatus::Cancelled;
    reports(&cancelled, Kind::DoubleAccepted, "by nobody");
}

#[test]
fn a_group_that_is_not_what_its_parents_are() {
    let (flow, child) = (planted().flow, planted().nodes()[1].work.id.clone());
    let mut drifted = with_flow([0, 1]);
    let groups = |evidence: &mut Evidence| evidence.flows.get_mut(&flow).unwrap().groups.clone();
    let mut changed = groups(&mut drifted);
    changed.get_mut(&child).unwrap().succeeded = 0;
    drifted.flows.get_mut(&flow).unwrap().groups = changed;
    reports(&drifted, Kind::Gap, "its group counts");
    let mut flipped = with_flow([0, 1]);
    let last = flipped.flows.get_mut(&flow).unwrap();
    last.groups.get_mut(&child).unwrap().state = EdgeGroupState::Impossible;
    reports(&flipped, Kind::DoubleAccepted, "its group is Impossible");
    let mut gone = with_flow([0, 1]);
    gone.flows.get_mut(&flow).unwrap().groups.clear();
    reports(&gone, Kind::Lost, "what it waits for is not there");
}

#[test]
fn a_member_that_was_spared_without_need() {
    let mut evidence = with_flow([0, 1]);
    let parent = planted().nodes()[0].work.id.clone();
    let spared = LogEvent {
        id: parent,
        reason: Some("sibling_quorum_satisfied".into()),
        ..event(4, EventType::Cancelled, 1)
    };
    evidence.also_logged(&[spared]);
    reports(&evidence, Kind::DoubleAccepted, "was spared without need");
}

#[test]
fn a_member_that_runs_although_its_parents_did_not() {
    let mut evidence = with_flow([0, 1]);
    let parent = planted().nodes()[0].work.id.clone();
    evidence.executions.get_mut(&parent).unwrap().state = PublicState::Failed;
    reports(&evidence, Kind::DoubleAccepted, "its parents say Impossible");
}

#[test]
fn a_cancelled_flow_that_is_handed_out() {
    let mut evidence = good();
    evidence.accepted("plant", &Op::Plant(planted()), Outcome::Done);
    let cancel = Op::CancelFlow { flow: planted().flow };
    evidence.accepted("cancel", &cancel, Outcome::Done);
    ran(&mut evidence, 0);
    reports(&evidence, Kind::DoubleAccepted, "its flow is over");
}

#[test]
fn signals_that_are_lost_or_twice_there() {
    let signal = || Op::Signal { id: "x".into(), waitpoint: Uuid::nil(), key: "k".into() };
    let mut lost = good();
    lost.accepted("signal", &signal(), Outcome::Done);
    reports(&lost, Kind::Lost, "acknowledged signal k is not there");
    let mut refused = good();
    refused.execution().signals = vec!["k".into()];
    refused.accepted("signal", &signal(), Outcome::Done);
    assert_eq!(check(&refused, 1).violations, []);
    refused.line("again", &signal(), Phase::Invoke, None);
    refused.line("again", &signal(), Phase::Fail, None);
    reports(&refused, Kind::Lost, "the repeat of signal k was refused");
    let mut twice = good();
    twice.execution().signals = vec!["k".into(), "k".into()];
    reports(&twice, Kind::DoubleAccepted, "signal k is there twice");
}

#[test]
fn a_wait_that_ends_twice() {
    let step = |version, event_type, from, to| LogEvent {
        from: Some(from),
        to: Some(to),
        ..event(version, event_type, 1)
    };
    use PublicState::{Active, Completed, Failed, Suspended, Waiting};
    let suspended = |ends: &[EventType]| {
        let mut log = vec![event(1, EventType::Submitted, 0), event(2, EventType::Claimed, 1)];
        log.push(waited(3, EventType::Suspended, (Active, Suspended)));
        let mut from = Suspended;
        for (version, end) in (4..).zip(ends) {
            log.push(waited(version, *end, (from, Waiting)));
            from = Waiting;
        }
        log
    };
    fn waited(version: u64, event_type: EventType, ends: (PublicState, PublicState)) -> LogEvent {
        let base = event(version, EventType::Claimed, 1);
        LogEvent { event_type, from: Some(ends.0), to: Some(ends.1), ..base }
    }
    let finish = |mut log: Vec<LogEvent>| {
        let version = log.len() as u64 + 1;
        log.push(LogEvent { epoch: 2, ..step(version, EventType::Claimed, Waiting, Active) });
        log.push(LogEvent {
            epoch: 2,
            ..step(version + 1, EventType::Completed, Active, Completed)
        });
        log
    };
    let mut once = good();
    once.history.clear();
    let once = once.with_log(finish(suspended(&[EventType::Resumed])));
    let of = |evidence: &Evidence| {
        let report = check(evidence, 1);
        report.violations.iter().filter(|v| v.text.contains("did not wait")).count()
    };
    assert_eq!(of(&once), 0);
    let twice = good().with_log(finish(suspended(&[EventType::Resumed, EventType::Resumed])));
    assert_eq!(of(&twice), 1);
    let mut unheard = suspended(&[]);
    unheard.push(waited(4, EventType::SignalDelivered, (Suspended, Suspended)));
    unheard.push(waited(5, EventType::Failed, (Suspended, Failed)));
    reports(&good().with_log(unheard), Kind::DoubleAccepted, "a signal did not wake it");
}
