//! What will happen when: the only order there is in a run.

use std::collections::BTreeMap;

use super::Simulation;
use super::message::Answer;

/// One thing that happens.
#[derive(Debug)]
pub(super) enum Event {
    /// A request of this operation reaches a server.
    Request {
        node: usize,
        op: usize,
    },
    /// An answer reaches whoever asked.
    Reply {
        op: usize,
        answer: Answer,
    },
    /// A server takes what has queued up into one transaction.
    Batch(usize),
    Sweep(usize),
    Restart(usize),
    /// No answer has come for a while.
    Timeout(usize),
    WorkerWakes(usize),
    OperatorWakes,
}

/// Things to come, in order of time and then of scheduling.
#[derive(Debug, Default)]
pub(super) struct Bus {
    /// The run's own time in milliseconds. It only grows, and nobody inside can read it.
    pub now: u64,
    scheduled: u64,
    queue: BTreeMap<(u64, u64), Event>,
}

impl Bus {
    pub fn after(&mut self, delay: u64, event: Event) {
        self.scheduled += 1;
        self.queue.insert((self.now + delay, self.scheduled), event);
    }

    /// The next thing, and how long it took to come.
    pub fn next(&mut self) -> Option<(u64, Event)> {
        let ((at, _), event) = self.queue.pop_first()?;
        let passed = at - self.now;
        self.now = at;
        Some((passed, event))
    }
}

impl Simulation {
    /// Sends an operation's request to some server, through a bad network.
    pub(super) fn send(&mut self, op: usize) {
        self.history.ops[op].tries += 1;
        for _ in 0..self.copies() {
            let node = self.rng.usize(0..self.nodes.len());
            let delay = self.latency();
            self.bus.after(delay, Event::Request { node, op });
        }
        let patience = self.rng.u64(150..600);
        self.bus.after(patience, Event::Timeout(op));
    }

    pub(super) fn reply(&mut self, op: usize, answer: &Answer) {
        for _ in 0..self.copies() {
            let delay = self.latency();
            self.bus.after(delay, Event::Reply { op, answer: answer.clone() });
        }
    }

    /// How many copies of a message arrive.
    fn copies(&mut self) -> usize {
        let (drop, duplicate) = (self.config.drop, self.config.duplicate);
        if self.happens(drop) {
            self.report.drops += 1;
            0
        } else if self.happens(duplicate) {
            self.report.duplicates += 1;
            2
        } else {
            1
        }
    }

    /// Mostly short; now and then a message hangs somewhere for longer than a lease.
    fn latency(&mut self) -> u64 {
        if self.happens(20) { self.rng.u64(300..4_000) } else { self.rng.u64(1..25) }
    }
}
