//! Very large flows: every member completes exactly once, and after those that it stands behind.

use std::collections::{HashMap, HashSet};

use ff_core::contracts::EventType;

use super::{Kind, Report};
use crate::evidence::LogEvent;
use crate::large::Large;

pub fn check(flows: &[Large], log: &[LogEvent], kills: usize) -> Report {
    let executions = flows.iter().map(|large| large.nodes.len()).sum();
    let mut report = Report { kills, executions, events: log.len(), ..Report::default() };
    let mut completed: HashSet<&str> = HashSet::new();
    let mut parents: HashMap<&str, Vec<&str>> = HashMap::new();
    for large in flows {
        for (from, to) in &large.edges {
            parents.entry(&large.nodes[*to]).or_default().push(&large.nodes[*from]);
        }
    }
    for event in log {
        let id = event.id.as_str();
        let behind = parents.get(id).map_or(&[][..], Vec::as_slice);
        match event.event_type {
            EventType::Claimed if !behind.iter().all(|parent| completed.contains(parent)) => {
                report.add(Kind::DoubleAccepted, format!("{id} was handed out too early"));
            }
            EventType::Completed if !completed.insert(id) => {
                report.add(Kind::DoubleAccepted, format!("{id} completed twice"));
            }
            EventType::Completed => report.acknowledged += 1,
            kind if kind.is_finish() => {
                let word = kind.as_str();
                report.add(Kind::DoubleAccepted, format!("{id} ended otherwise: `{word}`"));
            }
            _ => {}
        }
    }
    for id in flows.iter().flat_map(|large| &large.nodes) {
        if !completed.contains(id.as_str()) {
            report.add(Kind::Stuck, format!("{id} has not completed"));
        }
    }
    report
}

/// How many leases were taken back: without any, no kill hit anybody at work.
pub fn interrupted(log: &[LogEvent]) -> usize {
    log.iter().filter(|event| event.event_type == EventType::LeaseExpired).count()
}
