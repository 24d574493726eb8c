//! Every accepted change is in the log, and what is final is still so at the end.

use std::collections::{HashMap, HashSet};

use ff_core::contracts::EventType;
use ff_core::state::PublicState;

use super::{EventsById, Kind, Report, submissions};
use crate::evidence::{Evidence, LogEvent};
use crate::history::{Entry, Grant, Lease, Op, Outcome, Phase};

pub fn check(evidence: &Evidence, events: &EventsById<'_>, report: &mut Report) {
    let mut checker = Checker { evidence, events, report, endings: HashMap::new() };
    let mut granted = HashSet::new();
    let mut replays: HashMap<&str, usize> = HashMap::new();
    let members = submissions::members(&evidence.history);
    let mut payloads = payloads(&evidence.history);
    payloads.extend(members.iter().map(|(id, payload)| (id.as_str(), *payload)));
    let scheduled = evidence.executions.iter().filter(|(_, execution)| execution.due.is_some());
    payloads.extend(scheduled.map(|(id, execution)| (id.as_str(), execution.payload)));
    for entry in evidence.history.iter().filter(|entry| entry.phase == Phase::Ok) {
        match (&entry.op, &entry.result) {
            (Op::Claim { .. }, Some(Outcome::Granted { grants })) => {
                for grant in grants {
                    checker.grant(grant, &payloads, &mut granted);
                }
            }
            (Op::Cancel { id }, _) => checker.cancelled(id),
            (Op::Revoke { id }, Some(Outcome::Revoked { epoch })) => {
                checker.must_be_logged(id, EventType::LeaseRevoked, *epoch);
            }
            (Op::Replay { id }, _) => *replays.entry(id).or_default() += 1,
            _ => checker.ended_by_holder(entry),
        }
    }
    for (id, acknowledged) in replays {
        let replayed = |event: &&&LogEvent| event.event_type == EventType::Replayed;
        let logged = checker.events_of(id).iter().filter(replayed).count();
        if logged < acknowledged {
            let text = format!("{id}: {acknowledged} acknowledged replays, {logged} in the log");
            checker.report.add(Kind::Lost, text);
        }
    }
    checker.repeats();
    checker.effects();
}

/// The hash of each submitted payload, by the id that its submitter chose.
fn payloads(history: &[Entry]) -> HashMap<&str, u64> {
    let submitted = history.iter().filter_map(|entry| match &entry.op {
        Op::Submit(work) => Some((work.id.as_str(), work.payload)),
        _ => None,
    });
    submitted.collect()
}

struct Checker<'e, 'r> {
    evidence: &'e Evidence,
    events: &'e EventsById<'e>,
    report: &'r mut Report,
    /// Which operation ended the lease, for every lease that was seen to end.
    endings: HashMap<(&'e str, u64), &'e str>,
}

impl<'e> Checker<'e, '_> {
    fn events_of(&self, id: &str) -> &'e [&'e LogEvent] {
        self.events.get(id).map_or(&[], Vec::as_slice)
    }

    fn logged(&self, id: &str, event_type: EventType, epoch: u64) -> Option<&'e LogEvent> {
        let same = |event: &&&LogEvent| event.event_type == event_type && event.epoch == epoch;
        self.events_of(id).iter().find(same).copied()
    }

    fn must_be_logged(&mut self, id: &str, event_type: EventType, epoch: u64) {
        if self.logged(id, event_type, epoch).is_none() {
            let word = event_type.as_str();
            let text = format!("{id}: acknowledged `{word}` of epoch {epoch} is not in the log");
            self.report.add(Kind::Lost, text);
        }
    }

    fn grant(
        &mut self,
        grant: &'e Grant,
        payloads: &HashMap<&str, u64>,
        granted: &mut HashSet<(&'e str, u64)>,
    ) {
        let Lease { id, epoch, .. } = &grant.lease;
        if !granted.insert((id, *epoch)) {
            self.report.add(Kind::DoubleAccepted, format!("{id}: epoch {epoch} was granted twice"));
        }
        self.must_be_logged(id, EventType::Claimed, *epoch);
        if payloads.get(id.as_str()) != Some(&grant.payload) {
            self.report.add(Kind::Lost, format!("{id}: its worker was given other bytes"));
        }
    }

    fn cancelled(&mut self, id: &str) {
        let state = self.evidence.executions.get(id).map(|execution| execution.state);
        if state != Some(PublicState::Cancelled) {
            let text = format!("{id}: cancellation was acknowledged, it is {state:?}");
            self.report.add(Kind::Lost, text);
        }
    }

    /// An accepted completion, failure or surrender.
    fn ended_by_holder(&mut self, entry: &'e Entry) {
        let Some(Lease { id, epoch, .. }) = entry.op.lease() else {
            return;
        };
        match (&entry.op, &entry.result) {
            (Op::Complete { result, .. }, _) => {
                self.must_be_logged(id, EventType::Completed, *epoch);
                self.result_stands(id, *epoch, *result);
            }
            (Op::Fail { .. }, Some(Outcome::RetryScheduled { delay_until })) => {
                self.must_be_logged(id, EventType::RetryScheduled, *epoch);
                let logged = self.logged(id, EventType::RetryScheduled, *epoch);
                if logged.is_some_and(|event| event.delay_until != Some(*delay_until)) {
                    let text = format!("{id}: epoch {epoch} was told another time for its retry");
                    self.report.add(Kind::DoubleAccepted, text);
                }
            }
            (Op::Fail { .. }, _) => self.must_be_logged(id, EventType::Failed, *epoch),
            (Op::Suspend { .. }, Some(Outcome::Suspended { .. })) => {
                self.must_be_logged(id, EventType::Suspended, *epoch);
            }
            (Op::GiveUp(_), _) => {
                self.must_be_logged(id, EventType::Cancelled, *epoch);
                self.cancelled(id);
            }
            _ => return,
        }
        let first = *self.endings.entry((id, *epoch)).or_insert(&entry.op_id);
        if first != entry.op_id {
            let text = format!("{id}: {first} and {} both ended epoch {epoch}", entry.op_id);
            self.report.add(Kind::DoubleAccepted, text);
        }
    }

    /// Until it is replayed, a completed execution keeps the result that was acknowledged.
    fn result_stands(&mut self, id: &str, epoch: u64, result: u64) {
        let Some(completed) = self.logged(id, EventType::Completed, epoch) else {
            return;
        };
        if self.replayed_after(completed) {
            return;
        }
        let kept = self.evidence.executions.get(id).is_some_and(|execution| {
            execution.state == PublicState::Completed && execution.result == Some(result)
        });
        if !kept {
            self.report.add(Kind::Lost, format!("{id}: the acknowledged result is not there"));
        }
    }

    fn replayed_after(&self, event: &LogEvent) -> bool {
        self.events_of(&event.id)
            .iter()
            .any(|later| later.event_type == EventType::Replayed && later.version > event.version)
    }

    /// A retry must not be refused if the first call, whose answer was lost, took effect.
    fn repeats(&mut self) {
        let mut calls: HashMap<&str, usize> = HashMap::new();
        for entry in &self.evidence.history {
            match entry.phase {
                Phase::Invoke => *calls.entry(&entry.op_id).or_default() += 1,
                Phase::Fail if calls.get(entry.op_id.as_str()).is_some_and(|n| *n > 1) => {
                    self.refused_repeat(entry);
                }
                _ => {}
            }
        }
    }

    fn refused_repeat(&mut self, entry: &Entry) {
        let Some(Lease { id, epoch, .. }) = entry.op.lease() else {
            return;
        };
        // Somebody else's accepted ending of this lease is a good reason to refuse.
        if self.endings.contains_key(&(id.as_str(), *epoch)) {
            return;
        }
        let named = |event: &&&LogEvent| event.reason.as_ref() == Some(&entry.op_id);
        let effect = match &entry.op {
            Op::Complete { .. } => self.logged(id, EventType::Completed, *epoch),
            _ => self.events_of(id).iter().find(named).copied(),
        };
        if effect.is_some_and(|effect| !self.replayed_after(effect)) {
            let text = format!("{id}: {} took effect, its repeat was refused", entry.op_id);
            self.report.add(Kind::Lost, text);
        }
    }

    /// An operation changes something once, however often it is asked for.
    fn effects(&mut self) {
        let names: HashSet<&str> =
            self.evidence.history.iter().map(|entry| entry.op_id.as_str()).collect();
        let mut effects: HashMap<&str, &LogEvent> = HashMap::new();
        for event in &self.evidence.log {
            let Some(name) = event.reason.as_deref().filter(|name| names.contains(name)) else {
                continue;
            };
            if let Some(first) = effects.insert(name, event) {
                let (id, first, second) = (&event.id, first.version, event.version);
                let text = format!("{id}: {name} took effect in versions {first} and {second}");
                self.report.add(Kind::DoubleAccepted, text);
            }
        }
    }
}
