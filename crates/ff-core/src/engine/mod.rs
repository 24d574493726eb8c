//! The shell around the pure core: it batches, waits, sweeps and serves subscriptions.

mod batcher;
mod caution;
mod claiming;
pub mod clock;
mod cursor;
mod journal;
#[cfg(test)]
mod panics;
pub(crate) mod prepare;
mod subscription;
mod supervise;
mod sweeper;

pub use batcher::{Pumping, QUIET, Shared, pump, pump_shared};
pub use claiming::Grants;
pub use cursor::{Cursor, CursorKey, Place};
pub(crate) use prepare::fingerprint;
pub(crate) use prepare::size::check as check_size;
pub use prepare::suspension::prepare_deliver_signal;
pub(crate) use prepare::{check_amounts, check_budget, check_quota, check_report, limit_namespace};
pub(crate) use prepare::{check_bytes, check_count, check_duration, check_tag_key, check_text};
pub(crate) use prepare::{
    check_step_name, check_step_result, edge_row, node_id, prepare_append, prepare_register,
    worker_key, worker_namespace,
};
pub(crate) use prepare::{check_timing, prepare_put_schedule, schedule_key};
pub(crate) use prepare::{prepare_bulk, prepare_filter};
pub use prepare::{
    prepare_create, prepare_extend_flow, prepare_submission, prepare_submit, prepare_submit_flow,
};
pub use subscription::{StartAt, Subscription};
pub use supervise::{caught, message_of, supervise};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use self::caution::Caution;
use self::journal::Journal;
use crate::contracts::Stamp;
use crate::engine_error::{EngineError, StoreError};
use crate::limits::Limits;
use crate::operations::Operation;
use crate::operations::timer::{Announce, Retain, Retention};
use crate::store::{Job, Query, Rows, Store};
use crate::token::{Keyring, WaitpointSecrets};
use crate::types::Namespace;

/// How an engine behaves, whatever its store.
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    pub limits: Limits,
    pub retention: Retention,
    /// What waitpoint tokens are made and checked with. Without any, work can still be suspended
    /// and resumed from within, and asking for a token is refused.
    pub waitpoint_secrets: WaitpointSecrets,
    /// Timers are fired by whoever calls [`Engine::sweep`] and not by a task of this engine.
    pub manual_sweeps: bool,
}

/// What an operation may see, and who its events name.
#[derive(Clone, Copy)]
pub struct Caller<'c> {
    /// Only this namespace, if there is one.
    pub scope: Option<&'c Namespace>,
    pub stamp: Option<&'c Arc<Stamp>>,
}

impl Caller<'_> {
    fn job<O: Operation>(self, operation: O, reply: crate::store::Reply<O::Reply>) -> Job {
        Job::new(operation, self.scope.cloned(), reply).stamped(self.stamp)
    }
}

/// The door to one store. Cheap to use from many tasks at once.
pub struct Engine {
    store: Arc<dyn Store>,
    queue: mpsc::Sender<Job>,
    config: EngineConfig,
    keyring: Keyring,
    /// Closes with the engine, which ends its sweeper.
    alive: watch::Sender<()>,
    /// A claim has met limits.
    limited: AtomicBool,
    journal: Journal,
}

/// The receiving end of an engine's queue, for whoever runs [`pump`].
pub type Queue = mpsc::Receiver<Job>;

const ANNOUNCE: usize = 500;
const RETAIN_EVENTS: usize = 500;

impl Engine {
    /// An engine and the queue that something must pump into the store.
    pub fn new(store: Arc<dyn Store>, config: EngineConfig) -> (Self, Queue) {
        let (queue, waiting) = mpsc::channel(config.limits.queue);
        let keyring = Keyring::new(&config.waitpoint_secrets);
        let (alive, limited) = (watch::Sender::new(()), AtomicBool::new(false));
        let journal = Journal::default();
        (Self { store, queue, config, keyring, alive, limited, journal }, waiting)
    }

    /// An engine whose queue is pumped by a task, with its own sweeper.
    pub fn start(store: Arc<dyn Store>, config: EngineConfig) -> Arc<Self> {
        let pumping = Pumping { max_batch: config.limits.batch, own_thread: false };
        let (engine, queue) = Self::new(store.clone(), config);
        tokio::spawn(pump(store, queue, pumping, std::future::pending()));
        let engine = Arc::new(engine);
        engine.spawn_sweeper();
        engine
    }

    /// Starts the task that fires timers; it ends when the engine is dropped.
    pub fn spawn_sweeper(self: &Arc<Self>) {
        if !self.config.manual_sweeps {
            let engine = Arc::downgrade(self);
            tokio::spawn(supervise("sweeper", move || sweeper::sweep(engine.clone())));
        }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// What makes and checks waitpoint tokens here.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Runs one operation and answers once it is committed.
    pub async fn run<O: Operation>(
        &self,
        scope: Option<&Namespace>,
        operation: O,
    ) -> Result<O::Reply, EngineError> {
        self.run_as(Caller { scope, stamp: None }, operation).await
    }

    /// The same for a caller that the events are to name.
    pub async fn run_as<O: Operation>(
        &self,
        caller: Caller<'_>,
        operation: O,
    ) -> Result<O::Reply, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(caller.job(operation, reply))?;
        self.answered(answer.await)
    }

    fn enqueue(&self, job: Job) -> Result<(), EngineError> {
        self.queue.try_send(job).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => EngineError::ResourceExhausted {
                pool: "writer",
                max: self.config.limits.queue,
                retry_after_ms: Some(50),
            },
            mpsc::error::TrySendError::Closed(_) => self.store_error(StoreError::Closed),
        })
    }

    /// A writer that dies with the job in hand may have committed it.
    fn answered<T>(
        &self,
        answer: Result<Result<T, EngineError>, oneshot::error::RecvError>,
    ) -> Result<T, EngineError> {
        answer.unwrap_or_else(|_| {
            let detail = "the writer stopped before it answered".to_owned();
            Err(self.store_error(StoreError::Unknown(detail)))
        })
    }

    pub async fn query(&self, query: Query) -> Result<Rows, EngineError> {
        if query.has_nul() {
            return Err(EngineError::invalid("a filter contains a NUL character"));
        }
        self.store.query(query).await.map_err(|error| self.store_error(error))
    }

    /// Refuses if the writer has ended, as every later call that writes is refused.
    pub fn check_writing(&self) -> Result<(), EngineError> {
        match self.queue.is_closed() {
            true => Err(self.store_error(StoreError::Closed)),
            false => Ok(()),
        }
    }

    /// Announces what the log has not told of, fires every timer that is due and forgets what is
    /// past retention. One of them that fails does not keep the others from being done.
    pub async fn sweep(&self) -> Result<usize, EngineError> {
        let announced = self.announce().await;
        // A store that cannot be used cannot be used for the rest either.
        if announced.as_ref().is_err_and(EngineError::is_of_store) {
            return announced;
        }
        let fired = self.fire().await;
        let retired = self.retain().await;
        Ok(announced? + fired? + retired?)
    }

    async fn retain(&self) -> Result<usize, EngineError> {
        let mut total = 0;
        while let Some(scan) = self.config.retention.scan(RETAIN_EVENTS) {
            let retired = self.run(None, Retain { scan }).await?;
            // A log in several shards is trimmed one by one.
            if retired == 0 {
                break;
            }
            // What was forgotten may be the last of a flow.
            total += retired + self.fire().await?;
        }
        Ok(total)
    }

    async fn fire(&self) -> Result<usize, EngineError> {
        let mut total = 0;
        let mut caution = Caution::default();
        loop {
            let (sweep, last) = caution.sweep(&self.journal);
            let swept = match self.run(None, sweep).await {
                Err(error) => {
                    caution.grow(error, &last)?;
                    continue;
                }
                Ok(swept) => swept,
            };
            caution.fault = None;
            self.journal.tell(&swept.notes);
            self.journal.tell_faults(&swept.faults);
            total += swept.timers;
            // One sweep moves an execution once; what else is due for it is for the next one.
            if swept.timers == 0 {
                return Ok(total);
            }
        }
    }

    async fn announce(&self) -> Result<usize, EngineError> {
        let mut total = 0;
        loop {
            let announced = self.run(None, Announce { limit: ANNOUNCE }).await?;
            self.journal.tell(&announced.notes);
            total += announced.executions;
            if announced.executions < ANNOUNCE {
                return Ok(total);
            }
        }
    }

    pub(crate) fn store_error(&self, error: StoreError) -> EngineError {
        error.into_engine_error(self.store.name())
    }
}

/// So that many waiters do not look at the same moment.
pub(crate) fn with_jitter(patience: Duration) -> Duration {
    patience.mul_f64(0.75 + 0.5 * fastrand::f64())
}
