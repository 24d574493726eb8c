//! The log is complete and tells a story that is allowed to happen.

use std::collections::HashMap;

use ff_core::contracts::EventType;

use super::{EventsById, Kind, Report};
use crate::evidence::{Evidence, FLOW, FinalExecution, LogEvent};
use crate::history::{Entry, Op, Outcome};
use crate::workload::LEASE_MS;

pub fn check(evidence: &Evidence, events: &EventsById<'_>, report: &mut Report) {
    if let Some(error) = &evidence.log_error {
        report.add(Kind::Gap, format!("the log cannot be read to its end: {error}"));
    }
    let renewals = renewals(&evidence.history);
    for (id, execution) in &evidence.executions {
        let own = events.get(id.as_str()).map_or(&[][..], Vec::as_slice);
        complete(id, execution, own, report);
        story(id, own, &renewals, report);
    }
    let of_flow = |id: &str| id.starts_with(FLOW);
    let unknown = |id: &&&str| !of_flow(id) && !evidence.executions.contains_key(**id);
    for id in events.keys().filter(unknown) {
        report.add(Kind::Gap, format!("the log speaks of {id}, which is not there"));
    }
}

/// Until when each lease stands by its last acknowledged renewal.
type Renewals<'e> = HashMap<(&'e str, u64), i64>;

fn renewals(history: &[Entry]) -> Renewals<'_> {
    let mut renewals = Renewals::new();
    for entry in history {
        if let (Op::Renew(lease), Some(Outcome::Renewed { until })) = (&entry.op, &entry.result) {
            let last = renewals.entry((&lease.id, lease.epoch)).or_default();
            *last = (*last).max(*until);
        }
    }
    renewals
}

/// One event per transition, in order, and the same ones in the execution's own history.
fn complete(id: &str, execution: &FinalExecution, own: &[&LogEvent], report: &mut Report) {
    let dense = own.iter().zip(1..).all(|(event, version)| event.version == version);
    if !dense || own.len() as u64 != execution.version {
        let versions: Vec<u64> = own.iter().map(|event| event.version).collect();
        let text = format!("{id} is at version {}, its log is {versions:?}", execution.version);
        report.add(Kind::Gap, text);
    }
    if !own.iter().copied().eq(&execution.history) {
        report.add(Kind::Gap, format!("{id}: its history is not what the log says"));
    }
    let chained = own.windows(2).all(|pair| pair[1].from == pair[0].to);
    if !chained || own.last().is_some_and(|last| last.to != Some(execution.state)) {
        report.add(Kind::Gap, format!("{id}: its states do not follow from each other"));
    }
}

#[derive(Clone, Copy)]
enum At {
    Waiting,
    /// Leased under this epoch.
    Held(u64),
    /// Its holder has put it down to wait for a signal.
    Suspended,
    Finished,
}

/// Walks through the events of one execution; whatever is not allowed was accepted wrongly.
fn story(id: &str, own: &[&LogEvent], renewals: &Renewals<'_>, report: &mut Report) {
    use EventType as E;
    let mut at = At::Waiting;
    let mut highest = 0;
    let mut stands_until = 0;
    // One signal is all that anybody waits for here.
    let mut signalled = false;
    for event in own {
        let wrong = match (event.event_type, at) {
            (kind, At::Suspended) if signalled && kind != E::Resumed => {
                Some("a signal did not wake it")
            }
            (E::TagsChanged, _) => None,
            (E::Claimed, At::Waiting) if event.epoch > highest => None,
            (E::Claimed, At::Waiting) => Some("an old epoch was granted again"),
            (E::Claimed, At::Held(_)) => Some("it was granted while somebody held it"),
            (E::Completed | E::Delayed, At::Held(epoch)) if epoch == event.epoch => None,
            (E::Failed | E::RetryScheduled, At::Held(epoch)) if epoch <= event.epoch => None,
            (E::LeaseExpired, At::Held(_)) if event.at < stands_until => {
                Some("a lease expired before its time")
            }
            (E::LeaseExpired | E::LeaseRevoked, At::Held(epoch)) if epoch <= event.epoch => None,
            (E::Completed | E::Failed | E::RetryScheduled | E::Delayed, At::Held(_)) => {
                Some("a write under a stale epoch was accepted")
            }
            (E::Suspended, At::Held(epoch)) if epoch == event.epoch => None,
            (E::Suspended, At::Held(_)) => Some("a write under a stale epoch was accepted"),
            // A wait ends once: whatever ends it, nothing else can after it.
            (E::Resumed | E::Failed, At::Suspended) => None,
            (E::Resumed, _) => Some("it was resumed, though it did not wait"),
            (E::SignalDelivered, At::Waiting | At::Held(_) | At::Suspended) => None,
            (E::Unblocked | E::Held | E::Limited, At::Waiting) => None,
            (E::Cancelled | E::Expired, At::Waiting | At::Held(_) | At::Suspended) => None,
            (E::Skipped, At::Waiting) => None,
            (E::Replayed, At::Finished) => None,
            (E::Submitted, _) if event.version == 1 => None,
            (E::Ready | E::PriorityChanged | E::Rescheduled, At::Waiting) => None,
            (kind, At::Finished) if kind.is_finish() => Some("it ended twice"),
            (_, At::Finished) => Some("something happened after its end"),
            _ => Some("a transition was accepted that is not allowed"),
        };
        if let Some(wrong) = wrong {
            let word = event.event_type.as_str();
            let text = format!("{id}: {wrong}: `{word}` at version {}", event.version);
            report.add(Kind::DoubleAccepted, text);
        }
        signalled = event.event_type == E::SignalDelivered && matches!(at, At::Suspended);
        highest = highest.max(event.epoch);
        if event.event_type == E::Claimed {
            let renewed = renewals.get(&(id, event.epoch)).copied().unwrap_or_default();
            stands_until = renewed.max(event.at + i64::from(LEASE_MS));
        }
        at = match event.event_type {
            E::Claimed => At::Held(event.epoch),
            kind if kind.is_finish() => At::Finished,
            E::Submitted | E::Ready | E::PriorityChanged | E::Rescheduled => at,
            E::SignalDelivered | E::TagsChanged => at,
            E::Suspended => At::Suspended,
            _ => At::Waiting,
        };
    }
}
