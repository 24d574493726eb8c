//! Compares what callers were told with what the log and the tables say in the end.
//!
//! Every execution counts its transitions, and every lease has an epoch that only grows, so all
//! checks are sorts and linear walks; no search for an order of events is needed.

mod answers;
mod bulk;
mod flows;
mod log;
mod tables;
mod waits;
mod work;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ff_core::rows::EventRow;
use ff_core::store::memory::Tables;
use ff_core::types::{ExecutionKey, TimestampMs};

use super::history::History;
use super::message::{Answer, Verb};
use super::{Checked, broken};

/// What the checks share.
struct Evidence<'a> {
    history: &'a History,
    tables: &'a Tables,
    /// The events of each execution, in the order of the log.
    events: BTreeMap<ExecutionKey, Vec<&'a EventRow>>,
    /// The last moment until which each lease was promised or committed.
    leases: BTreeMap<(ExecutionKey, u64), TimestampMs>,
}

pub(super) fn check(history: &History, tables: &Tables) -> Checked {
    let mut events: BTreeMap<ExecutionKey, Vec<&EventRow>> = BTreeMap::new();
    for (expected, event) in (1..).zip(tables.events.values()) {
        if event.seq != expected {
            let what = format!("place {expected} of the log holds number {}", event.seq);
            return Err(broken("I32 the log is dense", event.execution, what));
        }
        if let Some(key) = event.execution {
            events.entry(key).or_default().push(event);
        }
    }
    let evidence = Evidence { history, tables, events, leases: leases(history) };
    for key in history.plans.keys() {
        let events = evidence.events.get(key).map(Vec::as_slice).unwrap_or_default();
        log::check(&evidence, *key, events)?;
    }
    answers::check(&evidence)?;
    waits::check(&evidence)?;
    work::check(&evidence)?;
    bulk::check(&evidence)?;
    tables::check(&evidence)?;
    flows::check(&evidence)
}

fn leases(history: &History) -> BTreeMap<(ExecutionKey, u64), TimestampMs> {
    let mut leases = BTreeMap::new();
    let mut note = |key, epoch, until: TimestampMs| {
        let known = leases.entry((key, epoch)).or_insert(until);
        *known = until.max(*known);
    };
    for (op, answer) in history.answers() {
        match (answer, &op.verb) {
            (Answer::Granted(granted), _) => {
                for lease in granted {
                    note(lease.handle.key(), lease.handle.lease_epoch().0, lease.expires_at);
                }
            }
            (
                Answer::Recorded { until, .. }
                | Answer::Appended { until, .. }
                | Answer::Slept { until: Some(until), .. },
                Verb::Record(handle, ..) | Verb::Append(handle, _) | Verb::Sleep(handle, _),
            ) => note(handle.key(), handle.lease_epoch().0, *until),
            (Answer::Renewed(outcomes), Verb::Renew(handles)) => {
                for (handle, until) in handles.iter().zip(outcomes) {
                    if let Some(until) = until {
                        note(handle.key(), handle.lease_epoch().0, *until);
                    }
                }
            }
            _ => {}
        }
    }
    leases
}

/// An event in a line, for people.
pub(super) fn line(event: &EventRow) -> String {
    let state = |state: Option<ff_core::state::PublicState>| state.map_or("-", |s| s.as_str());
    let mut line = format!(
        "\n  #{} v{} at {}: {} {} -> {}, attempt {}, epoch {}",
        event.seq,
        event.version,
        event.at.0,
        event.event_type.as_str(),
        state(event.from),
        state(event.to),
        event.attempt_index,
        event.lease_epoch
    );
    for (name, value) in [("by", &event.by), ("details", &event.details)] {
        if let Some(value) = value {
            let _ = write!(line, ", {name} {value}");
        }
    }
    line
}
