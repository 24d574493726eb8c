//! Decides from the evidence whether the engine kept its promises. Nothing here does I/O.

mod acknowledgements;
mod durable;
mod fence;
mod flows;
pub mod large;
mod limits;
mod log;
pub mod revocations;
mod schedules;
mod signals;
mod submissions;
mod subscribers;
mod sweeps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::evidence::{Evidence, LogEvent};
use crate::history::{Entry, Outcome, Phase, unresolved};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Something acknowledged is not there.
    Lost,
    /// Something happened twice, or was accepted from somebody who had lost the right to it.
    DoubleAccepted,
    /// An execution that nothing holds is not finished.
    Stuck,
    /// The log and what it speaks of do not agree, or a subscriber missed or repeated something.
    Gap,
    /// A token did or was shown something long after its revocation.
    Trespass,
    /// An honest request was not let in.
    TurnedAway,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: Kind,
    pub text: String,
}

/// What a run showed.
#[derive(Debug, Default)]
pub struct Report {
    pub kills: usize,
    /// Operations that were accepted and changed something.
    pub acknowledged: usize,
    /// The same by what was asked for.
    pub of_each: BTreeMap<&'static str, usize>,
    /// Operations whose answer was lost with a process, and which a retry then settled.
    pub unknown_resolved: usize,
    /// Operations that can be asked about again and whose outcome is unknown nevertheless.
    pub unknown_left: usize,
    pub executions: usize,
    pub events: usize,
    pub violations: Vec<Violation>,
}

impl Report {
    pub fn count(&self, kind: Kind) -> usize {
        self.violations.iter().filter(|violation| violation.kind == kind).count()
    }

    /// A run in which nothing was acknowledged shows nothing.
    pub fn passed(&self) -> bool {
        self.violations.is_empty() && self.acknowledged > 0 && self.unknown_left == 0
    }

    fn add(&mut self, kind: Kind, text: String) {
        self.violations.push(Violation { kind, text });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("acknowledged", self.acknowledged),
            ("lost", self.count(Kind::Lost)),
            ("double-accepted", self.count(Kind::DoubleAccepted)),
            ("stuck", self.count(Kind::Stuck)),
            ("gaps", self.count(Kind::Gap)),
            ("trespasses", self.count(Kind::Trespass)),
            ("turned-away", self.count(Kind::TurnedAway)),
            ("unknown-resolved", self.unknown_resolved),
            ("unknown-left", self.unknown_left),
            ("kills", self.kills),
            ("executions", self.executions),
            ("events", self.events),
        ];
        for (name, count) in rows {
            writeln!(f, "{name:<16} {count:>9}")?;
        }
        for (name, count) in &self.of_each {
            writeln!(f, "  {name:<14} {count:>9}")?;
        }
        Ok(())
    }
}

pub fn check(evidence: &Evidence, kills: usize) -> Report {
    let mut report = Report {
        kills,
        acknowledged: acknowledged(&evidence.history).count(),
        of_each: of_each(&evidence.history),
        unknown_resolved: resolved(&evidence.history),
        unknown_left: left_unknown(&evidence.history),
        executions: evidence.executions.len(),
        events: evidence.log.len(),
        ..Report::default()
    };
    if evidence.torn_lines > kills * (1 + evidence.subscribers.len()) {
        let text = format!("{} unreadable lines: more than kills explain", evidence.torn_lines);
        report.add(Kind::Gap, text);
    }
    let events = by_execution(&evidence.log);
    submissions::check(evidence, &mut report);
    acknowledgements::check(evidence, &events, &mut report);
    fence::check(&evidence.history, &mut report);
    log::check(evidence, &events, &mut report);
    subscribers::check(evidence, &mut report);
    flows::check(evidence, &events, &mut report);
    signals::check(evidence, &mut report);
    limits::check(evidence, &mut report);
    durable::check(evidence, &mut report);
    schedules::check(evidence, &mut report);
    sweeps::check(evidence, &mut report);
    for (id, execution) in &evidence.executions {
        if !execution.state.is_finished() {
            let why = execution.explanation.as_deref().unwrap_or("no reason is known");
            report.add(Kind::Stuck, format!("{id} is still {:?}: {why}", execution.state));
        }
    }
    report
}

fn acknowledged(history: &[Entry]) -> impl Iterator<Item = &Entry> {
    let changed = |entry: &&Entry| match (entry.phase, &entry.result) {
        (Phase::Ok, Some(Outcome::Granted { grants })) => !grants.is_empty(),
        (Phase::Ok, Some(Outcome::Unchanged)) => false,
        (phase, _) => phase == Phase::Ok,
    };
    history.iter().filter(changed)
}

fn of_each(history: &[Entry]) -> BTreeMap<&'static str, usize> {
    let mut of_each = BTreeMap::new();
    for entry in acknowledged(history) {
        *of_each.entry(entry.op.name()).or_default() += 1;
    }
    of_each
}

/// How many operations were unknown when they were asked about again, and were then settled.
fn resolved(history: &[Entry]) -> usize {
    let mut calls: HashMap<&str, (usize, bool)> = HashMap::new();
    for entry in history {
        let (invoked, settled) = calls.entry(&entry.op_id).or_default();
        match entry.phase {
            Phase::Invoke => *invoked += 1,
            Phase::Ok | Phase::Fail => *settled = true,
            Phase::Info => {}
        }
    }
    calls.values().filter(|(invoked, settled)| *invoked > 1 && *settled).count()
}

fn left_unknown(history: &[Entry]) -> usize {
    unresolved(history).iter().filter(|(_, op)| op.is_repeatable()).count()
}

/// The log's events per execution, in the log's order.
type EventsById<'e> = HashMap<&'e str, Vec<&'e LogEvent>>;

fn by_execution(log: &[LogEvent]) -> EventsById<'_> {
    let mut events = EventsById::new();
    for event in log {
        events.entry(&event.id).or_default().push(event);
    }
    events
}
