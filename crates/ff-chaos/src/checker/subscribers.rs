//! Each subscriber saw every event once, through all restarts.

use std::collections::{HashMap, HashSet};

use super::{Kind, Report};
use crate::evidence::{Deliveries, Evidence, LogEvent};
use crate::workload::Delivery;

pub fn check(evidence: &Evidence, report: &mut Report) {
    for subscriber in &evidence.subscribers {
        let seen = replay(subscriber, report);
        let wanted = |event: &&LogEvent| {
            subscriber.event_types.is_empty() || subscriber.event_types.contains(&event.event_type)
        };
        compare(&subscriber.name, evidence.log.iter().filter(wanted), &seen, report);
    }
}

/// What the subscriber has seen, leaving out what it saw after a place that it had not kept when
/// it was killed: it may, and must, see that again.
fn replay<'e>(subscriber: &'e Deliveries, report: &mut Report) -> Vec<&'e LogEvent> {
    let name = &subscriber.name;
    let mut seen: Vec<(&str, &LogEvent)> = Vec::new();
    let mut known: HashSet<(&str, u64)> = HashSet::new();
    for line in &subscriber.lines {
        match line {
            Delivery::Resumed { after } => {
                let kept = match after {
                    None => Some(0),
                    Some(place) => {
                        seen.iter().rposition(|(cursor, _)| cursor == place).map(|at| at + 1)
                    }
                };
                let Some(kept) = kept else {
                    report.add(Kind::Gap, format!("{name} resumed at a place it never was at"));
                    continue;
                };
                for (_, event) in seen.drain(kept..) {
                    known.remove(&(event.id.as_str(), event.version));
                }
            }
            Delivery::Event { cursor, event } => {
                if known.insert((&event.id, event.version)) {
                    seen.push((cursor, event));
                } else {
                    let (id, version) = (&event.id, event.version);
                    report.add(Kind::Gap, format!("{name} was given {id} v{version} again"));
                }
            }
        }
    }
    seen.into_iter().map(|(_, event)| event).collect()
}

fn compare<'e>(
    name: &str,
    log: impl Iterator<Item = &'e LogEvent>,
    seen: &[&LogEvent],
    report: &mut Report,
) {
    let mut given: HashMap<(&str, u64), &LogEvent> =
        seen.iter().map(|event| ((event.id.as_str(), event.version), *event)).collect();
    for event in log {
        let (id, version) = (&event.id, event.version);
        match given.remove(&(id.as_str(), version)) {
            None => report.add(Kind::Gap, format!("{name} was never given {id} v{version}")),
            Some(other) if other != event => {
                report.add(Kind::Gap, format!("{name} was given another {id} v{version}"));
            }
            Some(_) => {}
        }
    }
    for (id, version) in given.keys() {
        report.add(Kind::Gap, format!("{name} was given {id} v{version}, not in the log"));
    }
    let mut last: HashMap<&str, u64> = HashMap::new();
    for event in seen {
        let before = last.insert(&event.id, event.version).unwrap_or(0);
        if before >= event.version {
            report.add(Kind::Gap, format!("{name} was given {} out of order", event.id));
        }
    }
}
