//! Flows: no child runs before its parents let it, what can never run is skipped, a flow ends when
//! its members have, and nothing of a cancelled flow is handed out.

use std::collections::{BTreeMap, HashMap};

use ff_core::contracts::{EdgeGroupSnapshot, EdgeGroupState, EventType, FlowStatus, OnSatisfied};
use ff_core::operations::flow::rule::{self, Tally};
use ff_core::state::PublicState;
use uuid::Uuid;

use super::{EventsById, Kind, Report};
use crate::evidence::{Evidence, FLOW, FinalFlow, LogEvent};
use crate::graph::{Node, Planted};
use crate::history::{Entry, Op, Outcome, Phase};

/// Why a member is cancelled whose siblings were enough.
const SPARED: &str = "sibling_quorum_satisfied";

pub fn check(evidence: &Evidence, events: &EventsById<'_>, report: &mut Report) {
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
            Some(last) => {
                ended(evidence, *flow, last, &nodes, &cancelled, report);
                told(events, (*flow, &nodes), last, report);
            }
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
        if node.parents.is_empty() {
            continue;
        }
        let parents = tally(node.parents.iter().map(|parent| states[*parent]));
        decided(node, last, parents, report);
        let verdict = rule::decide(node.policy, parents);
        let skipped = states[at] == Some(PublicState::Skipped);
        let impossible = verdict == EdgeGroupState::Impossible;
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
}

/// A group counts what its parents have ended in, and has decided what they say.
fn decided(node: &Node, last: &FinalFlow, parents: Tally, report: &mut Report) {
    let id = &node.work.id;
    let Some(group) = last.groups.get(id) else {
        report.add(Kind::Lost, format!("{id}: what it waits for is not there"));
        return;
    };
    let EdgeGroupSnapshot { succeeded, failed, skipped, .. } = *group;
    let counted = Tally { parents: group.parents, succeeded, failed, skipped };
    let no_more = counted.parents == parents.parents
        && counted.succeeded <= parents.succeeded
        && counted.failed <= parents.failed
        && counted.skipped <= parents.skipped;
    // Nobody asks the groups of a flow that is cancelled.
    let asked = last.status != FlowStatus::Cancelled;
    if !no_more || asked && counted != parents {
        let text = format!("{id}: its group counts {counted:?}, its parents are {parents:?}");
        report.add(Kind::Gap, text);
    }
    let verdict = rule::decide(node.policy, if asked { parents } else { counted });
    if group.state != EdgeGroupState::Cancelled && group.state != verdict {
        let text = format!("{id}: its group is {:?}, its parents say {verdict:?}", group.state);
        report.add(Kind::DoubleAccepted, text);
    }
}

/// What the flow's own event says of its end is what its members say.
fn told(
    events: &EventsById<'_>,
    (flow, nodes): (Uuid, &[Node]),
    last: &FinalFlow,
    report: &mut Report,
) {
    let counts = &last.counts;
    let (status, event_type) = match last.status {
        FlowStatus::Completed => ("completed", EventType::FlowCompleted),
        FlowStatus::Failed => ("failed", EventType::FlowFailed),
        _ => return,
    };
    let id = format!("{FLOW}{flow}/{}", event_type.as_str());
    let of = |id: &str| events.get(id).map_or(&[][..], Vec::as_slice);
    let Some(event) = of(&id).first() else {
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
    let spared = nodes.iter().flat_map(|node| of(&node.work.id));
    let spared = spared.filter(|event| event.reason.as_deref() == Some(SPARED)).count();
    let lost = [PublicState::Failed, PublicState::Cancelled, PublicState::Expired];
    let lost: u64 = lost.iter().filter_map(|state| counts.get(state)).sum();
    if status == "failed" && lost == 0 {
        report.add(Kind::DoubleAccepted, format!("flow {flow} has failed, and nobody in it"));
    }
    if status == "completed" && lost > spared as u64 {
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

/// When a member is let go or handed out, the log has told that its parents let it; and nobody is
/// spared whose sibling was not enough.
fn in_order(
    log: &[LogEvent],
    members: &HashMap<String, (Uuid, usize)>,
    graphs: &HashMap<Uuid, Vec<Node>>,
    report: &mut Report,
) {
    let mut ends: HashMap<&str, PublicState> = HashMap::new();
    for event in log {
        let Some((flow, at)) = members.get(&event.id) else { continue };
        let nodes = &graphs[flow];
        let verdict = |node: &Node| {
            let parent = |at: &usize| ends.get(nodes[*at].work.id.as_str()).copied();
            rule::decide(node.policy, tally(node.parents.iter().map(parent)))
        };
        let node = &nodes[*at];
        let goes_on = matches!(event.event_type, EventType::Unblocked | EventType::Claimed);
        if goes_on && !node.parents.is_empty() && verdict(node) != EdgeGroupState::Satisfied {
            let (word, verdict) = (event.event_type.as_str(), verdict(node));
            let text = format!("{} was {word}, its parents say {verdict:?}", event.id);
            report.add(Kind::DoubleAccepted, text);
        }
        let enough = |child: &&Node| {
            child.parents.contains(at)
                && child.policy.on_satisfied() == OnSatisfied::CancelRemaining
                && verdict(child) == EdgeGroupState::Satisfied
        };
        let spared = event.reason.as_deref() == Some(SPARED);
        if spared && !nodes.iter().any(|child| enough(&child)) {
            report.add(Kind::DoubleAccepted, format!("{} was spared without need", event.id));
        }
        if let Some(state) = event.to.filter(|_| event.event_type.is_finish()) {
            ends.insert(&event.id, state);
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
