//! Large flows of which one thing at a time is wrong.

use ff_core::contracts::EventType;

use super::event;
use crate::checker::{Kind, Report, large};
use crate::evidence::LogEvent;
use crate::large::Large;

fn flows() -> [Large; 2] {
    [Large::wide(2, |_| 0), Large::deep(3, |_| 0)]
}

/// Everything is claimed and completed in the order of the graphs.
fn log() -> Vec<LogEvent> {
    let mut log = Vec::new();
    for id in flows().iter().flat_map(|large| large.nodes.clone()) {
        for (version, event_type) in [(1, EventType::Claimed), (2, EventType::Completed)] {
            log.push(LogEvent { id: id.clone(), ..event(version, event_type, 1) });
        }
    }
    log
}

#[track_caller]
fn reports(log: &[LogEvent], kind: Kind, words: &str) {
    let report: Report = large::check(&flows(), log, 1);
    let named = report.violations.iter().any(|one| one.kind == kind && one.text.contains(words));
    assert!(named, "no {words:?} in {:?}", report.violations);
}

#[test]
fn members_that_complete_too_early_twice_or_never() {
    let good = large::check(&flows(), &log(), 1);
    assert!(good.passed(), "{:?}", good.violations);
    assert_eq!((good.executions, good.acknowledged), (7, 7));
    let mut short = log();
    short.pop();
    reports(&short, Kind::Stuck, "has not completed");
    let mut twice = log();
    twice.push(twice[1].clone());
    reports(&twice, Kind::DoubleAccepted, "completed twice");
    let mut early = log();
    // The last of the wide flow comes before those that it stands behind.
    early[2..8].rotate_right(2);
    reports(&early, Kind::DoubleAccepted, "handed out too early");
    let mut cancelled = log();
    cancelled[1].event_type = EventType::Cancelled;
    reports(&cancelled, Kind::DoubleAccepted, "ended otherwise");
}

#[test]
fn only_leases_that_were_taken_back_count_as_interrupted() {
    let mut log = log();
    assert_eq!(large::interrupted(&log), 0);
    log.push(event(3, EventType::LeaseExpired, 1));
    assert_eq!(large::interrupted(&log), 1);
}
