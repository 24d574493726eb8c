//! Bulk operations: each ends, comes to everything that was there when it was started, to each
//! once, and counts right.

use std::collections::{HashMap, HashSet};

use super::{Kind, Report};
use crate::evidence::{Evidence, FinalSweep};
use crate::history::{Entry, Op, Outcome, Phase};

pub fn check(evidence: &Evidence, report: &mut Report) {
    let known = known(&evidence.history);
    let asked = asked(&evidence.history);
    let mut changed: HashMap<&str, Vec<&str>> = HashMap::new();
    for event in &evidence.log {
        let Some(mark) = event.reason.as_deref() else { continue };
        if evidence.sweeps.contains_key(mark) {
            changed.entry(mark).or_default().push(&event.id);
        }
    }
    for (mark, (_, accepted)) in &asked {
        if *accepted && !evidence.sweeps.contains_key(*mark) {
            report.add(Kind::Lost, format!("sweep {mark} was acknowledged and is not there"));
        }
    }
    for (mark, sweep) in &evidence.sweeps {
        let Some((line, _)) = asked.get(mark.as_str()) else {
            report.add(Kind::DoubleAccepted, format!("sweep {mark} was started by nobody"));
            continue;
        };
        let own = changed.remove(mark.as_str()).unwrap_or_default();
        counted(mark, sweep, &own, report);
        let before = |id: &&str| known.get(*id).is_some_and(|known| known < line);
        let must: HashSet<&str> = (evidence.executions.iter())
            .filter(|(_, execution)| {
                let from = execution.created_at >= sweep.created_from;
                execution.lane == sweep.lane && from
            })
            .map(|(id, _)| id.as_str())
            .filter(before)
            .collect();
        reached(evidence, (mark, sweep), &must, &own, report);
    }
}

/// Where in the history each execution is first known to be there.
fn known(history: &[Entry]) -> HashMap<String, usize> {
    let mut known = HashMap::new();
    for (line, entry) in history.iter().enumerate().filter(|(_, entry)| entry.phase == Phase::Ok) {
        match (&entry.op, &entry.result) {
            (Op::Submit(_), Some(Outcome::Accepted { id })) => {
                known.entry(id.clone()).or_insert(line);
            }
            (Op::Plant(planted), _) => {
                for node in planted.nodes() {
                    known.entry(node.work.id).or_insert(line);
                }
            }
            _ => {}
        }
    }
    known
}

/// Where in the history each sweep was asked for, and whether that was acknowledged.
fn asked(history: &[Entry]) -> HashMap<&str, (usize, bool)> {
    let mut asked: HashMap<&str, (usize, bool)> = HashMap::new();
    for (line, entry) in history.iter().enumerate() {
        if let Op::Sweep(sweep) = &entry.op {
            let (_, accepted) = asked.entry(&sweep.mark).or_insert((line, false));
            *accepted |= entry.phase == Phase::Ok;
        }
    }
    asked
}

fn counted(mark: &str, sweep: &FinalSweep, own: &[&str], report: &mut Report) {
    if !sweep.finished {
        report.add(Kind::Stuck, format!("sweep {mark} has come to {} only", sweep.done));
    }
    let each: HashSet<&str> = own.iter().copied().collect();
    if each.len() < own.len() {
        report.add(Kind::DoubleAccepted, format!("sweep {mark} came to something twice"));
    }
    if sweep.changed != own.len() as u64 {
        let (told, seen) = (sweep.changed, own.len());
        report.add(Kind::Gap, format!("sweep {mark} tells of {told} changes, there are {seen}"));
    }
    // A mark is on nothing before its sweep comes, so there is nothing to pass over.
    if !sweep.cancels && sweep.done != sweep.changed {
        let (done, changed) = (sweep.done, sweep.changed);
        let text = format!("sweep {mark} came to {done} and changed {changed} of them");
        report.add(Kind::DoubleAccepted, text);
    }
    if sweep.finished && sweep.done < sweep.matched {
        let (done, matched) = (sweep.done, sweep.matched);
        report.add(Kind::Lost, format!("sweep {mark} came to {done} of {matched}"));
    }
}

fn reached(
    evidence: &Evidence,
    (mark, sweep): (&str, &FinalSweep),
    must: &HashSet<&str>,
    own: &[&str],
    report: &mut Report,
) {
    let each: HashSet<&str> = own.iter().copied().collect();
    // What had ended is not cancelled, so only the count tells that it was come to.
    let missed = match sweep.cancels {
        true => (must.len() as u64).saturating_sub(sweep.done),
        false => must.difference(&each).count() as u64,
    };
    if missed > 0 {
        report.add(Kind::Lost, format!("sweep {mark} missed {missed} of {}", must.len()));
    }
    for id in each {
        let named = evidence.executions.get(id).is_some_and(|execution| {
            let created = sweep.created_from..=sweep.created_at;
            execution.lane == sweep.lane && created.contains(&execution.created_at)
        });
        if !named {
            report.add(Kind::DoubleAccepted, format!("sweep {mark} came to {id}, not its own"));
        }
    }
}
