//! A signal that was acknowledged is recorded, no signal is recorded twice, and whoever repeats one
//! that was acknowledged is not refused.

use std::collections::HashSet;

use super::{Kind, Report};
use crate::evidence::Evidence;
use crate::history::{Op, Phase};

pub fn check(evidence: &Evidence, report: &mut Report) {
    let mut acknowledged = HashSet::new();
    for entry in &evidence.history {
        let Op::Signal { id, key, .. } = &entry.op else { continue };
        if entry.phase == Phase::Fail && acknowledged.contains(key) {
            report.add(Kind::Lost, format!("{id}: the repeat of signal {key} was refused"));
        }
        if entry.phase != Phase::Ok {
            continue;
        }
        acknowledged.insert(key);
        let recorded = evidence.executions.get(id).map_or(&[][..], |one| &one.signals);
        if !recorded.contains(key) {
            report.add(Kind::Lost, format!("{id}: acknowledged signal {key} is not there"));
        }
    }
    for (id, execution) in &evidence.executions {
        let mut known = HashSet::new();
        for key in execution.signals.iter().filter(|key| !known.insert(*key)) {
            report.add(Kind::DoubleAccepted, format!("{id}: signal {key} is there twice"));
        }
    }
}
