//! Suspensions and signals: no wake is lost, every wait ends once, every signal counts once, and no
//! token of a retired key is taken.

use std::collections::{BTreeMap, BTreeSet};

use ff_core::contracts::{EventType, SignalTarget};
use ff_core::rows::{EventRow, SignalCountRow, SignalRow, SuspensionRow, WaitpointRow};
use ff_core::types::{ExecutionKey, SignalId};
use serde_json::Value;

use super::super::message::{Answer, Verb};
use super::super::waits::GO;
use super::super::{Checked, broken};
use super::{Evidence, line};

pub(super) fn check(evidence: &Evidence) -> Checked {
    for (key, events) in &evidence.events {
        check_log(*key, events)?;
    }
    check_answers(evidence)?;
    check_tokens(evidence)?;
    check_tables(evidence)
}

/// What the log says of one execution's waits.
#[derive(Default)]
struct Waits {
    /// The waitpoints of the suspension that is open.
    open: Option<BTreeSet<String>>,
    timeout_at: Option<i64>,
    /// Waitpoints that somebody has said go to before anybody waited.
    early: BTreeSet<String>,
    signals: BTreeSet<String>,
    /// The condition is met, and the next event must say so.
    met: bool,
}

fn check_log(key: ExecutionKey, events: &[&EventRow]) -> Checked {
    let mut waits = Waits::default();
    for event in events {
        let details: Value = event
            .details
            .as_deref()
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default();
        let found = waits.take(event, &details);
        found
            .map_err(|(invariant, what)| broken(invariant, key, what.to_owned() + &line(event)))?;
    }
    Ok(())
}

type Found = Result<(), (&'static str, &'static str)>;

const LOST: &str = "I30 no wake is lost";
const ONE_END: &str = "I29 a wait ends once";

impl Waits {
    fn take(&mut self, event: &EventRow, details: &Value) -> Found {
        if std::mem::take(&mut self.met) && event.event_type != EventType::Resumed {
            return Err((LOST, "the condition was met and it was not resumed"));
        }
        let text = |name: &str| details[name].as_str().unwrap_or_default().to_owned();
        match event.event_type {
            EventType::SignalDelivered => {
                if !self.signals.insert(text("signal_id")) {
                    return Err(("I28 a signal counts once", "it was delivered before"));
                }
                let (at, goes) = (text("waitpoint_id"), text("signal_name") == GO);
                match &self.open {
                    Some(open) if open.contains(&at) => self.met = goes,
                    _ if goes => _ = self.early.insert(at),
                    _ => {}
                }
                let satisfied = text("effect") == "resume_condition_satisfied";
                if satisfied != self.met {
                    return Err((LOST, "its effect is not what the condition says"));
                }
            }
            EventType::Suspended => {
                let listed = details["waitpoint_ids"].as_array().into_iter().flatten();
                let ids: BTreeSet<String> =
                    listed.filter_map(|id| id.as_str().map(str::to_owned)).collect();
                if ids.iter().any(|id| self.early.contains(id)) {
                    return Err((LOST, "what it waits for had been signalled before"));
                }
                if self.open.replace(ids).is_some() {
                    return Err((ONE_END, "the wait before has not ended"));
                }
                self.timeout_at = details["timeout_at"].as_i64();
            }
            EventType::Resumed => {
                if self.open.take().is_none() {
                    return Err((ONE_END, "nothing was waiting"));
                }
                let early = self.timeout_at.is_none_or(|at| event.at.0 < at);
                if text("end") == "auto_resumed" && early {
                    return Err(("I17 time-outs are not early", "its time had not run out"));
                }
            }
            EventType::Escalated if self.timeout_at.take().is_none_or(|at| event.at.0 < at) => {
                return Err(("I17 time-outs are not early", "its time had not run out"));
            }
            finish if finish.is_finish() => {
                let early = self.timeout_at.is_none_or(|at| event.at.0 < at);
                let waited = self.open.take().is_some();
                if text("reason") == "suspension_timeout" && (early || !waited) {
                    return Err(("I17 time-outs are not early", "its time had not run out"));
                }
                self.early.clear();
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whoever was told that a signal was accepted finds it in the log, once.
fn check_answers(evidence: &Evidence) -> Checked {
    for (_, op, answer) in evidence.history.acks() {
        let ids = match answer {
            Answer::Signalled(id) => std::slice::from_ref(id),
            Answer::AtOnce(ids) => ids,
            _ => continue,
        };
        let recorded = |id: &SignalId| {
            let id = id.to_string();
            delivered(evidence, &id).count() == 1 || timed_out(evidence, &id)
        };
        if !ids.iter().all(recorded) {
            let what = format!("{:?} was told of {ids:?}", op.verb);
            return Err(broken("I28 an accepted signal is recorded", None, what));
        }
    }
    Ok(())
}

/// The signal that stands for a time-out has the suspension's name, and the log tells of it there.
fn timed_out(evidence: &Evidence, id: &str) -> bool {
    let id = format!("\"suspension_id\":\"{id}\"");
    evidence.tables.events.values().any(|event| {
        let details = event.details.as_deref().unwrap_or_default();
        let resumed = event.event_type == EventType::Resumed && details.contains("auto_resumed");
        resumed && details.contains(&id)
    })
}

fn delivered<'e>(evidence: &'e Evidence, id: &str) -> impl Iterator<Item = &'e EventRow> {
    let id = format!("\"signal_id\":\"{id}\"");
    let events = evidence.tables.events.values();
    events.filter(move |event| {
        event.event_type == EventType::SignalDelivered
            && event.details.as_deref().is_some_and(|details| details.contains(&id))
    })
}

/// A token was taken only while its key was.
fn check_tokens(evidence: &Evidence) -> Checked {
    let mut cut: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    let rotations = evidence.tables.events.values();
    for event in rotations.filter(|event| event.event_type == EventType::WaitpointKeyRotated) {
        let details: Value =
            serde_json::from_str(event.details.as_deref().unwrap_or("{}")).unwrap_or_default();
        if let (Some(kid), Some(until)) =
            (details["previous_kid"].as_str(), details["verifies_until"].as_i64())
        {
            cut.insert(kid.to_owned(), (event.seq, until));
        }
    }
    for (op, answer) in evidence.history.answers() {
        let (Verb::Signal(args), Answer::Signalled(id)) = (&op.verb, answer) else {
            continue;
        };
        let SignalTarget::Token(token) = &args.target else { continue };
        let kid = token.as_str().split('.').nth(1).unwrap_or_default();
        let Some((seq, until)) = cut.get(kid) else { continue };
        // Another signal under the same key may have been delivered by somebody else.
        let own = delivered(evidence, &id.to_string()).next().filter(|_| *id == args.signal_id);
        if let Some(event) = own.filter(|event| event.seq > *seq && event.at.0 >= *until) {
            let what = format!("{kid} was retired and its token taken{}", line(event));
            return Err(broken("I31 a retired key is not taken", event.execution, what));
        }
    }
    Ok(())
}

/// At the end nothing waits, and every signal is where it was counted.
fn check_tables(evidence: &Evidence) -> Checked {
    let mut signals: BTreeMap<ExecutionKey, u32> = BTreeMap::new();
    let mut counted: BTreeMap<ExecutionKey, u32> = BTreeMap::new();
    for row in evidence.tables.records.values() {
        if let Ok(Some(wait)) = row.decode::<SuspensionRow>()
            && wait.closed_at.is_none()
        {
            let what = format!("the execution has ended and this is open: {wait:?}");
            return Err(broken(ONE_END, wait.key.execution, what));
        }
        if let Ok(Some(waitpoint)) = row.decode::<WaitpointRow>()
            && waitpoint.open
        {
            let what = format!("the execution has ended and this is open: {waitpoint:?}");
            return Err(broken(ONE_END, waitpoint.key.execution, what));
        }
        if let Ok(Some(signal)) = row.decode::<SignalRow>() {
            *signals.entry(signal.key.execution).or_default() += 1;
        }
        if let Ok(Some(count)) = row.decode::<SignalCountRow>() {
            counted.insert(count.key.execution, count.count);
        }
    }
    if signals != counted {
        let key = signals.keys().chain(counted.keys()).next().copied();
        let what = format!("{signals:?} are stored and {counted:?} were counted");
        return Err(broken("I28 a signal counts once", key, what));
    }
    Ok(())
}
