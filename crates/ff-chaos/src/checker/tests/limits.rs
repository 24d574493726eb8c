//! Limits that do not hold.

use super::{LogEvent, also_ran, completed, good, lease, reports};
use crate::checker::{Kind, check};
use crate::evidence::{Evidence, FinalExecution};
use crate::history::{Op, Outcome, Phase, Standing};
use crate::workload::limits::{METERED, RATE};

#[test]
fn a_limit_that_does_not_hold() {
    let mut over = good();
    let standing = Standing { used: 3, reserved: 2, hard: 4 };
    over.accepted("watch", &Op::WatchBudget, Outcome::Limit(standing));
    reports(&over, Kind::DoubleAccepted, "3 used and 2 held of 4");
    let mut leaked = good();
    leaked.limits.insert("quota", Standing { used: 0, reserved: 1, hard: 4 });
    reports(&leaked, Kind::Stuck, "1 of the quota are still held");
}

fn report(amount: u64) -> Op {
    Op::Report { lease: lease(1), key: "k".into(), amount }
}

fn with_ledger(used: u64) -> Evidence {
    let mut evidence = good();
    evidence.history.drain(4..);
    evidence.limits.insert("ledger", Standing { used, reserved: 0, hard: u64::MAX });
    evidence
}

#[test]
fn usage_that_is_lost_or_counted_twice() {
    let applied = |used| {
        let mut evidence = with_ledger(used);
        evidence.accepted("a", &report(5), Outcome::Done);
        evidence.accepted("b", &report(5), Outcome::Unchanged);
        evidence
    };
    assert_eq!(check(&applied(5), 1).violations, []);
    reports(&applied(4), Kind::Lost, "5 to 5 were reported, the ledger holds 4");
    reports(&applied(10), Kind::DoubleAccepted, "the ledger holds 10");
    let mut twice = applied(10);
    twice.accepted("c", &report(5), Outcome::Done);
    reports(&twice, Kind::DoubleAccepted, "k was counted twice");
    let mut unasked = with_ledger(0);
    unasked.accepted("a", &report(5), Outcome::Unchanged);
    reports(&unasked, Kind::DoubleAccepted, "before anybody had reported it");
}

#[test]
fn usage_whose_answer_is_not_known_may_count_once() {
    for used in [0, 5, 7] {
        let mut evidence = with_ledger(used);
        evidence.line("a", &report(5), Phase::Invoke, None);
        let found = check(&evidence, 1).violations.len();
        assert_eq!(found, usize::from(used == 7), "{used}");
    }
}

/// So many claims of metered work, spread over so many milliseconds.
fn claimed(count: u32, over: i64) -> Evidence {
    let mut evidence = good();
    for at in 0..count {
        let id = format!("metered-{at}");
        evidence.accepted(&id, &Op::Submit(super::work(&id)), Outcome::Accepted { id: id.clone() });
        let last = FinalExecution { kind: METERED.into(), ..completed(7) };
        also_ran(&mut evidence, &id, last);
        let when = over * i64::from(at) / i64::from(count - 1);
        let later = |event: &mut LogEvent| {
            if event.id == id {
                event.at = when;
            }
        };
        evidence.log.iter_mut().for_each(later);
    }
    evidence
}

#[test]
fn a_rate_that_does_not_hold() {
    let window = RATE.window_ms.cast_signed();
    let exceeded = |evidence: &Evidence| {
        let report = check(evidence, 1);
        report.violations.iter().any(|one| one.text.contains("claims within"))
    };
    assert!(!exceeded(&claimed(RATE.limit, 0)));
    assert!(!exceeded(&claimed(RATE.limit + 1, window)));
    assert!(exceeded(&claimed(RATE.limit + 1, window - 1)));
}
