//! The servers: a queue, one transaction at a time on the shared store, and many ways to die.

use std::collections::BTreeSet;

use fastrand::Rng;
use ff_core::engine::clock::Clock as _;
use ff_core::rows::{AttemptKey, Blob, ExecutionRow, TimerKind};
use ff_core::state::EligibilityState;
use ff_core::store::Batch;
use ff_core::store::memory::Tables;
use ff_core::types::{ExecutionKey, TimestampMs};

use super::bus::Event;
use super::history::Actor;
use super::message::{Answer, Seen, Verb, Waiting};
use super::{Checked, Simulation, broken};

/// One server. All of them work on the same store.
#[derive(Debug)]
pub(super) struct Node {
    pub is_up: bool,
    /// Operations that wait for the next transaction.
    queue: Vec<usize>,
    /// How far this host's clock is off. Nothing may depend on it.
    skew_ms: i64,
    /// The operation that stands for this server's own sweeps.
    sweep: Option<usize>,
}

impl Node {
    pub fn new(rng: &mut Rng) -> Self {
        Self { is_up: true, queue: Vec::new(), skew_ms: rng.i64(-5_000..5_000), sweep: None }
    }
}

/// How a transaction, and perhaps its server, ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lives,
    /// Everything is decided and nothing is written.
    DiesBeforeCommit,
    /// Everything is written and nobody is told.
    DiesAfterCommit,
    /// Some are told.
    DiesWhileAnswering,
}

/// Something that a sweep should have done by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Overdue {
    execution: ExecutionKey,
    version: u64,
    kind: TimerKind,
    at: TimestampMs,
}

/// A sweep moves an execution once and leaves the rest of what is due to the next one. So this may
/// be found after a sweep, but not after two that did not move the execution.
fn overdue(tables: &Tables, now: TimestampMs) -> BTreeSet<Overdue> {
    let mut found = BTreeSet::new();
    for row in tables.executions.values().filter(|row| !row.is_finished()) {
        let (execution, version) = (row.key, row.version);
        let current = AttemptKey { execution, index: row.attempt_index };
        let lease = tables.attempts.get(&current).and_then(|attempt| attempt.lease_expires_at);
        let times = [
            (TimerKind::Lease, lease),
            (TimerKind::Ready, row.not_before.filter(|_| waits_for_time(row))),
            (TimerKind::Deadline, row.deadline_at),
        ];
        for (kind, at) in times {
            if let Some(at) = at.filter(|at| *at <= now) {
                found.insert(Overdue { execution, version, kind, at });
            }
        }
    }
    found
}

fn waits_for_time(row: &ExecutionRow) -> bool {
    row.eligibility == EligibilityState::NotEligibleUntilTime
}

/// At most this many operations share a transaction.
const BATCH: usize = 12;
const SWEEP_EVERY_MS: u64 = 150;

impl Simulation {
    /// A request arrives. A server that is down hears nothing.
    pub(super) fn receive(&mut self, node: usize, op: usize) {
        if !self.nodes[node].is_up || self.is_passed(op) {
            return;
        }
        if self.nodes[node].queue.is_empty() {
            let delay = self.rng.u64(0..6);
            self.bus.after(delay, Event::Batch(node));
        }
        self.nodes[node].queue.push(op);
    }

    /// A stream remembers its last append only. Whoever says something repeats it before saying the
    /// next thing, over a connection that keeps the order.
    fn is_passed(&self, op: usize) -> bool {
        let op = &self.history.ops[op];
        op.closed && matches!(op.verb, Verb::Append(..))
    }

    pub(super) fn request_sweep(&mut self, node: usize) {
        let op = match self.nodes[node].sweep {
            Some(op) => op,
            None => self.history.invoke(Actor::Operator, Verb::Sweep),
        };
        self.nodes[node].sweep = Some(op);
        self.receive(node, op);
        let rest = self.rng.u64(1..SWEEP_EVERY_MS);
        self.bus.after(rest, Event::Sweep(node));
    }

    /// Long after the end, timers that were left behind find nothing to do and are gone.
    pub(super) fn fire_what_is_left(&mut self) -> Checked {
        self.clock.step(3_600_000);
        let timers = |this: &Self| this.store.read(|tables| tables.timers.len());
        // A sweep looks at a schedule once, however many timers it has, so an engine sweeps until
        // nothing moves.
        loop {
            let before = timers(self);
            for node in 0..self.nodes.len() {
                self.nodes[node].is_up = true;
                self.nodes[node].queue.clear();
                self.request_sweep(node);
                self.run_batch(node)?;
            }
            if timers(self) >= before {
                return Ok(());
            }
        }
    }

    /// One transaction: load, decide, write, answer, or as far as the server gets.
    pub(super) fn run_batch(&mut self, node: usize) -> Checked {
        let waiting = self.nodes[node].queue.len().min(BATCH);
        let ops: Vec<usize> = self.nodes[node].queue.drain(..waiting).collect();
        if ops.is_empty() {
            return Ok(());
        }
        if !self.nodes[node].queue.is_empty() {
            self.bus.after(1, Event::Batch(node));
        }
        self.show_node_clock(node);
        let fate = self.draw_fate();
        let head = self.store.read(|tables| tables.log_head);
        let (mut batch, waiting) = self.build(&ops);
        let kept = fate != Fate::DiesBeforeCommit;
        self.store.transact_now(&mut batch, kept).map_err(|error| {
            broken("the store takes every batch", None, format!("{error}; operations {ops:?}"))
        })?;
        if kept {
            batch.answer();
        } else {
            drop(batch);
        }
        let mut answers = self.collect(&ops, waiting, kept);
        if kept {
            self.note_limits(&answers);
            self.check_limits()?;
            self.check_backlogs(&answers)?;
            self.meet_runs()?;
            self.witness(&answers, head)?;
        }
        match fate {
            Fate::Lives | Fate::DiesBeforeCommit => {}
            Fate::DiesAfterCommit => answers.clear(),
            Fate::DiesWhileAnswering => answers.truncate(self.rng.usize(0..=answers.len())),
        }
        for (op, answer) in &answers {
            self.reply(*op, answer);
        }
        if fate != Fate::Lives {
            self.crash(node);
        }
        Ok(())
    }

    /// Keeps what was committed, whoever gets to know of it.
    fn witness(&mut self, answers: &[(usize, Answer)], head: u64) -> Checked {
        let mut swept = false;
        for (op, answer) in answers {
            self.history.ops[*op].committed.push((answer.clone(), head));
            swept |= matches!(self.history.ops[*op].verb, Verb::Sweep);
            if let (Verb::Extend(_, number), true) = (&self.history.ops[*op].verb, answer.is_ok()) {
                let number = *number;
                self.history.grow(number);
            }
        }
        if !swept {
            return Ok(());
        }
        let overdue = self.store.read(|tables| overdue(tables, self.clock.now()));
        if let Some(late) = overdue.intersection(&self.overdue).next() {
            let what = format!("{late:?} was due and two sweeps have passed it over");
            return Err(broken("I17, I46 what is due is done", late.execution, what));
        }
        self.overdue = overdue;
        Ok(())
    }

    fn draw_fate(&mut self) -> Fate {
        let chance = self.config.server_crash;
        if !self.happens(chance) {
            return Fate::Lives;
        }
        match self.rng.u32(0..3) {
            0 => Fate::DiesBeforeCommit,
            1 => Fate::DiesAfterCommit,
            _ => Fate::DiesWhileAnswering,
        }
    }

    /// Whatever was queued or half done in this server's memory is gone.
    fn crash(&mut self, node: usize) {
        self.report.server_crashes += 1;
        self.nodes[node].is_up = false;
        self.nodes[node].queue.clear();
        self.nodes[node].skew_ms = self.rng.i64(-5_000..5_000);
        let rest = self.rng.u64(20..800);
        self.bus.after(rest, Event::Restart(node));
    }

    fn build(&mut self, ops: &[usize]) -> (Batch, Vec<Option<Waiting>>) {
        let mut jobs = Vec::new();
        let mut waiting = Vec::new();
        for op in ops {
            let verb = &self.history.ops[*op].verb;
            waiting.push(verb.job(&self.history, &mut self.rng).map(|(job, waiting)| {
                jobs.push(job);
                waiting
            }));
        }
        (Batch::new(jobs), waiting)
    }

    /// The answers that the core has let out, and those of reads, which see what is committed.
    fn collect(
        &self,
        ops: &[usize],
        waiting: Vec<Option<Waiting>>,
        kept: bool,
    ) -> Vec<(usize, Answer)> {
        let answer = |(op, waiting): (&usize, Option<Waiting>)| {
            let answer = match (waiting, &self.history.ops[*op].verb) {
                (Some(waiting), _) => waiting(),
                (None, Verb::Read(key)) if kept => Some(Answer::Seen(self.look_at(*key))),
                _ => None,
            };
            answer.map(|answer| (*op, answer))
        };
        ops.iter().zip(waiting).filter_map(answer).collect()
    }

    fn look_at(&self, key: ExecutionKey) -> Option<Seen> {
        self.store.read(|tables| {
            let row = tables.executions.get(&key)?;
            let result = match &row.result {
                Blob::Here(bytes) => Some(bytes.clone()),
                Blob::Absent | Blob::Apart => None,
            };
            Some(Seen { version: row.version, state: row.public_state, result })
        })
    }

    #[cfg(feature = "mutants")]
    fn show_node_clock(&self, node: usize) {
        ff_core::mutants::set_node_clock_skew_ms(self.nodes[node].skew_ms);
    }

    /// A correct core has no way to see a server's own clock.
    #[cfg(not(feature = "mutants"))]
    fn show_node_clock(&self, node: usize) {
        let _ = self.nodes[node].skew_ms;
    }
}
