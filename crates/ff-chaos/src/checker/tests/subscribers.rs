//! The same for what subscribers were given.

use ff_core::contracts::EventType;

use super::{delivery, event, good, reports};
use crate::checker::{Kind, check};
use crate::workload::Delivery;

#[test]
fn subscribers_that_missed_or_repeated_something() {
    let mut missed = good();
    missed.subscribers[0].lines.remove(2);
    reports(&missed, Kind::Gap, "never given x v2");
    let mut repeated = good();
    repeated.subscribers[0].lines.push(delivery(&event(3, EventType::Completed, 1)));
    reports(&repeated, Kind::Gap, "given x v3 again");
    let mut invented = good();
    invented.subscribers[0].lines.push(delivery(&event(4, EventType::Claimed, 2)));
    reports(&invented, Kind::Gap, "not in the log");
    let mut other = good();
    other.subscribers[0].lines[3] = delivery(&event(3, EventType::Failed, 1));
    reports(&other, Kind::Gap, "another x v3");
    let mut disordered = good();
    disordered.subscribers[0].lines.swap(1, 2);
    reports(&disordered, Kind::Gap, "out of order");
    let mut lost_place = good();
    lost_place.subscribers[0].lines.push(Delivery::Resumed { after: Some("c9".into()) });
    reports(&lost_place, Kind::Gap, "a place it never was at");
}

#[test]
fn a_subscriber_sees_again_what_it_had_not_kept_and_only_that() {
    let resumed = || Delivery::Resumed { after: Some("c2".into()) };
    let mut evidence = good();
    evidence.subscribers[0].lines.push(resumed());
    reports(&evidence, Kind::Gap, "never given x v3");
    evidence.subscribers[0].lines.push(delivery(&event(3, EventType::Completed, 1)));
    assert_eq!(check(&evidence, 1).violations, []);
    evidence.subscribers[0].lines.push(resumed());
    evidence.subscribers[0].lines.push(delivery(&event(2, EventType::Claimed, 1)));
    reports(&evidence, Kind::Gap, "given x v2 again");
}

#[test]
fn a_filter_narrows_what_a_subscriber_must_see() {
    let mut evidence = good();
    evidence.subscribers[0].event_types = vec![EventType::Completed];
    evidence.subscribers[0].lines.drain(1..3);
    assert_eq!(check(&evidence, 1).violations, []);
}
