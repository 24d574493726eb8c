//! Flows: no child runs before its parents let it, what can never run is skipped, a flow ends when
//! its members have, and nothing of a cancelled flow is handed out.

use std::collections::{BTreeMap, HashMap};

use ff_core::contracts::{EdgeGroupState, EventType, FlowStatus};
use ff_core::operations::flow::rule::{self, Tally};
use ff_core::state::PublicState;
use uuid::Uuid;

use super::{Kind, Report};
use crate::evidence::{Evidence, FLOW, FinalFlow, LogEvent};
use crate::graph::{Node, Planted};
use crate::history::{Entry, Op, Outcome, Phase};

/// Why a member is cancelled whose siblings were enough.
const SPARED: &str = "sibling_quorum_satisfied";

pub fn check(evidence: &Evidence, report: &mut Report) {
    let mut accepted: HashMap<Uuid, bool> = HashMap::new();
    let mut graphs: BTreeMap<Uuid, Planted> = BTreeMap::new();
    for entry in &evidence.history {
        if let Op::Plant(planted) = &entry.op {
            *accepted.entry(planted.flow).or_default() |= entry.phase == Phase::Ok;
            graphs.entry(planted.flow).or_insert_with(|| planted.clone());
        }
    }
    let cancelled = cancelled(&evidence.history);
    let mut members: HashMap<String, (Uuid, usize)> = HashMap::new();
    let mut known: HashMap<Uuid, Vec<Node>> = HashMap::new();
    for (flow, planted) in &graphs {
        let nodes = planted.nodes();
        match evidence.flows.get(flow) {
            Some(last) => ended(evidence, *flow, last, &nodes, &cancelled, report),
            None if accepted[flow] => {
                report.add(Kind::Lost, format!("flow {flow} was acknowledged and is not there"));
            }
            None => {}
        }
        for (at, node) in nodes.iter().enumerate() {
            members.insert(node.work.id.clone(), (*flow, at));
        }
        known.insert(*flow, nodes);
    }
    in_order(&evidence.log, &members, &known, report);
    never_again(&evidence.history, &members, report);
}

/// The flows whose cancellation was acknowledged or may have happened.
fn cancelled(history: &[Entry]) -> HashMap<Uuid, bool> {
    let mut cancelled = HashMap::new();
    for entry in history {
        if let Op::CancelFlow { flow } = &entry.op {
            *cancelled.entry(*flow).or_default() |= entry.phase == Phase::Ok;
        }
    }
    cancelled
}

/// A flow as it stands at the end, against what its members say.
fn ended(
    evidence: &Evidence,
    flow: Uuid,
    last: &FinalFlow,
    nodes: &[Node],
    cancelled: &HashMap<Uuid, bool>,
    report: &mut Report,
) {
    let states: Vec<Option<PublicState>> = nodes
        .iter()
        .map(|node| evidence.executions.get(&node.work.id).map(|one| one.state))
        .collect();
    let mut counts: BTreeMap<PublicState, u64> = BTreeMap::new();
    for (node, state) in nodes.iter().zip(&states) {
        match state {
            Some(state) => *counts.entry(*state).or_default() += 1,
            None => report.add(Kind::Lost, format!("{} of flow {flow} is gone", node.work.id)),
        }
    }
    if counts != last.counts {
        let text = format!("flow {flow} counts {:?}, its members are {counts:?}", last.counts);
        report.add(Kind::Gap, text);
    }
    for (at, node) in nodes.iter().enumerate() {
        let parents = node.parents.iter().map(|parent| states[*parent]);
        let verdict = rule::decide(node.policy, tally(parents));
        let skipped = states[at] == Some(PublicState::Skipped);
        let impossible = !node.parents.is_empty() && verdict == EdgeGroupState::Impossible;
        if skipped != impossible && (skipped || states[at] == Some(PublicState::Completed)) {
            let text = format!("{}: {:?}, its parents say {verdict:?}", node.work.id, states[at]);
            report.add(Kind::DoubleAccepted, text);
        }
    }
    let all_over = states.iter().flatten().all(|state| state.is_finished());
    let over =
        matches!(last.status, FlowStatus::Completed | FlowStatus::Failed | FlowStatus::Cancelled);
    if all_over && !over {
        report.add(Kind::Stuck, format!("all members have ended, flow {flow} has not"));
    }
    if over && !all_over {
        report.add(Kind::Stuck, format!("flow {flow} has ended, not all its members have"));
    }
    if last.status == FlowStatus::Cancelled && !cancelled.contains_key(&flow) {
        report.add(Kind::DoubleAccepted, format!("flow {flow} is cancelled, by nobody"));
    }
    told(&evidence.log, (flow, nodes), last, &counts, report);
}

/// What the flow's own event says of its end is what its members say.
fn told(
    log: &[LogEvent],
    (flow, nodes): (Uuid, &[Node]),
    last: &FinalFlow,
    counts: &BTreeMap<PublicState, u64>,
    report: &mut Report,
) {
    let (status, event_type) = match last.status {
        FlowStatus::Completed => ("completed", EventType::FlowCompleted),
        FlowStatus::Failed => ("failed", EventType::FlowFailed),
        _ => return,
    };
    let id = format!("{FLOW}{flow}/{}", event_type.as_str());
    let Some(event) = log.iter().find(|event| event.id == id) else {
        report.add(Kind::Gap, format!("the log does not say that flow {flow} has {status}"));
        return;
    };
    let endings = event.endings.clone().unwrap_or_default();
    for (word, state) in [
        ("completed", PublicState::Completed),
        ("failed", PublicState::Failed),
        ("cancelled", PublicState::Cancelled),
        ("expired", PublicState::Expired),
        ("skipped", PublicState::Skipped),
    ] {
        let (told, seen) = (endings.get(word), counts.get(&state));
        if told.copied().unwrap_or(0) != seen.copied().unwrap_or(0) {
            let text = format!("flow {flow} told {told:?} {word}, its members say {seen:?}");
            report.add(Kind::Gap, text);
        }
    }
    let spared = |event: &&LogEvent| {
        event.reason.as_deref() == Some(SPARED) && nodes.iter().any(|node| node.work.id == event.id)
    };
    let lost = [PublicState::Failed, PublicState::Cancelled, PublicState::Expired];
    let lost: u64 = lost.iter().filter_map(|state| counts.get(state)).sum();
    if status == "failed" && lost == 0 {
        report.add(Kind::DoubleAccepted, format!("flow {flow} has failed, and nobody in it"));
    }
    if status == "completed" && lost > log.iter().filter(spared).count() as u64 {
        report.add(Kind::Lost, format!("flow {flow} has completed, and {lost} in it have not"));
    }
}

fn tally(parents: impl Iterator<Item = Option<PublicState>>) -> Tally {
    let mut tally = Tally::default();
    for state in parents {
        tally.parents += 1;
        match state {
            Some(PublicState::Completed) => tally.succeeded += 1,
            Some(PublicState::Skipped) => tally.skipped += 1,
            Some(state) if state.is_finished() => tally.failed += 1,
            _ => {}
        }
    }
    tally
}

/// When a member is handed out, the log has told that its parents let it.
fn in_order(
    log: &[LogEvent],
    members: &HashMap<String, (Uuid, usize)>,
    graphs: &HashMap<Uuid, Vec<Node>>,
    report: &mut Report,
) {
    let mut ends: HashMap<&str, PublicState> = HashMap::new();
    for event in log {
        let Some((flow, at)) = members.get(&event.id) else { continue };
        if let Some(state) = event.to.filter(|_| event.event_type.is_finish()) {
            ends.insert(&event.id, state);
        }
        let nodes = &graphs[flow];
        let node = &nodes[*at];
        if event.event_type != EventType::Claimed || node.parents.is_empty() {
            continue;
        }
        let parent = |at: &usize| ends.get(nodes[*at].work.id.as_str()).copied();
        let verdict = rule::decide(node.policy, tally(node.parents.iter().map(parent)));
        if verdict != EdgeGroupState::Satisfied {
            let text = format!("{} was handed out, its parents say {verdict:?}", event.id);
            report.add(Kind::DoubleAccepted, text);
        }
    }
}

/// A claim that was made after a cancellation had been acknowledged brings nothing of that flow.
fn never_again(history: &[Entry], members: &HashMap<String, (Uuid, usize)>, report: &mut Report) {
    let mut over: HashMap<Uuid, usize> = HashMap::new();
    let mut asked: HashMap<&str, usize> = HashMap::new();
    for (line, entry) in history.iter().enumerate() {
        match (&entry.op, entry.phase) {
            (Op::CancelFlow { flow }, Phase::Ok) => {
                over.entry(*flow).or_insert(line);
            }
            (Op::Claim { .. }, Phase::Invoke) => {
                asked.insert(&entry.op_id, line);
            }
            (Op::Claim { .. }, Phase::Ok) => {
                let Some(Outcome::Granted { grants }) = &entry.result else { continue };
                let asked = asked.get(entry.op_id.as_str()).copied().unwrap_or(line);
                for grant in grants {
                    let flow = members.get(&grant.lease.id).map(|(flow, _)| flow);
                    if flow.and_then(|flow| over.get(flow)).is_some_and(|over| *over < asked) {
                        let text = format!("{} was handed out, its flow is over", grant.lease.id);
                        report.add(Kind::DoubleAccepted, text);
                    }
                }
            }
            _ => {}
        }
    }
}
