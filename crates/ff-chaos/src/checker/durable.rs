//! Steps and frames: what was acknowledged is there, once, in its order and for the next holder.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use super::{Kind, Report};
use crate::evidence::{Evidence, FinalExecution, Spoken};
use crate::history::{Entry, Lease, Op, Outcome, Phase};

pub fn check(evidence: &Evidence, report: &mut Report) {
    steps(evidence, report);
    frames(evidence, report);
}

/// A step that stands: its value, and the first lease that was told of it.
struct Known<'e> {
    value: u64,
    epoch: u64,
    name: &'e str,
}

fn steps(evidence: &Evidence, report: &mut Report) {
    let mut known: HashMap<&str, Vec<Known<'_>>> = HashMap::new();
    for (lease, name, value) in told(&evidence.history) {
        let of = known.entry(&lease.id).or_default();
        match of.iter_mut().find(|step| step.name == name) {
            Some(step) => {
                step.epoch = step.epoch.min(lease.epoch);
                if step.value != value {
                    let text = format!("{}: step {name:?} was told in two ways", lease.id);
                    report.add(Kind::DoubleAccepted, text);
                }
            }
            None => of.push(Known { value, epoch: lease.epoch, name }),
        }
    }
    for (id, steps) in &known {
        let last = evidence.executions.get(*id).map_or(&[][..], |one| &one.steps);
        for step in steps {
            if !last.iter().any(|(name, value)| name == step.name && *value == step.value) {
                let text = format!("{id}: acknowledged step {:?} is not there", step.name);
                report.add(Kind::Lost, text);
            }
        }
    }
    for (id, execution) in &evidence.executions {
        let names: HashSet<&String> = execution.steps.iter().map(|(name, _)| name).collect();
        if names.len() < execution.steps.len() {
            report.add(Kind::DoubleAccepted, format!("{id}: a step is there twice"));
        }
    }
    handed_on(evidence, &known, report);
}

/// Whoever holds a later lease was told of every step that was acknowledged under an earlier one.
fn handed_on(evidence: &Evidence, known: &HashMap<&str, Vec<Known<'_>>>, report: &mut Report) {
    for entry in &evidence.history {
        let Some(Outcome::Granted { grants }) = &entry.result else { continue };
        for grant in grants {
            let id = grant.lease.id.as_str();
            let earlier = known.get(id).into_iter().flatten();
            for step in earlier.filter(|step| step.epoch < grant.lease.epoch) {
                if grant.steps.get(step.name) != Some(&step.value) {
                    let (name, epoch) = (step.name, grant.lease.epoch);
                    let text = format!("{id}: epoch {epoch} was not told of step {name:?}");
                    report.add(Kind::Lost, text);
                }
            }
        }
    }
}

/// Every step that anybody was told of, with the lease under which it was.
fn told(history: &[Entry]) -> Vec<(&Lease, &str, u64)> {
    let mut all = Vec::new();
    for entry in history.iter().filter(|entry| entry.phase == Phase::Ok) {
        match (&entry.op, &entry.result) {
            (Op::Step { lease, name, .. }, Some(Outcome::Recorded { value })) => {
                all.push((lease, name.as_str(), *value));
            }
            (Op::Claim { .. }, Some(Outcome::Granted { grants })) => {
                for grant in grants {
                    let steps = grant.steps.iter();
                    all.extend(steps.map(|(name, value)| (&grant.lease, name.as_str(), *value)));
                }
            }
            _ => {}
        }
    }
    all
}

/// One call to append, whatever became of it.
struct Append<'e> {
    id: &'e str,
    frames: u32,
    /// Where it was told that its frames are.
    place: Option<(u32, u64, u64)>,
}

fn frames(evidence: &Evidence, report: &mut Report) {
    let mut appends: BTreeMap<Uuid, Append<'_>> = BTreeMap::new();
    for entry in &evidence.history {
        let Op::Append { lease, append_id, frames } = &entry.op else { continue };
        let new = Append { id: &lease.id, frames: *frames, place: None };
        let append = appends.entry(*append_id).or_insert(new);
        let Some(Outcome::Appended { attempt, first, last }) = entry.result else { continue };
        let place = (attempt, first, last);
        if append.place.is_some_and(|before| before != place) {
            let text = format!("{}: the repeat of {append_id} was told another place", lease.id);
            report.add(Kind::DoubleAccepted, text);
        }
        append.place = Some(place);
    }
    for (append_id, append) in &appends {
        let Some((attempt, first, last)) = append.place else { continue };
        let last_state = evidence.executions.get(append.id);
        let there = last_state.and_then(|one| one.frames.get(&attempt));
        let there = there.map_or(&[][..], Vec::as_slice);
        let whole = last + 1 - first == u64::from(append.frames);
        let expected = (first..).zip(0..append.frames);
        let mut expected =
            expected.map(|(sequence, at)| Spoken { sequence, append_id: *append_id, at });
        if !whole || !expected.all(|frame| there.contains(&frame)) {
            let text = format!("{}: acknowledged frames of {append_id} are not there", append.id);
            report.add(Kind::Lost, text);
        }
    }
    for (id, execution) in &evidence.executions {
        streams(id, execution, &appends, report);
    }
}

/// Each stream is numbered without holes, and each call is there whole, once, or not at all.
fn streams(
    id: &str,
    execution: &FinalExecution,
    appends: &BTreeMap<Uuid, Append<'_>>,
    report: &mut Report,
) {
    let mut calls = HashSet::new();
    for (attempt, said) in &execution.frames {
        if !said.iter().zip(1..).all(|(frame, sequence)| frame.sequence == sequence) {
            report.add(Kind::Gap, format!("{id}: the frames of attempt {attempt} have holes"));
        }
        for call in said.chunk_by(|one, next| one.append_id == next.append_id) {
            let append_id = call[0].append_id;
            let frames = appends.get(&append_id).filter(|append| append.id == id);
            let frames = frames.map_or(0, |append| append.frames);
            if !call.iter().map(|frame| frame.at).eq(0..frames) || !calls.insert(append_id) {
                let text = format!("{id}: the frames of {append_id} are there in part or twice");
                report.add(Kind::DoubleAccepted, text);
            }
        }
    }
}
