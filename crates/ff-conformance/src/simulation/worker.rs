//! The workers: they claim, renew, finish; and they stand still, forget and come back.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ff_core::backend::{CapabilitySet, Handle};
use ff_core::contracts::FailureClass;

use super::Simulation;
use super::bus::Event;
use super::history::Actor;
use super::message::{Answer, Verb, Wanted};

/// One worker program. A crash makes a new incarnation that knows nothing.
#[derive(Debug)]
pub(super) struct Worker {
    index: usize,
    incarnation: u32,
    lanes: Vec<Arc<str>>,
    capabilities: CapabilitySet,
    lease_ttl_ms: u32,
    /// Until when it stands still; it does not notice.
    asleep_until: u64,
    claim: Option<usize>,
    tasks: Vec<Task>,
}

/// Work in hand.
#[derive(Debug)]
struct Task {
    handle: Handle,
    done_at: u64,
    renewed_at: u64,
    /// How it will end, and the operation that says so once it has been sent.
    end: Verb,
    ending: Option<usize>,
    /// What it is recording or saying.
    doing: Option<usize>,
}

const MAX_TASKS: usize = 3;

impl Worker {
    /// The first worker can do everything, so that nothing has to wait for ever.
    pub fn new(index: usize, rng: &mut Rng) -> Self {
        let all = index == 0;
        let lanes: &[&str] = if all || rng.bool() { &["red", "blue"] } else { &["blue"] };
        let offered: &[&str] = if all || rng.bool() { &["gpu"] } else { &[] };
        Self {
            index,
            incarnation: 0,
            lanes: lanes.iter().map(|lane| Arc::from(*lane)).collect(),
            capabilities: CapabilitySet::new(offered.iter().copied()),
            lease_ttl_ms: rng.u32(400..1_500),
            asleep_until: 0,
            claim: None,
            tasks: Vec::new(),
        }
    }

    fn actor(&self) -> Actor {
        Actor::Worker { index: self.index, incarnation: self.incarnation }
    }

    fn wanted(&self, max: usize) -> Wanted {
        Wanted {
            worker: format!("w{}.{}", self.index, self.incarnation).into(),
            lanes: self.lanes.clone(),
            capabilities: self.capabilities.clone(),
            lease_ttl_ms: self.lease_ttl_ms,
            max,
        }
    }
}

impl Simulation {
    /// For how much longer this actor stands still, if it does.
    pub(super) fn asleep(&self, actor: Actor) -> Option<u64> {
        let Actor::Worker { index, .. } = actor else {
            return None;
        };
        self.workers[index].asleep_until.checked_sub(self.bus.now).filter(|rest| *rest > 0)
    }

    /// Whether nobody is left who could hear an answer.
    pub(super) fn is_gone(&self, actor: Actor) -> bool {
        let Actor::Worker { index, .. } = actor else {
            return false;
        };
        self.workers[index].actor() != actor
    }

    pub(super) fn worker_wakes(&mut self, index: usize) {
        let rest = self.rng.u64(15..150);
        self.bus.after(rest, Event::WorkerWakes(index));
        if self.asleep(self.workers[index].actor()).is_some() {
            return;
        }
        let (crash, pause) = (self.config.worker_crash, self.config.worker_pause);
        if self.happens(crash) {
            self.crash_worker(index);
        } else if self.happens(pause) {
            self.report.pauses += 1;
            let rest = self.rng.u64(100..4_000);
            self.workers[index].asleep_until = self.bus.now + rest;
        } else {
            self.claim_more(index);
            self.renew(index);
            self.report_usage(index);
            self.do_something(index);
            self.end_tasks(index);
        }
    }

    fn crash_worker(&mut self, index: usize) {
        self.report.worker_crashes += 1;
        let actor = self.workers[index].actor();
        for op in self.history.ops.iter_mut().filter(|op| op.actor == actor) {
            op.closed = true;
        }
        let worker = &mut self.workers[index];
        worker.incarnation += 1;
        worker.claim = None;
        worker.tasks.clear();
        worker.asleep_until = self.bus.now + self.rng.u64(50..1_000);
    }

    fn claim_more(&mut self, index: usize) {
        let worker = &self.workers[index];
        let room = MAX_TASKS - worker.tasks.len().min(MAX_TASKS);
        if worker.claim.is_some() || room == 0 {
            return;
        }
        let wanted = worker.wanted(self.rng.usize(1..=room));
        let op = self.history.invoke(worker.actor(), Verb::Claim(wanted));
        self.workers[index].claim = Some(op);
        self.send(op);
    }

    fn renew(&mut self, index: usize) {
        let now = self.bus.now;
        let worker = &mut self.workers[index];
        let pause = u64::from(worker.lease_ttl_ms / 3);
        let mut handles = Vec::new();
        for task in worker.tasks.iter_mut().filter(|task| task.renewed_at + pause <= now) {
            // Each task has a keeper of its own, and those do not keep step.
            if self.rng.u32(0..3) == 0 {
                continue;
            }
            task.renewed_at = now;
            handles.push(task.handle.clone());
        }
        if !handles.is_empty() {
            let op = self.history.invoke(worker.actor(), Verb::Renew(handles));
            self.send(op);
        }
    }

    /// Now and then a task says what it has used, more than it was expected to or less.
    fn report_usage(&mut self, index: usize) {
        let worker = &self.workers[index];
        if self.declared.budget.is_none() || worker.tasks.is_empty() || self.rng.u32(0..4) > 0 {
            return;
        }
        let task = &worker.tasks[self.rng.usize(0..worker.tasks.len())];
        let handle = task.handle.clone();
        let (amount, dedup_key) = (self.rng.u64(0..25), self.rng.u64(..).to_string());
        let verb = Verb::Report { handle, amount, dedup_key };
        let op = self.history.invoke(worker.actor(), verb);
        self.send(op);
    }

    /// Work in hand goes on: one of its steps is recorded, or it says something.
    fn do_something(&mut self, index: usize) {
        let tasks = &self.workers[index].tasks;
        if tasks.is_empty() || self.rng.u32(0..3) > 0 {
            return;
        }
        let at = self.rng.usize(0..tasks.len());
        let task = &tasks[at];
        if task.doing.is_some() || task.ending.is_some() {
            return;
        }
        let verb = self.draw_doing(task.handle.clone());
        let op = self.history.invoke(self.workers[index].actor(), verb);
        self.workers[index].tasks[at].doing = Some(op);
        self.send(op);
    }

    fn end_tasks(&mut self, index: usize) {
        let now = self.bus.now;
        let mut started = Vec::new();
        let worker = &mut self.workers[index];
        let actor = worker.actor();
        for task in worker.tasks.iter_mut().filter(|task| task.done_at <= now) {
            if task.ending.is_none() {
                let op = self.history.invoke(actor, task.end.clone());
                task.ending = Some(op);
                started.push(op);
            }
        }
        for op in started {
            self.send(op);
        }
    }

    /// The first answer to one of a worker's operations.
    pub(super) fn worker_hears(&mut self, op: usize, answer: &Answer) {
        let asked = &self.history.ops[op];
        let Actor::Worker { index, .. } = asked.actor else {
            return;
        };
        match (answer, &asked.verb) {
            (Answer::Granted(leases), _) => {
                self.workers[index].claim = None;
                for lease in leases {
                    self.begin(index, lease.handle.clone());
                }
            }
            (Answer::Renewed(outcomes), Verb::Renew(handles)) => {
                let lost = handles.iter().zip(outcomes).filter(|(_, until)| until.is_none());
                let lost: Vec<_> = lost.map(|(handle, _)| handle.clone()).collect();
                // A bad worker does not stop when it is told to.
                if self.rng.u32(0..3) > 0 {
                    let tasks = &mut self.workers[index].tasks;
                    tasks.retain(|task| !lost.contains(&task.handle));
                }
            }
            (_, verb @ (Verb::CreateWaitpoint(..) | Verb::Suspend(..))) if answer.is_ok() => {
                let verb = verb.clone();
                match self.waits_on(&verb, answer) {
                    Some(next) => self.go_on(index, op, &next),
                    None => self.worker_gives_up(op),
                }
            }
            (Answer::Done, Verb::Extend(handle, number)) => {
                let (next, number) = (Verb::WaitChildren(handle.clone()), *number);
                self.go_on(index, op, &next);
                self.cancel_extended(number);
            }
            (Answer::Slept { until: Some(_), .. }, Verb::Sleep(handle, _))
            | (Answer::Unneeded, Verb::WaitChildren(handle)) => {
                let result = b"it has waited".as_slice().into();
                let next = Verb::Complete { handle: handle.clone(), result };
                self.go_on(index, op, &next);
            }
            _ => {
                let late = ["stale_lease", "lease_expired", "execution_not_active"];
                if matches!(answer, Answer::Refused(code) if late.contains(code)) {
                    self.report.zombies += 1;
                }
                self.worker_gives_up(op);
            }
        }
    }

    /// Nothing more will come of this operation.
    pub(super) fn worker_gives_up(&mut self, op: usize) {
        let Actor::Worker { index, .. } = self.history.ops[op].actor else {
            return;
        };
        let worker = &mut self.workers[index];
        worker.claim = worker.claim.filter(|claim| *claim != op);
        worker.tasks.retain(|task| task.ending != Some(op));
        for task in worker.tasks.iter_mut().filter(|task| task.doing == Some(op)) {
            task.doing = None;
        }
    }

    /// The work is not done with: this is what will be done with it next.
    fn go_on(&mut self, index: usize, op: usize, next: &Verb) {
        let now = self.bus.now;
        let wait = self.rng.u64(0..80);
        let tasks = &mut self.workers[index].tasks;
        for task in tasks.iter_mut().filter(|task| task.ending == Some(op)) {
            (task.end, task.ending, task.done_at) = (next.clone(), None, now + wait);
        }
    }

    fn begin(&mut self, index: usize, handle: Handle) {
        let held = handle.clone();
        let outcome = if self.faulty { self.rng.u32(0..100) } else { 0 };
        let extension = match outcome {
            40..58 => self.draw_extension(&handle),
            _ => None,
        };
        let end = match outcome {
            _ if extension.is_some() => extension.unwrap_or(Verb::GiveUp(handle)),
            0..58 => {
                let result = format!("result {}", self.rng.u64(..)).into_bytes().into();
                Verb::Complete { handle, result }
            }
            58..72 => Verb::Fail { handle, class: FailureClass::Retryable },
            72..75 => Verb::Fail { handle, class: FailureClass::Fatal },
            75..80 => {
                let delay = Duration::from_millis(self.rng.u64(0..1_500));
                Verb::Delay { handle, delay }
            }
            80..84 => self.draw_sleep(handle),
            84..98 => self.draw_wait(handle),
            _ => Verb::GiveUp(handle),
        };
        let now = self.bus.now;
        let done_at = now + self.rng.u64(10..1_800);
        let task = Task { handle: held, done_at, renewed_at: now, end, ending: None, doing: None };
        self.workers[index].tasks.push(task);
    }
}
