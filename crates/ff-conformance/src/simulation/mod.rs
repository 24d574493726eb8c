//! Deterministic simulation: the real core on the memory store, with everything around it faked
//! and faulty, and a checker over what the callers saw and what was stored.
//!
//! One seed is one run. Messages are late, lost and doubled; servers die before the commit, after
//! it, and between two answers; workers die, or stand still for longer than their leases and then
//! go on as if nothing had happened; the store's clock jumps and steps back, and every server has
//! a wrong clock of its own. Nothing in a run depends on real time, threads or hash order, so a
//! seed that fails once fails always.

mod bulk;
mod bus;
mod checker;
mod client;
mod extensions;
mod flows;
mod history;
mod limits;
mod message;
mod schedules;
mod server;
mod waits;
mod work;
mod worker;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fastrand::Rng;
use ff_core::contracts::EventType;
use ff_core::engine::clock::ManualClock;
use ff_core::rows::{CascadeKind, CascadeRow, FrameRow, StepRow};
use ff_core::store::memory::{MemoryStore, Tables};
use ff_core::types::ExecutionKey;

use bus::{Bus, Event};
use history::History;
use limits::Declared;
use server::{Node, Overdue};
use worker::Worker;

/// How large a run is, and how much goes wrong in it. Probabilities are in thousandths.
#[derive(Clone, Debug)]
pub struct Config {
    pub executions: usize,
    pub flows: usize,
    pub workers: usize,
    pub servers: usize,
    /// Deliveries until the faults stop and everything must come to an end.
    pub steps: u64,
    pub drop: u32,
    pub duplicate: u32,
    /// Of a batch: its server dies in the course of it.
    pub server_crash: u32,
    /// Of a worker that wakes up.
    pub worker_crash: u32,
    pub worker_pause: u32,
    /// Of a delivery: the store's clock does something else than to go on.
    pub clock_fault: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            executions: 10,
            flows: 2,
            workers: 3,
            servers: 2,
            steps: 1_000,
            drop: 25,
            duplicate: 40,
            server_crash: 25,
            worker_crash: 10,
            worker_pause: 25,
            clock_fault: 8,
        }
    }
}

/// What a run covered, so that one can see that it was not an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub steps: u64,
    pub operations: u64,
    pub succeeded: u64,
    pub events: u64,
    pub server_crashes: u64,
    pub worker_crashes: u64,
    pub pauses: u64,
    /// Late writes of workers that had lost their lease, refused.
    pub zombies: u64,
    pub drops: u64,
    pub duplicates: u64,
    pub clock_faults: u64,
    pub expiries: u64,
    pub retries: u64,
    pub revocations: u64,
    pub cancels: u64,
    pub replays: u64,
    /// Executions that had to wait for a limit.
    pub limited: u64,
    pub skips: u64,
    pub cancelled_flows: u64,
    pub suspensions: u64,
    pub signals: u64,
    /// Suspended executions that went on.
    pub resumptions: u64,
    /// Runs that a schedule has started.
    pub scheduled: u64,
    pub extensions: u64,
    /// Members that waited for what they had added.
    pub waits_for_children: u64,
    pub bulks: u64,
    pub steps_recorded: u64,
    pub frames: u64,
    pub flow_replays: u64,
    /// Flows that were cancelled and left members to be acknowledged.
    pub headers: u64,
    /// Limits that were declared anew while work was in hand.
    pub limit_changes: u64,
    /// Equal for equal logs.
    pub digest: u64,
}

impl Report {
    /// Whether enough succeeded for the run to say something.
    pub fn is_valid(&self) -> bool {
        self.succeeded * 2 >= self.operations
    }

    /// Adds another run's figures to these.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.operations += other.operations;
        self.succeeded += other.succeeded;
        self.events += other.events;
        self.server_crashes += other.server_crashes;
        self.worker_crashes += other.worker_crashes;
        self.pauses += other.pauses;
        self.zombies += other.zombies;
        self.drops += other.drops;
        self.duplicates += other.duplicates;
        self.clock_faults += other.clock_faults;
        self.expiries += other.expiries;
        self.retries += other.retries;
        self.revocations += other.revocations;
        self.cancels += other.cancels;
        self.replays += other.replays;
        self.limited += other.limited;
        self.skips += other.skips;
        self.cancelled_flows += other.cancelled_flows;
        self.suspensions += other.suspensions;
        self.signals += other.signals;
        self.resumptions += other.resumptions;
        self.scheduled += other.scheduled;
        self.extensions += other.extensions;
        self.waits_for_children += other.waits_for_children;
        self.bulks += other.bulks;
        self.steps_recorded += other.steps_recorded;
        self.frames += other.frames;
        self.flow_replays += other.flow_replays;
        self.headers += other.headers;
        self.limit_changes += other.limit_changes;
        self.digest ^= other.digest;
    }

    fn count_events(&mut self, tables: &Tables) {
        self.steps_recorded = limits::records::<StepRow>(tables).len() as u64;
        self.frames = limits::records::<FrameRow>(tables).len() as u64;
        for event in tables.events.values() {
            self.events += 1;
            match event.event_type {
                EventType::LeaseExpired => self.expiries += 1,
                EventType::RetryScheduled => self.retries += 1,
                EventType::LeaseRevoked => self.revocations += 1,
                EventType::Cancelled => self.cancels += 1,
                EventType::Replayed => self.replays += 1,
                EventType::Limited => self.limited += 1,
                EventType::Skipped => self.skips += 1,
                EventType::FlowCancelRequested => self.cancelled_flows += 1,
                EventType::Suspended => self.suspensions += 1,
                EventType::SignalDelivered => self.signals += 1,
                EventType::Resumed => self.resumptions += 1,
                EventType::FlowExtended => self.extensions += 1,
                EventType::WaitingChildren => self.waits_for_children += 1,
                EventType::BulkStarted => self.bulks += 1,
                EventType::FlowReplayed => self.flow_replays += 1,
                EventType::LimitDeclared | EventType::LimitDeleted => self.limit_changes += 1,
                _ => {}
            }
            let facts = [event.seq, event.version, event.lease_epoch, event.at.0.cast_unsigned()];
            let about = event.execution.map_or(0, |key| key.id.as_u64_pair().0);
            for fact in facts.into_iter().chain([about, event.event_type as u64]) {
                self.digest = (self.digest ^ fact).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }
}

/// A broken promise, and how to see it again.
#[derive(Debug)]
pub struct Violation {
    pub seed: u64,
    /// The invariant's name.
    pub invariant: &'static str,
    /// What was seen, and the log of the execution that it is about.
    pub description: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} is broken: {}", self.seed, self.invariant, self.description)
    }
}

/// What the checker found, before the seed and the log are put to it.
#[derive(Debug)]
struct Broken {
    invariant: &'static str,
    execution: Option<ExecutionKey>,
    what: String,
}

type Checked = Result<(), Broken>;

fn broken(
    invariant: &'static str,
    execution: impl Into<Option<ExecutionKey>>,
    what: impl Into<String>,
) -> Broken {
    Broken { invariant, execution: execution.into(), what: what.into() }
}

/// One whole run. The same seed and configuration give the same run.
pub fn run(seed: u64, config: &Config) -> Result<Report, Violation> {
    let mut simulation = Simulation::new(seed, config);
    let outcome = simulation.play();
    let tables = simulation.store.dump();
    let outcome = outcome.and_then(|()| checker::check(&simulation.history, &tables));
    let outcome = outcome.and_then(|()| simulation.check_rates(&tables));
    let outcome = outcome.and_then(|()| schedules::check(&tables));
    outcome.map_err(|found| describe(seed, found, &tables))?;
    let mut report = simulation.report;
    report.count_events(&tables);
    (report.operations, report.succeeded) = simulation.history.operations();
    report.headers = simulation.history.cancelled_headers();
    Ok(report)
}

fn describe(seed: u64, found: Broken, tables: &Tables) -> Violation {
    let mut description = found.what;
    let about = found.execution.filter(|key| tables.executions.contains_key(key));
    if let Some(key) = about {
        let events = tables.events.values().filter(|event| event.execution == Some(key));
        description += &format!("\n{:?} has this log:", key.id);
        for event in events {
            description += &checker::line(event);
        }
    }
    Violation { seed, invariant: found.invariant, description }
}

/// Everything that there is in a run.
struct Simulation {
    config: Config,
    rng: Rng,
    bus: Bus,
    clock: Arc<ManualClock>,
    store: MemoryStore,
    nodes: Vec<Node>,
    /// What the last sweep left undone.
    overdue: BTreeSet<Overdue>,
    workers: Vec<Worker>,
    history: History,
    report: Report,
    declared: Declared,
    /// Faults happen until the run is asked to come to an end.
    faulty: bool,
}

/// Virtual time after the faults within which everything must have ended.
const PATIENCE_MS: u64 = 240_000;

impl Simulation {
    fn new(seed: u64, config: &Config) -> Self {
        let mut rng = Rng::with_seed(seed);
        let clock = Arc::new(ManualClock::new(1_000_000));
        let mut simulation = Self {
            bus: Bus::default(),
            store: MemoryStore::new(clock.clone()),
            clock,
            nodes: (0..config.servers).map(|_| Node::new(&mut rng)).collect(),
            workers: (0..config.workers).map(|index| Worker::new(index, &mut rng)).collect(),
            history: History::default(),
            report: Report::default(),
            overdue: BTreeSet::new(),
            declared: Declared::default(),
            faulty: true,
            config: config.clone(),
            rng,
        };
        simulation.declare_limits();
        simulation.declare_schedule();
        simulation.plan_submissions();
        simulation.plan_flows();
        for node in 0..config.servers {
            simulation.bus.after(0, Event::Sweep(node));
        }
        for worker in 0..config.workers {
            simulation.bus.after(10, Event::WorkerWakes(worker));
        }
        simulation.bus.after(100, Event::OperatorWakes);
        simulation
    }

    fn play(&mut self) -> Checked {
        while self.report.steps < self.config.steps {
            self.step()?;
        }
        self.faulty = false;
        let patience = self.bus.now + PATIENCE_MS;
        while !self.everything_has_ended() {
            if self.bus.now > patience {
                return Err(self.stuck());
            }
            for _ in 0..20 {
                self.step()?;
            }
        }
        self.fire_what_is_left()
    }

    fn step(&mut self) -> Checked {
        self.report.steps += 1;
        let Some((passed, event)) = self.bus.next() else {
            return Ok(());
        };
        self.move_clock(passed);
        match event {
            Event::Request { node, op } => self.receive(node, op),
            Event::Reply { op, answer } => self.hear(op, answer),
            Event::Batch(node) => return self.run_batch(node),
            Event::Sweep(node) => self.request_sweep(node),
            Event::Restart(node) => self.nodes[node].is_up = true,
            Event::Timeout(op) => self.ask_again(op),
            Event::WorkerWakes(worker) => self.worker_wakes(worker),
            Event::OperatorWakes => self.operator_wakes(),
        }
        Ok(())
    }

    /// The store's clock mostly goes with the run's time.
    fn move_clock(&mut self, passed: u64) {
        let passed = i64::try_from(passed).unwrap_or(0);
        let chance = self.config.clock_fault;
        let odd = if self.happens(chance) {
            self.report.clock_faults += 1;
            if self.rng.bool() { -self.rng.i64(1..400) } else { self.rng.i64(1..4_000) }
        } else {
            0
        };
        self.clock.step(passed + odd);
    }

    /// Whether a fault with this chance, in thousandths, happens now.
    fn happens(&mut self, chance: u32) -> bool {
        self.faulty && self.rng.u32(0..1000) < chance
    }

    fn everything_has_ended(&self) -> bool {
        self.history.submissions_answered()
            && self.store.read(|tables| {
                // A backlog waits for acknowledgements, and ends long after everything else.
                let goes_on = |row: &CascadeRow| row.key.kind.0 != CascadeKind::Backlog;
                tables.executions.values().all(|row| row.is_finished())
                    && !limits::records(tables).iter().any(goes_on)
                    && schedules::have_ended(tables)
            })
    }

    fn stuck(&self) -> Broken {
        let open = self
            .store
            .read(|tables| tables.executions.values().find(|row| !row.is_finished()).cloned());
        let key = open.as_ref().map(|row| row.key);
        let what = match open {
            Some(row) => format!("an execution does not end: {row:#?}"),
            None => "a submission gets no answer".to_owned(),
        };
        broken("I46 no stuck work", key, what)
    }
}
