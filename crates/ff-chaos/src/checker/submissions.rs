//! What was accepted is there, once, with its bytes; what was not is not.

use std::collections::{HashMap, HashSet};

use super::{Kind, Report};
use crate::evidence::Evidence;
use crate::history::{self, Entry, Op, Outcome, Phase, Work};
use crate::workload::many;

pub fn check(evidence: &Evidence, report: &mut Report) {
    let mut explained: HashSet<&str> = HashSet::new();
    let mut id_of_key: HashMap<&str, &str> = HashMap::new();
    for entry in evidence.history.iter().filter(|entry| entry.phase == Phase::Ok) {
        let (Op::Submit(work), Some(Outcome::Accepted { id })) = (&entry.op, &entry.result) else {
            continue;
        };
        explained.insert(id);
        accepted(evidence, work, id, report);
        let Some(key) = &work.key else { continue };
        let first = *id_of_key.entry(key).or_insert(id);
        if first != id {
            let text = format!("key {key} was acknowledged as {first} and as {id}");
            report.add(Kind::DoubleAccepted, text);
        }
    }
    let unresolved = history::unresolved(&evidence.history);
    for (_, op) in &unresolved {
        if let Op::Submit(work) = op {
            explained.insert(&work.id);
        }
    }
    let members = members(&evidence.history);
    explained.extend(members.keys().map(String::as_str));
    let mut keys: HashMap<&str, &str> = HashMap::new();
    for (id, execution) in &evidence.executions {
        let scheduled = execution.due.is_some();
        if scheduled && execution.payload != history::hash(many::PAYLOAD) {
            report.add(Kind::Lost, format!("{id} has another payload than its schedule"));
        }
        if !scheduled && !explained.contains(id.as_str()) {
            let text = format!("{id} exists, though nobody was told that it was accepted");
            report.add(Kind::DoubleAccepted, text);
        }
        if let Some(key) = &execution.key
            && let Some(other) = keys.insert(key, id)
        {
            report
                .add(Kind::DoubleAccepted, format!("key {key} has two executions: {other}, {id}"));
        }
    }
}

/// The payloads of all members of flows that were submitted, whether or not they were accepted.
pub(super) fn members(history: &[Entry]) -> HashMap<String, u64> {
    let planted = history.iter().filter_map(|entry| match &entry.op {
        Op::Plant(planted) if entry.phase == Phase::Invoke => Some(planted.nodes()),
        _ => None,
    });
    planted.flatten().map(|node| (node.work.id, node.work.payload)).collect()
}

fn accepted(evidence: &Evidence, work: &Work, id: &str, report: &mut Report) {
    match evidence.executions.get(id) {
        None => report.add(Kind::Lost, format!("{id} was acknowledged and is not there")),
        Some(execution) if execution.payload != work.payload => {
            report.add(Kind::Lost, format!("{id} has another payload than was acknowledged"));
        }
        Some(_) => {}
    }
    if work.key.is_none() && id != work.id {
        report.add(Kind::DoubleAccepted, format!("{} was acknowledged as {id}", work.id));
    }
}
