//! Flows, signals and budgets of which one thing at a time is wrong.

use std::collections::BTreeMap;

use ff_core::contracts::{EdgePolicy, EventType, FlowStatus};
use ff_core::state::PublicState;
use uuid::Uuid;

use super::{Evidence, FinalExecution, Kind, LogEvent, check, delivery, event, good, reports};
use crate::evidence::{FLOW, FinalFlow};
use crate::graph::Planted;
use crate::history::{Grant, Lease, Op, Outcome, Standing};

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

fn also(evidence: &mut Evidence, log: Vec<LogEvent>) {
    evidence.subscribers[0].lines.extend(log.iter().map(delivery));
    evidence.log.extend(log);
}

/// A member that ran, in the state that it ended in.
fn ran(evidence: &mut Evidence, at: usize) {
    let work = planted().nodes()[at].work.clone();
    let types = [EventType::Submitted, EventType::Claimed, EventType::Completed];
    let events = types.iter().zip(1..).map(|(event_type, version)| LogEvent {
        id: work.id.clone(),
        ..event(version, *event_type, u64::from(version > 1))
    });
    let history: Vec<LogEvent> = events.collect();
    let grant = Grant { lease: lease_of(&work.id), payload: work.payload };
    let claim = Op::Claim { worker: "w".into() };
    evidence.accepted(&format!("claim-{at}"), &claim, Outcome::Granted { grants: vec![grant] });
    evidence.executions.insert(
        work.id.clone(),
        FinalExecution {
            state: PublicState::Completed,
            version: 3,
            key: None,
            payload: work.payload,
            result: None,
            history: history.clone(),
            signals: Vec::new(),
            explanation: None,
        },
    );
    also(evidence, history);
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
    also(&mut evidence, vec![of_flow(EventType::FlowCompleted)]);
    let counts = BTreeMap::from([(PublicState::Completed, 2)]);
    let last = FinalFlow { status: FlowStatus::Completed, counts };
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
    reports(&evidence, Kind::DoubleAccepted, "was handed out, its parents say Pending");
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
    also(&mut failed, vec![of_flow(EventType::FlowFailed)]);
    reports(&failed, Kind::DoubleAccepted, "has failed, and nobody in it");
    let mut cancelled = with_flow([0, 1]);
    cancelled.flows.get_mut(&flow).unwrap().status = FlowStatus::Cancelled;
    reports(&cancelled, Kind::DoubleAccepted, "by nobody");
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
    let mut twice = good();
    twice.execution().signals = vec!["k".into(), "k".into()];
    reports(&twice, Kind::DoubleAccepted, "signal k is there twice");
}

#[test]
fn a_budget_that_does_not_hold() {
    let mut over = good();
    let standing = Standing { used: 3, reserved: 2, hard: 4 };
    over.accepted("watch", &Op::Watch, Outcome::Budget(standing));
    reports(&over, Kind::DoubleAccepted, "3 used and 2 held of 4");
    let mut leaked = good();
    leaked.budget = Some(Standing { used: 0, reserved: 1, hard: 4 });
    reports(&leaked, Kind::Stuck, "1 are still held");
}

#[test]
fn a_wait_that_ends_twice() {
    let step = |version, event_type, from, to| LogEvent {
        from: Some(from),
        to: Some(to),
        ..event(version, event_type, 1)
    };
    use PublicState::{Active, Completed, Suspended, Waiting};
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
}
