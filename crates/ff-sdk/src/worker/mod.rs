//! Claims executions, runs their handlers and tells what became of them.

mod driver;
mod leases;
mod presence;
mod reporting;
mod runner;

pub(crate) use leases::Leases;
pub(crate) use reporting::{Reporting, Told};
pub(crate) use runner::{Ending, run};

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ff_core::backend::CapabilitySet;
use ff_core::contracts::ClaimArgs;
use ff_core::engine::clock::Clock;
use ff_core::limits;
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::client::Client;
use crate::clock::MonotonicClock;
use crate::error::Error;
use crate::extract::States;
use crate::handler::{AnyHandler, Erased, Handler, Takes};
use crate::task::{DEFAULT_LANE, Task};

use driver::Driver;
use presence::Presence;

/// How long a claim waits for work before it is asked again.
const CLAIM_WAIT: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(30);
const SHORTEST_LEASE: Duration = Duration::from_millis(100);
const DRAIN: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 64;

/// A worker that is being set up. [`Worker::run_until`] runs it.
///
/// Handlers share the program's threads, so a handler that computes for long or blocks belongs into
/// `tokio::task::spawn_blocking`. Leases are kept on a thread of their own: a handler that blocks
/// all the others still does not lose them.
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    client: Client,
    handlers: HashMap<String, Arc<dyn AnyHandler>>,
    twice: Option<String>,
    states: States,
    name: String,
    lanes: Vec<String>,
    capabilities: Vec<String>,
    concurrency: usize,
    lease: Duration,
    drain: Duration,
    unknown_kind: UnknownKind,
    clock: Arc<dyn Clock>,
}

/// What becomes of an execution whose kind the worker has no handler for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownKind {
    /// It fails, fatally, and says so.
    #[default]
    Fail,
    /// It is put back and handed out again after this much time, perhaps to a worker that knows it.
    Release(Duration),
}

/// What everything inside a running worker shares.
pub(crate) struct Setup {
    pub client: Client,
    handlers: HashMap<String, Arc<dyn AnyHandler>>,
    pub states: States,
    pub claim: ClaimArgs,
    concurrency: usize,
    /// How long a handler may go on after it was told to stop.
    grace: Duration,
    drain: Duration,
    unknown_kind: UnknownKind,
    clock: Arc<dyn Clock>,
}

impl Worker {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            handlers: HashMap::new(),
            twice: None,
            states: States::default(),
            name: "worker".to_owned(),
            lanes: Vec::new(),
            capabilities: Vec::new(),
            concurrency: CONCURRENCY,
            lease: LEASE,
            drain: DRAIN,
            unknown_kind: UnknownKind::default(),
            clock: Arc::new(MonotonicClock::new()),
        }
    }

    /// Handles executions of a kind.
    pub fn handle<Args, H>(mut self, kind: impl Into<String>, handler: H) -> Self
    where
        Args: 'static,
        H: Handler<Args>,
    {
        let kind = kind.into();
        let handler: Arc<dyn AnyHandler> = Arc::new(Erased::new(handler));
        if self.handlers.insert(kind.clone(), handler).is_some() {
            self.twice = Some(kind);
        }
        self
    }

    /// Handles a task. The handler must take the task's input as its last argument and answer the
    /// task's result.
    pub fn task<I, O, Args, H>(self, task: Task<I, O>, handler: H) -> Self
    where
        O: Serialize,
        Args: Takes<I> + 'static,
        H: Handler<Args, Value = O>,
    {
        self.handle(task.kind(), handler)
    }

    /// A value that handlers take as [`State`](crate::State). One of each type.
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// The name of the program, for operators. Each run adds an identity of its own.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// A lane to take work from, besides those named before. Without any it is `default`.
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.lanes.push(lane.into());
        self
    }

    pub fn lanes<L: Into<String>>(mut self, lanes: impl IntoIterator<Item = L>) -> Self {
        self.lanes.extend(lanes.into_iter().map(Into::into));
        self
    }

    /// What this worker can do that not every worker can.
    pub fn capabilities<C: Into<String>>(mut self, tokens: impl IntoIterator<Item = C>) -> Self {
        self.capabilities.extend(tokens.into_iter().map(Into::into));
        self
    }

    /// How many handlers run at the same time; 64 unless it is said.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// How long after this worker's death its executions go to others; 30 seconds unless it is
    /// said. Leases are renewed three times in that time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long a shutdown waits for handlers that are running; 30 seconds unless it is said. What
    /// is still running then is stopped and put back.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// What becomes of kinds without a handler.
    pub fn unknown_kind(mut self, unknown_kind: UnknownKind) -> Self {
        self.unknown_kind = unknown_kind;
        self
    }

    /// The clock by which leases are kept, for tests. The default is this host's monotonic one.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Works until `shutdown` is ready, then lets running handlers finish. It fails at once if it
    /// is set up wrong, and later not at all: an engine that cannot be reached is asked again.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let lease = self.lease;
        let setup = Arc::new(self.check()?);
        let leases = Arc::new(Leases::new(lease, setup.clock.clone()));
        let transport = setup.client.transport();
        let apart = transport.apart().unwrap_or_else(|| transport.clone());
        let presence = Presence::new(apart.clone(), setup.clock.clone(), &setup.claim);
        let keeper = leases.keep_apart(apart, presence)?;
        let stop = CancellationToken::new();
        let driver = Driver::new(setup, leases, stop.clone());
        let mut driver = AbortOnDrop(tokio::spawn(driver.run()));
        tokio::select! {
            biased;
            ended = &mut driver.0 => return died(ended),
            () = shutdown => stop.cancel(),
        }
        let ended = (&mut driver.0).await;
        // The last renewal may still be under way: nothing of the worker outlives this call.
        let _ = keeper.await;
        died(ended)
    }

    pub(crate) fn check(self) -> Result<Setup, Error> {
        if let Some(kind) = self.twice {
            return Err(Error::config(format!("two handlers are given for the kind {kind:?}")));
        }
        if self.handlers.is_empty() {
            return Err(Error::config("the worker has no handler"));
        }
        if self.concurrency == 0 {
            return Err(Error::config("a worker needs a concurrency of at least 1"));
        }
        let longest = Duration::from_millis(u64::from(limits::LEASE_TTL_MAX_MS));
        if !(SHORTEST_LEASE..=longest).contains(&self.lease) {
            let lease = self.lease;
            let limit = format!("{SHORTEST_LEASE:?} to {longest:?}");
            return Err(Error::config(format!("a lease of {lease:?} is not within {limit}")));
        }
        for handler in self.handlers.values() {
            handler.check(&self.states)?;
        }
        Ok(Setup {
            claim: self.claim_args()?,
            client: self.client,
            handlers: self.handlers,
            states: self.states,
            concurrency: self.concurrency,
            grace: leases::margin(self.lease) / 2,
            drain: self.drain,
            unknown_kind: self.unknown_kind,
            clock: self.clock,
        })
    }

    fn claim_args(&self) -> Result<ClaimArgs, Error> {
        let invalid = |error: ff_core::types::NameError| Error::config(error.to_string());
        let mut lanes = self.lanes.clone();
        if lanes.is_empty() {
            lanes.push(DEFAULT_LANE.to_owned());
        }
        let lanes = lanes.into_iter().map(LaneId::try_new).collect::<Result<_, _>>();
        // Never the name of a host: whoever starts again must not keep a dead worker's leases.
        let instance = format!("{}-{}", self.name, Uuid::now_v7().simple());
        Ok(ClaimArgs {
            lanes: lanes.map_err(invalid)?,
            capabilities: CapabilitySet::new(self.capabilities.clone()),
            worker_id: WorkerId::try_new(&self.name).map_err(invalid)?,
            worker_instance_id: WorkerInstanceId::try_new(instance).map_err(invalid)?,
            lease_ttl_ms: u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX),
            max: 0,
            wait: CLAIM_WAIT,
        })
    }
}

fn died(ended: Result<(), tokio::task::JoinError>) -> Result<(), Error> {
    ended.map_err(|error| Error::config(format!("the worker's own task ended: {error}")))
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
