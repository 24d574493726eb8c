//! FlowFabric on one SQLite file: a production store for one node.
//!
//! One thread owns the only connection that writes; it loads, decides and commits whatever queued
//! up while the last commit was flushing. Reads go through a pool of their own.

#![forbid(unsafe_code)]
#![deny(warnings, clippy::all, clippy::dbg_macro, clippy::todo, clippy::unimplemented)]
#![deny(clippy::needless_pass_by_value, clippy::unused_async)]

mod bound;
mod cells;
mod columns;
mod config;
mod error;
mod files;
mod flows;
mod held;
mod load;
mod lock;
mod migrate;
mod open;
mod order;
mod query;
mod records;
mod statements;
mod sweep;
mod transact;
mod write;
mod writer;

pub use config::{SqliteOptions, Synchronous};
pub use error::SqliteError;
pub use rusqlite;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ff_core::contracts::{Durability, Submission, SubmitOutcome};
use ff_core::engine::Engine;
use ff_core::engine::clock::Clock;
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::{EngineError, StoreError};
use ff_core::store::{Batch, Bells, Query, Rows, Store};
use ff_core::types::{FlowId, LaneId, TimestampMs};
use sqlx::SqlitePool;

use config::Location;
use files::Files;
use transact::Connection;
use writer::Writer;

/// An engine on a SQLite file.
pub struct SqliteBackend {
    engine: Arc<Engine>,
    store: Arc<SqliteStore>,
    location: Location,
    writer: Mutex<Option<Writer>>,
    writable: OnceLock<SqlitePool>,
    readers: SqlitePool,
}

/// The store behind it: the writer's connection and the readers' pool.
pub(crate) struct SqliteStore {
    /// The one connection that writes. Whoever holds the lock is the writer.
    connection: Mutex<Option<Connection>>,
    /// Absent for a database in memory.
    files: Option<Arc<Files>>,
    readers: SqlitePool,
    clock: Arc<dyn Clock>,
    bells: Arc<Bells>,
    durability: Durability,
}

impl SqliteStore {
    fn writer(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SqliteBackend {
    /// Opens, or creates, a database with the default options. The argument is a path, a
    /// `sqlite:` or `file:` URI, or `:memory:`.
    pub async fn new(path: &str) -> Result<Arc<Self>, SqliteError> {
        Self::open(SqliteOptions::new(path)).await
    }

    pub async fn open(options: SqliteOptions) -> Result<Arc<Self>, SqliteError> {
        let (location, lock) = lock::take(&Location::parse(&options.uri)?, options.migrate)?;
        let opening = (location.clone(), options.synchronous, options.migrate);
        let opened =
            tokio::task::spawn_blocking(move || Connection::open(&opening.0, opening.1, opening.2));
        let connection = opened.await.map_err(|error| SqliteError::Open(error.to_string()))??;
        lock.verify(&location)?;
        let readers = location.readers(options.readers);
        let store = Arc::new(SqliteStore {
            files: connection.files(),
            connection: Mutex::new(Some(connection)),
            readers: readers.clone(),
            clock: options.clock,
            bells: Arc::default(),
            durability: match options.synchronous {
                _ if location.is_memory() => Durability::BestEffort,
                Synchronous::Full => Durability::PowerLoss,
                Synchronous::Normal => Durability::ProcessCrash,
            },
        });
        let batch = options.engine.limits.batch;
        let (engine, queue) = Engine::new(store.clone(), options.engine);
        let writer = Writer::start(store.clone(), queue, batch, lock)?;
        let engine = Arc::new(engine);
        engine.spawn_sweeper();
        let writer = Mutex::new(Some(writer));
        let writable = OnceLock::new();
        Ok(Arc::new(Self { engine, store, location, writer, writable, readers }))
    }

    /// Runs a closure in the writer's transaction and submits what it returns in the same commit:
    /// either the caller's own rows and the executions are both there, or neither is. The closure
    /// must not commit or roll back.
    pub async fn submit_with<T, F>(&self, work: F) -> Result<(T, Vec<SubmitOutcome>), EngineError>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Connection) -> Result<(T, Vec<Submission>), rusqlite::Error>
            + Send
            + 'static,
    {
        let (store, engine) = (self.store.clone(), self.engine.clone());
        let run = tokio::task::spawn_blocking(move || transact::submit_with(&store, &engine, work));
        // The closure's panic must not become the caller's.
        run.await.unwrap_or_else(|error| {
            Err(StoreError::Failed(error.to_string()).into_engine_error("sqlite"))
        })
    }

    /// Ends the writer after what is queued, folds the log back into the file and gives the file
    /// free. Later calls answer that the store is closed.
    pub async fn close(&self) {
        let writer = {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.take()
        };
        self.readers.close().await;
        if let Some(writable) = self.writable.get() {
            writable.close().await;
        }
        if let Some(writer) = writer {
            let _ = tokio::task::spawn_blocking(move || writer.stop()).await;
        }
    }

    /// A writable pool on the same database, for tests that set rows by hand.
    pub fn pool_for_test(&self) -> &SqlitePool {
        self.writable.get_or_init(|| self.location.writable_pool())
    }
}

impl Drop for SqliteBackend {
    fn drop(&mut self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = writer.take() {
            // The file must be free for whoever opens it next.
            writer.stop();
        }
    }
}

impl EngineBackend for SqliteBackend {
    fn engine(&self) -> &Engine {
        &self.engine
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn now(&self) -> TimestampMs {
        self.clock.now()
    }

    async fn sleep_until(&self, at: TimestampMs) {
        self.clock.sleep_until(at).await;
    }

    fn flow_partition(&self, _: &FlowId) -> u16 {
        0
    }

    fn solo_partition(&self, _: &LaneId) -> u16 {
        0
    }

    /// Never waits: it runs on the writer's own thread.
    async fn transact(&self, batch: &mut Batch) -> Result<(), StoreError> {
        let mut connection = self.writer();
        let connection = connection.as_mut().ok_or(StoreError::Closed)?;
        connection.transact(batch, self.clock.now(), &self.bells)
    }

    fn answered(&self) {
        if let Some(connection) = self.writer().as_mut() {
            connection.learn();
            connection.checkpoint_if_full();
        }
    }

    fn distrust(&self) {
        if let Some(connection) = self.writer().as_mut() {
            connection.distrust_memory();
        }
    }

    fn idle(&self, quiet: Duration) {
        if let Some(connection) = self.writer().as_mut() {
            connection.fold(quiet);
        }
    }

    async fn query(&self, query: Query) -> Result<Rows, StoreError> {
        if let Some(files) = &self.files {
            match query {
                // Readiness is asked for by this, and subscriptions begin with it.
                Query::Log => files.check()?,
                _ => files.healthy()?,
            }
        }
        let mut rows = query::run(&self.readers, query, self.clock.now()).await?;
        rows.now = self.clock.now();
        Ok(rows)
    }

    fn listen(&self) -> &Arc<Bells> {
        &self.bells
    }
}
