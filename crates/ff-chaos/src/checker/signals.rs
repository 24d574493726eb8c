//! A signal that was acknowledged is recorded, and no signal is recorded twice.

use std::collections::HashSet;

use super::{Kind, Report};
use crate::evidence::Evidence;
use crate::history::{Op, Phase};

pub fn check(evidence: &Evidence, report: &mut Report) {
    for entry in evidence.history.iter().filter(|entry| entry.phase == Phase::Ok) {
        let Op::Signal { id, key, .. } = &entry.op else { continue };
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
