//! Hand-made evidence with one thing wrong at a time: a checker that never fails proves nothing.

mod durable;
mod large;
mod limits;
mod log;
mod schedules;
mod subscribers;
mod sweeps;
mod waits;

use std::collections::BTreeMap;

use ff_core::contracts::EventType;
use ff_core::state::PublicState;

use super::{Kind, Report, check};
use crate::evidence::{Deliveries, Evidence, FinalExecution, LogEvent};
use crate::history::{Entry, Grant, Lease, Op, Outcome, Phase, Work};
use crate::workload::Delivery;

const ID: &str = "x";

fn work(id: &str) -> Work {
    Work { id: id.into(), key: None, seed: 0, payload: 7 }
}

fn lease(epoch: u64) -> Lease {
    Lease { id: ID.into(), epoch, handle: String::new() }
}

fn complete(epoch: u64) -> Op {
    Op::Complete { lease: lease(epoch), seed: 0, result: 9 }
}

fn granted(epoch: u64) -> (Op, Outcome) {
    let grant = Grant { lease: lease(epoch), payload: 7, steps: BTreeMap::new() };
    (Op::Claim { worker: "w".into() }, Outcome::Granted { grants: vec![grant] })
}

fn event(version: u64, event_type: EventType, epoch: u64) -> LogEvent {
    use PublicState::{Active, Cancelled, Completed, Delayed, Failed, Waiting};
    let (from, to) = match event_type {
        EventType::Submitted => (None, Waiting),
        EventType::Claimed => (Some(Waiting), Active),
        EventType::Completed => (Some(Active), Completed),
        EventType::Failed => (Some(Active), Failed),
        EventType::Cancelled => (Some(Active), Cancelled),
        EventType::RetryScheduled => (Some(Active), Delayed),
        EventType::Replayed => (Some(Completed), Waiting),
        EventType::LeaseRevoked | EventType::LeaseExpired => (Some(Active), Waiting),
        other => panic!("no test needs {other:?}"),
    };
    LogEvent {
        id: ID.into(),
        version,
        event_type,
        from,
        to: Some(to),
        epoch,
        at: 0,
        reason: None,
        delay_until: (to == Delayed).then_some(50),
        endings: None,
    }
}

impl Evidence {
    fn line(&mut self, op_id: &str, op: &Op, phase: Phase, result: Option<Outcome>) {
        let (proc, op_id) = ("p".into(), op_id.into());
        self.history.push(Entry { proc, op_id, op: op.clone(), phase, t_mono_ns: 0, result });
    }

    fn accepted(&mut self, op_id: &str, op: &Op, outcome: Outcome) {
        self.line(op_id, op, Phase::Invoke, None);
        self.line(op_id, op, Phase::Ok, Some(outcome));
    }

    fn also_logged(&mut self, log: &[LogEvent]) {
        self.subscribers[0].lines.extend(log.iter().map(delivery));
        self.log.extend_from_slice(log);
    }

    fn execution(&mut self) -> &mut FinalExecution {
        self.executions.get_mut(ID).unwrap()
    }

    /// Replaces the log, and everything that must agree with it.
    fn with_log(mut self, log: Vec<LogEvent>) -> Self {
        let last = log.last().unwrap().clone();
        self.subscribers[0].lines = vec![Delivery::Resumed { after: None }];
        self.subscribers[0].lines.extend(log.iter().map(delivery));
        let execution = self.execution();
        execution.version = last.version;
        execution.state = last.to.unwrap();
        execution.history = log.clone();
        self.log = log;
        self
    }
}

fn delivery(event: &LogEvent) -> Delivery {
    let cursor = format!("c{}", event.version);
    Delivery::Event { cursor, event: event.clone() }
}

fn completed(payload: u64) -> FinalExecution {
    FinalExecution {
        state: PublicState::Completed,
        version: 3,
        lane: "alpha".into(),
        kind: "chaos".into(),
        created_at: 0,
        due: None,
        key: None,
        payload,
        result: Some(9),
        history: Vec::new(),
        signals: Vec::new(),
        steps: Vec::new(),
        frames: BTreeMap::new(),
        explanation: None,
    }
}

/// One more execution that came, ran and completed, and that the log tells of.
fn also_ran(evidence: &mut Evidence, id: &str, last: FinalExecution) {
    let types = [EventType::Submitted, EventType::Claimed, EventType::Completed];
    let events = types.iter().zip(1..).map(|(event_type, version)| LogEvent {
        id: id.into(),
        ..event(version, *event_type, u64::from(version > 1))
    });
    let history: Vec<LogEvent> = events.collect();
    evidence.also_logged(&history);
    evidence.executions.insert(id.into(), FinalExecution { history, ..last });
}

/// One execution, submitted, claimed and completed, with nothing wrong.
fn good() -> Evidence {
    let mut evidence = Evidence::default();
    evidence.accepted("1", &Op::Submit(work(ID)), Outcome::Accepted { id: ID.into() });
    let (claim, grants) = granted(1);
    evidence.accepted("2", &claim, grants);
    evidence.accepted("3", &complete(1), Outcome::Done);
    evidence.executions.insert(ID.into(), completed(7));
    evidence.subscribers.push(Deliveries {
        name: "s".into(),
        event_types: Vec::new(),
        lines: Vec::new(),
    });
    evidence.with_log(vec![
        event(1, EventType::Submitted, 0),
        event(2, EventType::Claimed, 1),
        event(3, EventType::Completed, 1),
    ])
}

#[track_caller]
fn reports(evidence: &Evidence, kind: Kind, words: &str) -> Report {
    let report = check(evidence, 1);
    let named = |v: &super::Violation| v.kind == kind && v.text.contains(words);
    assert!(report.violations.iter().any(named), "no {words:?} in {:?}", report.violations);
    assert!(!report.passed());
    report
}

#[test]
fn nothing_wrong() {
    let report = check(&good(), 1);
    assert_eq!(report.violations, []);
    assert!(report.passed());
    assert_eq!((report.acknowledged, report.executions, report.events), (3, 1, 3));
}

#[test]
fn a_run_without_acknowledgements_does_not_pass() {
    let report = check(&Evidence::default(), 1);
    assert_eq!(report.violations, []);
    assert!(!report.passed());
}

#[test]
fn lost_submissions() {
    let mut absent = good();
    absent.executions.clear();
    reports(&absent, Kind::Lost, "is not there");
    let mut changed = good();
    changed.execution().payload = 8;
    reports(&changed, Kind::Lost, "another payload");
}

#[test]
fn lost_results() {
    let mut gone = good();
    gone.execution().result = None;
    reports(&gone, Kind::Lost, "acknowledged result");
    let mut other = good();
    other.execution().result = Some(8);
    reports(&other, Kind::Lost, "acknowledged result");
    let claimed = vec![event(1, EventType::Submitted, 0), event(2, EventType::Claimed, 1)];
    let report = reports(&good().with_log(claimed), Kind::Lost, "`completed` of epoch 1");
    assert_eq!(report.count(Kind::Stuck), 1);
}

#[test]
fn a_replay_excuses_the_result_and_nothing_else() {
    let mut evidence = good();
    evidence.accepted("4", &Op::Replay { id: ID.into() }, Outcome::Done);
    evidence.execution().result = None;
    let mut log = evidence.log.clone();
    log.push(event(4, EventType::Replayed, 2));
    let report = check(&evidence.clone().with_log(log), 1);
    assert_eq!(report.count(Kind::Lost), 0, "{:?}", report.violations);
    reports(&evidence, Kind::Lost, "acknowledged replays");
}

#[test]
fn lost_cancellations_grants_failures_and_revocations() {
    let mut cancelled = good();
    cancelled.accepted("4", &Op::Cancel { id: ID.into() }, Outcome::Done);
    reports(&cancelled, Kind::Lost, "cancellation was acknowledged");
    let mut given_up = good();
    given_up.accepted("4", &Op::GiveUp(lease(1)), Outcome::Done);
    reports(&given_up, Kind::Lost, "`cancelled` of epoch 1");
    let mut grant = good();
    let (claim, grants) = granted(5);
    grant.accepted("4", &claim, grants);
    reports(&grant, Kind::Lost, "`claimed` of epoch 5");
    let mut failed = good();
    failed.accepted("4", &Op::Fail { lease: lease(1), fatal: true }, Outcome::FinallyFailed);
    reports(&failed, Kind::Lost, "`failed` of epoch 1");
    let mut revoked = good();
    revoked.accepted("4", &Op::Revoke { id: ID.into() }, Outcome::Revoked { epoch: 2 });
    reports(&revoked, Kind::Lost, "`lease_revoked` of epoch 2");
}

#[test]
fn a_worker_with_other_bytes() {
    let mut evidence = good();
    if let Some(Outcome::Granted { grants }) = &mut evidence.history[3].result {
        grants[0].payload = 8;
    }
    reports(&evidence, Kind::Lost, "other bytes");
}

#[test]
fn a_repeat_must_get_the_first_outcome() {
    let mut evidence = good();
    evidence.history.truncate(5);
    let unknown = check(&evidence, 1);
    assert_eq!(unknown.violations, [], "an unknown outcome is nobody's fault");
    assert!(unknown.unknown_left == 1 && !unknown.passed(), "but asking again would have told it");
    let mut settled = evidence.clone();
    settled.accepted("3", &complete(1), Outcome::Done);
    let report = check(&settled, 1);
    assert_eq!((report.violations.len(), report.unknown_resolved), (0, 1));
    evidence.line("3", &complete(1), Phase::Invoke, None);
    evidence.line("3", &complete(1), Phase::Fail, None);
    reports(&evidence, Kind::Lost, "its repeat was refused");
}

#[test]
fn a_repeated_failure_must_get_the_first_time() {
    let mut evidence = good();
    evidence.history.truncate(4);
    let fail = Op::Fail { lease: lease(1), fatal: false };
    evidence.accepted("3", &fail, Outcome::RetryScheduled { delay_until: 51 });
    let log = vec![
        event(1, EventType::Submitted, 0),
        event(2, EventType::Claimed, 1),
        event(3, EventType::RetryScheduled, 1),
    ];
    reports(&evidence.with_log(log), Kind::DoubleAccepted, "another time");
}

#[test]
fn a_repeated_failure_that_happened_must_not_be_refused() {
    let mut evidence = good();
    evidence.history.truncate(4);
    let fail = Op::Fail { lease: lease(1), fatal: true };
    evidence.line("3", &fail, Phase::Invoke, None);
    evidence.line("3", &fail, Phase::Invoke, None);
    evidence.line("3", &fail, Phase::Fail, None);
    let mut log = vec![
        event(1, EventType::Submitted, 0),
        event(2, EventType::Claimed, 1),
        event(3, EventType::Failed, 1),
    ];
    let by_somebody_else = check(&evidence.clone().with_log(log.clone()), 1);
    assert_eq!(by_somebody_else.violations, []);
    log[2].reason = Some("3".into());
    reports(&evidence.with_log(log), Kind::Lost, "its repeat was refused");
}

#[test]
fn an_operation_that_took_effect_twice() {
    let mut log = good().log;
    for event in &mut log[1..] {
        event.reason = Some("3".into());
    }
    reports(&good().with_log(log), Kind::DoubleAccepted, "3 took effect in versions 2 and 3");
}

#[test]
fn two_grants_of_one_epoch() {
    let mut evidence = good();
    let (claim, grants) = granted(1);
    evidence.accepted("4", &claim, grants);
    reports(&evidence, Kind::DoubleAccepted, "granted twice");
}

#[test]
fn two_endings_of_one_lease() {
    let mut evidence = good();
    evidence.accepted("4", &complete(1), Outcome::Done);
    reports(&evidence, Kind::DoubleAccepted, "both ended epoch 1");
}

#[test]
fn two_executions_for_one_key() {
    let mut evidence = good();
    let keyed = |id: &str| Op::Submit(Work { key: Some("k".into()), ..work(id) });
    evidence.accepted("4", &keyed(ID), Outcome::Accepted { id: ID.into() });
    evidence.accepted("5", &keyed("y"), Outcome::Accepted { id: "y".into() });
    reports(&evidence, Kind::DoubleAccepted, "key k was acknowledged as x and as y");
    let mut stored = good();
    stored.execution().key = Some("k".into());
    let twin = stored.execution().clone();
    stored.executions.insert("y".into(), twin);
    reports(&stored, Kind::DoubleAccepted, "key k has two executions");
}

#[test]
fn an_execution_that_nobody_was_told_of() {
    let mut evidence = good();
    evidence.history[1].phase = Phase::Fail;
    reports(&evidence, Kind::DoubleAccepted, "nobody was told");
    evidence.history[1].phase = Phase::Info;
    assert_eq!(check(&evidence, 1).violations, []);
}

#[test]
fn writes_under_leases_that_have_ended() {
    let cancel = (Op::Cancel { id: ID.into() }, Outcome::Done);
    let revoke = (Op::Revoke { id: ID.into() }, Outcome::Revoked { epoch: 2 });
    let fail = (Op::Fail { lease: lease(1), fatal: true }, Outcome::FinallyFailed);
    for (op, outcome) in [granted(2), cancel, revoke, fail] {
        let mut evidence = good();
        evidence.accepted("4", &op, outcome);
        evidence.accepted("5", &Op::Renew(lease(1)), Outcome::Done);
        reports(&evidence, Kind::DoubleAccepted, "5 wrote under ended epoch 1");
    }
}

#[test]
fn a_write_that_was_called_in_time_may_be_answered_late() {
    let mut evidence = good();
    evidence.history.truncate(4);
    let renew = Op::Renew(lease(1));
    evidence.line("4", &renew, Phase::Invoke, None);
    evidence.accepted("3", &complete(1), Outcome::Done);
    evidence.line("4", &renew, Phase::Ok, Some(Outcome::Done));
    assert_eq!(check(&evidence, 1).violations, []);
}

#[test]
fn unfinished_work() {
    let mut evidence = good();
    evidence.execution().state = PublicState::Waiting;
    evidence.execution().explanation = Some("no worker".into());
    reports(&evidence, Kind::Stuck, "Waiting: no worker");
}
