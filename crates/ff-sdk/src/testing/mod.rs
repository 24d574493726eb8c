//! Runs handlers in memory, under a clock that moves only when a test says so.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//!
//! use ff_sdk::testing::TestKit;
//! use ff_sdk::{Input, Outcome, Task, Worker};
//!
//! const REMIND: Task<String, String> = Task::new("remind");
//!
//! async fn remind(Input(whom): Input<String>) -> Outcome<String> {
//!     Ok(format!("reminded {whom}"))
//! }
//!
//! let kit = TestKit::new(|client| Worker::new(client).task(REMIND, remind))?;
//! let month = Duration::from_secs(30 * 24 * 60 * 60);
//! let run = kit.client().start(REMIND, &"Ada".to_owned()).delay(month).await?;
//! kit.run_until_idle().await?;
//! assert!(!run.describe().await?.public_state.is_finished());
//! kit.advance(month).await?;
//! assert_eq!(run.result().await?, "reminded Ada");
//! # Ok::<(), ff_sdk::Error>(())
//! # }).unwrap();
//! ```

mod submitted;

pub use submitted::Submitted;

use std::sync::Arc;
use std::time::Duration;

use ff_core::contracts::{ClaimArgs, ClaimedExecution, FlowSnapshot};
use ff_core::engine::EngineConfig;
use ff_core::engine::clock::{Clock as _, ManualClock};
use ff_core::engine_backend::EngineBackend;
use ff_core::limits;
use ff_core::operations::timer::Retention;
use ff_core::store::Query;
use ff_core::store::memory::MemoryBackend;
use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets};
use ff_core::types::TimestampMs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Run};
use crate::ctx::Ctx;
use crate::error::Error;
use crate::flow::FlowRun;
use crate::task::Task;
use crate::transport::Report;
use crate::worker::{self, Ending, Leases, Reporting, Setup, Told, Worker};

/// When the clock of a kit starts: some day in January 2027.
const START_MS: i64 = 1_800_000_000_000;
/// Time stands still while handlers run, so no lease is ever too short.
const LEASE_MS: u32 = 60 * 60 * 1000;
/// How often a single result may have to wait for time to pass.
const MOST_WAITS: usize = 100_000;

/// An engine in memory with one worker that takes work from every lane. Nothing happens in the
/// background: handlers run while the kit is asked to run them.
pub struct TestKit {
    backend: Arc<MemoryBackend>,
    clock: Arc<ManualClock>,
    setup: Arc<Setup>,
}

impl TestKit {
    /// A kit for a worker. Must be called inside a tokio runtime.
    pub fn new(worker: impl FnOnce(Client) -> Worker) -> Result<Self, Error> {
        let clock = Arc::new(ManualClock::new(START_MS));
        let secret =
            WaitpointSecret::new("testing", Secret::new(*b"no secret at all, only for tests"))?;
        let config = EngineConfig {
            retention: Retention::FOREVER,
            waitpoint_secrets: WaitpointSecrets::new([secret])?,
            ..EngineConfig::default()
        };
        let backend = MemoryBackend::new(clock.clone(), config);
        let client = Client::embedded(backend.clone());
        let setup = Arc::new(worker(client).clock(clock.clone()).check()?);
        Ok(Self { backend, clock, setup })
    }

    pub fn client(&self) -> &Client {
        &self.setup.client
    }

    /// The engine, for whatever the client does not offer.
    pub fn engine(&self) -> Arc<dyn EngineBackend> {
        self.backend.clone()
    }

    pub fn now(&self) -> TimestampMs {
        self.clock.now()
    }

    /// Starts a task and gives its result, skipping the time that it waits.
    pub async fn run<I: Serialize, O: DeserializeOwned + 'static>(
        &self,
        task: Task<I, O>,
        input: &I,
    ) -> Result<O, Error> {
        self.result(&self.client().start(task, input).await?).await
    }

    /// Runs a whole flow to its end, skipping the time that it waits.
    pub async fn finish(&self, flow: &FlowRun) -> Result<FlowSnapshot, Error> {
        for _ in 0..MOST_WAITS {
            self.run_until_idle().await?;
            let snapshot = flow.describe().await?;
            if snapshot.status.is_finished() {
                return Ok(snapshot);
            }
            if !self.skip().await? {
                break;
            }
        }
        Err(Error::config(format!("flow {} does not end by itself", flow.id().0)))
    }

    /// The result of an execution, skipping the time that it waits. An execution that waits for
    /// something else than time is an error that says for what.
    pub async fn result<O: DeserializeOwned>(&self, run: &Run<O>) -> Result<O, Error> {
        for _ in 0..MOST_WAITS {
            self.run_until_idle().await?;
            if run.describe().await?.public_state.is_finished() {
                return run.result().await;
            }
            if !self.skip().await? {
                break;
            }
        }
        let why = self.backend.explain(run.id()).await?;
        Err(Error::config(format!("{} does not end by itself: {}", run.id(), why.words)))
    }

    /// Lets time pass. Whatever falls due on the way runs at its own time.
    pub async fn advance(&self, by: Duration) -> Result<(), Error> {
        let until = self.now().after(by);
        self.run_until_idle().await?;
        while let Some(due) = self.next_due().await?
            && due <= until
        {
            self.move_to(due).await?;
            self.run_until_idle().await?;
        }
        self.move_to(until).await?;
        self.run_until_idle().await
    }

    /// Runs handlers until nothing is left that can run at this time.
    pub async fn run_until_idle(&self) -> Result<(), Error> {
        let mut running = JoinSet::new();
        // A handler may wait for what it has submitted, so new work is taken while others run.
        let mut bell = self.backend.engine().store().listen().events();
        loop {
            bell.borrow_and_update();
            for claimed in self.claim().await? {
                running.spawn(attempt(self.setup.clone(), claimed));
            }
            if running.is_empty() {
                // Some things are left to the timers even if they are due at once.
                match self.backend.engine().sweep().await? {
                    0 => return Ok(()),
                    _ => continue,
                }
            }
            tokio::select! {
                Some(ended) = running.join_next() => self.tell(ended).await?,
                _ = bell.changed() => {}
            }
        }
    }

    async fn claim(&self) -> Result<Vec<ClaimedExecution>, Error> {
        let lanes: Vec<_> =
            self.backend.list_lanes().await?.into_iter().map(|lane| lane.lane_id).collect();
        let mut claimed = Vec::new();
        for lanes in lanes.chunks(limits::CLAIM_LANES) {
            let args = ClaimArgs {
                lanes: lanes.to_vec(),
                lease_ttl_ms: LEASE_MS,
                max: limits::CLAIM_BATCH,
                wait: Duration::ZERO,
                ..self.setup.claim.clone()
            };
            claimed.extend(self.client().transport().claim(args).await?);
        }
        Ok(claimed)
    }

    async fn tell(&self, ended: Result<Option<Told>, tokio::task::JoinError>) -> Result<(), Error> {
        let ended = ended.map_err(|error| Error::config(format!("a handler died: {error}")))?;
        let lease = Duration::from_millis(u64::from(LEASE_MS));
        let leases = Arc::new(Leases::new(lease, self.clock.clone()));
        let transport = self.client().transport().clone();
        let mut reporting = Reporting::new(transport, self.clock.clone(), leases);
        reporting.send(ended.into_iter().collect());
        while !reporting.is_idle() {
            reporting.progress().await;
        }
        Ok(())
    }

    /// Moves on to when something happens by itself; false if nothing ever does.
    async fn skip(&self) -> Result<bool, Error> {
        let due = self.next_due().await?;
        if let Some(due) = due {
            self.move_to(due).await?;
        }
        Ok(due.is_some())
    }

    /// When something happens by itself next.
    async fn next_due(&self) -> Result<Option<TimestampMs>, Error> {
        Ok(self.backend.engine().query(Query::NextDue(None)).await?.next_due)
    }

    async fn move_to(&self, at: TimestampMs) -> Result<(), Error> {
        self.clock.advance(at.since(self.now()));
        self.backend.engine().sweep().await?;
        Ok(())
    }
}

async fn attempt(setup: Arc<Setup>, claimed: ClaimedExecution) -> Option<Told> {
    let handle = claimed.handle.clone();
    let (client, states) = (setup.client.clone(), setup.states.clone());
    let ctx = Ctx::new(claimed, client, states, CancellationToken::new());
    match worker::run(&setup, ctx).await {
        Ending::Told(verdict) => Some(Told::new(0, Report { handle, verdict })),
        Ending::PutDown | Ending::Stopped => None,
    }
}
