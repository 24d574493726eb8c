//! The graphs at the end: parents before children, every group decided once and rightly, and the
//! headers in step with their members.

use ff_core::contracts::{EdgeGroupState, EdgePolicy, EventType};
use ff_core::rows::{
    BacklogMemberRow, CascadeRow, EdgeGroupKey, EdgeGroupRow, EventRow, FlowState, Record,
};
use ff_core::state::PublicState;
use ff_core::types::ExecutionKey;
use uuid::Uuid;

use super::super::flows::FlowPlan;
use super::super::limits::records;
use super::super::message::{Answer, Verb};
use super::super::{Checked, broken};
use super::Evidence;

pub(super) fn check(evidence: &Evidence) -> Checked {
    for plan in &evidence.history.flows {
        if !evidence.tables.flows.contains_key(&plan.key) {
            let what = format!("flow {} was acknowledged and is not there", plan.key.id);
            return Err(broken("I1 an acknowledged submission is kept", None, what));
        }
        for child in 0..plan.members.len() {
            check_order(evidence, plan, child)?;
            check_reopened(evidence, plan, child)?;
            check_group(evidence, plan, child)?;
        }
        check_header(evidence, plan)?;
        check_cancelled(evidence, plan)?;
    }
    check_headers(evidence)?;
    let cascade = |key: &&ff_core::rows::AnyKey| key.spec == CascadeRow::SPEC;
    match evidence.tables.records.keys().find(cascade) {
        Some(left) => {
            let what = format!("everything has ended and this is left: {left:?}");
            Err(broken("I46 no stuck work", None, what))
        }
        None => Ok(()),
    }
}

fn events<'a>(evidence: &'a Evidence, key: ExecutionKey) -> &'a [&'a EventRow] {
    evidence.events.get(&key).map(Vec::as_slice).unwrap_or_default()
}

fn wanted(policy: EdgePolicy, parents: usize) -> usize {
    match policy {
        EdgePolicy::AllOf => parents,
        EdgePolicy::AnyOf { .. } => 1,
        EdgePolicy::Quorum { k, .. } => k as usize,
    }
}

/// Nobody starts before enough of its parents have completed.
fn check_order(evidence: &Evidence, plan: &FlowPlan, child: usize) -> Checked {
    let parents: Vec<usize> = plan.parents(child).collect();
    let key = plan.members[child];
    // One that was run again before it ever started is for the next check.
    let starts = [EventType::Claimed, EventType::Replayed];
    let first = events(evidence, key).iter().find(|event| starts.contains(&event.event_type));
    let first = first.filter(|event| event.event_type == EventType::Claimed);
    let (Some(first), false) = (first, parents.is_empty()) else { return Ok(()) };
    let completed = |parent: &&usize| {
        let done =
            |event: &&EventRow| event.event_type == EventType::Completed && event.seq < first.seq;
        events(evidence, plan.members[**parent]).iter().copied().any(|event| done(&event))
    };
    let done = parents.iter().filter(completed).count();
    let needed = wanted(plan.policies[child], parents.len());
    if done < needed {
        let what = format!("it was handed out after {done} of {needed} parents");
        return Err(broken("I20, I25 parents before children", key, what));
    }
    Ok(())
}

/// A member that was last let go by its parents, or run again behind them, found enough of them
/// completed at that moment, whatever has become of them since.
fn check_reopened(evidence: &Evidence, plan: &FlowPlan, child: usize) -> Checked {
    let parents: Vec<usize> = plan.parents(child).collect();
    let key = plan.members[child];
    let log = events(evidence, key);
    let last = log.iter().rposition(|event| event.event_type == EventType::Claimed);
    let opened = log[..last.unwrap_or(0)].iter().enumerate().rev().find(|(at, event)| {
        let moved = log[..*at].iter().rfind(|event| event.from != event.to);
        let waited = moved.map(|event| event.event_type);
        match event.event_type {
            EventType::Unblocked => waited != Some(EventType::WaitingChildren),
            EventType::Replayed => true,
            _ => false,
        }
    });
    let Some((_, opened)) = opened else { return Ok(()) };
    // Whoever was chosen runs whatever its parents have said.
    if opened.event_type == EventType::Replayed && !behind_another(opened, key) {
        return Ok(());
    }
    let completed = |parent: &&usize| {
        let before = |event: &&&EventRow| event.seq < opened.seq;
        let mut known = events(evidence, plan.members[**parent]).iter().filter(before);
        known.next_back().is_some_and(|event| event.to == Some(PublicState::Completed))
    };
    let done = parents.iter().filter(completed).count();
    let needed = wanted(plan.policies[child], parents.len());
    if done < needed {
        let what = format!("{done} of {needed} parents were done at{}", super::line(opened));
        return Err(broken("I20, I25 parents before children", key, what));
    }
    Ok(())
}

/// Whether it was run again because something that it depends on was.
fn behind_another(event: &EventRow, key: ExecutionKey) -> bool {
    let details = super::log::details(event);
    let from = details["from"].as_str().and_then(|id| id.parse::<Uuid>().ok());
    details["branch"] == "flow" && from.is_some_and(|from| from != key.id)
}

/// A group counts what its parents did, decides once, and its member did as it says.
fn check_group(evidence: &Evidence, plan: &FlowPlan, child: usize) -> Checked {
    let parents: Vec<usize> = plan.parents(child).collect();
    if parents.is_empty() {
        return Ok(());
    }
    let key = plan.members[child];
    let group = EdgeGroupKey { flow: plan.key, downstream: key.id };
    let row = evidence.tables.records.get(&EdgeGroupRow::erase_key(&group));
    let Some(row) = row.and_then(|row| row.decode::<EdgeGroupRow>().ok().flatten()) else {
        return Err(broken("I21 every child has a group", key, "it is not there"));
    };
    let state = |at: &usize| evidence.tables.executions[&plan.members[*at]].public_state;
    let count = |wanted: &[PublicState]| {
        parents.iter().filter(|parent| wanted.contains(&state(parent))).count() as i64
    };
    let recount = (
        count(&[PublicState::Completed]),
        count(&[PublicState::Failed, PublicState::Cancelled, PublicState::Expired]),
        count(&[PublicState::Skipped]),
    );
    // In a cancelled flow nobody is told of anything any more.
    let cancelled = evidence.tables.flows[&plan.key].state == FlowState::Cancelled;
    let counted = (row.succeeded, row.failed, row.skipped);
    if !cancelled && row.reset_at.is_none() && counted != recount {
        let what = format!("it counted {counted:?}, its parents have ended as {recount:?}");
        return Err(broken("I21 groups count their parents", key, what));
    }
    let log = events(evidence, key);
    let times = |kind| log.iter().filter(|event| event.event_type == kind).count();
    let decided = times(EventType::Unblocked) + times(EventType::Skipped);
    if decided > 1 + times(EventType::Replayed) + times(EventType::WaitingChildren) {
        return Err(broken("I21, I22 a group decides once", key, format!("{decided} times")));
    }
    let own = evidence.tables.executions[&key].public_state;
    let right = match row.state.0 {
        EdgeGroupState::Pending => cancelled,
        EdgeGroupState::Satisfied => own != PublicState::Skipped,
        EdgeGroupState::Impossible => own == PublicState::Skipped || cancelled,
        EdgeGroupState::Cancelled => matches!(own, PublicState::Cancelled | PublicState::Expired),
    };
    // A member that was replayed may have ended otherwise than its group once said. In a flow that
    // was, a group may have lost the parents that its member had when it ran.
    let replayed =
        times(EventType::Replayed) > 0 || happened(evidence, plan, EventType::FlowReplayed);
    if !right && !replayed {
        let what = format!("its group is {:?} and it is {own:?}", row.state.0);
        return Err(broken("I22 skipped exactly if impossible", key, what));
    }
    Ok(())
}

/// The flow has ended, as its members have, and has counted them.
fn check_header(evidence: &Evidence, plan: &FlowPlan) -> Checked {
    let flow = &evidence.tables.flows[&plan.key];
    let state = |key: &&ExecutionKey| evidence.tables.executions[*key].public_state;
    let count =
        |wanted: PublicState| plan.members.iter().filter(|key| state(key) == wanted).count() as u64;
    let ended = flow.ended;
    let counted = [
        ended.completed,
        ended.failed,
        ended.cancelled + ended.spared,
        ended.expired,
        ended.skipped,
    ];
    let recount = [
        count(PublicState::Completed),
        count(PublicState::Failed),
        count(PublicState::Cancelled),
        count(PublicState::Expired),
        count(PublicState::Skipped),
    ];
    if counted != recount {
        let what = format!("flow {} counted {counted:?} of {recount:?}", plan.key.id);
        return Err(broken("I23 flows count their members", None, what));
    }
    let failed = ended.failed + ended.cancelled + ended.expired > 0;
    let right = match flow.state {
        FlowState::Open => false,
        FlowState::Completed => !failed,
        FlowState::Failed => failed,
        FlowState::Cancelled => true,
    };
    if !right {
        let what = format!("flow {} is {:?} after {counted:?}", plan.key.id, flow.state);
        return Err(broken("I23 flows end with their members", None, what));
    }
    Ok(())
}

fn happened(evidence: &Evidence, plan: &FlowPlan, kind: EventType) -> bool {
    let mut log = evidence.tables.events.values();
    log.any(|event| event.event_type == kind && event.flow_id == Some(plan.key.id))
}

/// Whom a cancelled header names has been cancelled with it, and its backlog does not last.
fn check_headers(evidence: &Evidence) -> Checked {
    for (op, answer) in evidence.history.answers() {
        let (Verb::CancelHeader(flow), Answer::Cancelled(members)) = (&op.verb, answer) else {
            continue;
        };
        let state = |key: &&ExecutionKey| evidence.tables.executions[*key].public_state;
        let other = members.iter().find(|key| state(key) != PublicState::Cancelled);
        if let Some(key) = other {
            let what = format!("it was cancelled with flow {}", flow.id);
            return Err(broken("I24 members are cancelled with their header", *key, what));
        }
    }
    let left: Vec<BacklogMemberRow> = records(evidence.tables);
    match left.first() {
        Some(left) => {
            let what = format!("everything has ended and this is left: {left:?}");
            Err(broken("I46 no stuck work", None, what))
        }
        None => Ok(()),
    }
}

/// After the cancellation no member is handed out.
fn check_cancelled(evidence: &Evidence, plan: &FlowPlan) -> Checked {
    let cancelled = evidence.tables.events.values().find(|event| {
        event.event_type == EventType::FlowCancelRequested && event.flow_id == Some(plan.key.id)
    });
    let Some(cancelled) = cancelled else { return Ok(()) };
    for key in &plan.members {
        let late = events(evidence, *key)
            .iter()
            .find(|event| event.event_type == EventType::Claimed && event.seq > cancelled.seq);
        if let Some(late) = late {
            let what = format!("its flow was cancelled before{}", super::line(late));
            return Err(broken("I24 nothing of a cancelled flow is handed out", *key, what));
        }
    }
    Ok(())
}
