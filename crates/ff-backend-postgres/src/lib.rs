//! FlowFabric on PostgreSQL: the same engine for several servers and many workers at once.
//!
//! A few tasks own the connections that write; each loads, decides and commits whatever queued up
//! while the others were flushing. Reads go through a pool. Several processes may use one database.

#![forbid(unsafe_code)]
#![deny(warnings, clippy::all, clippy::dbg_macro, clippy::todo, clippy::unimplemented)]
#![deny(clippy::needless_pass_by_value, clippy::unused_async)]

mod alone;
mod behind;
mod binding;
mod cache;
mod claim;
mod clock;
mod columns;
mod config;
mod error;
mod flows;
mod graphs;
mod groups;
mod hanging;
mod held;
mod listen;
mod load;
mod members;
mod migrate;
mod partitions;
mod query;
mod records;
mod sql;
mod statements;
mod submit;
mod texts;
mod together;
mod transact;
mod values;
mod write;

pub use config::PostgresOptions;
pub use error::PostgresError;
pub use migrate::{MigrationError, apply_migrations};

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ff_core::contracts::{Durability, Submission, SubmitOutcome};
use ff_core::engine::{Engine, EngineConfig, Shared, pump_shared};
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::{EngineError, StoreError};
use ff_core::partition::{PartitionConfig, flow_partition, lane_partition};
use ff_core::store::{Batch, Bells, LogSecret, Query, Rows, Store};
use ff_core::types::{ExecutionKey, FlowId, LaneId, TimestampMs};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, PgPool, Row};
use tokio::sync::{OnceCell, RwLock, watch};
use uuid::Uuid;

use alone::Turns;
use cache::Caches;
use clock::Time;
use error::store_error;
use listen::Outbox;
use sql::Writes;
use statements::Statements;
use transact::Writer;

/// An engine on a PostgreSQL database.
pub struct PostgresBackend {
    engine: Arc<Engine>,
    store: Arc<PostgresStore>,
}

/// The store behind it.
pub(crate) struct PostgresStore {
    connecting: PgConnectOptions,
    readers: PgPool,
    /// Connections that write and have nothing to do right now.
    idle: Mutex<Vec<Writer>>,
    statements: Arc<Statements>,
    writes: Writes,
    caches: Caches,
    turns: Turns,
    time: Time,
    bells: Arc<Bells>,
    outbox: Arc<Outbox>,
    partitions: PartitionConfig,
    payload_bytes: usize,
    /// The database has been found to have the same number of partitions.
    settled: OnceCell<()>,
    listens: bool,
    /// No session outlives a transaction.
    pooled: bool,
    closed: AtomicBool,
    /// Held by every transaction; whoever closes the store waits for them.
    working: RwLock<()>,
    /// Sent to when the store is closed and dropped with it, which ends its tasks.
    alive: watch::Sender<()>,
}

/// What does not change about a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub history_id: Uuid,
    pub secret: LogSecret,
    pub shards: u16,
    pub sweep_lock: i64,
}

/// Before it nothing knows `plan_cache_mode` and all that the schema uses.
const OLDEST_SERVER: i32 = 140_000;

impl PostgresBackend {
    /// An engine on the database of a pool. Reads use the pool; what is written goes through
    /// connections of the engine's own. The schema must be there: see [`apply_migrations`].
    pub fn from_pool(pool: PgPool, partition_config: PartitionConfig) -> Arc<Self> {
        let mut options = PostgresOptions::new("");
        options.partitions = partition_config;
        let connecting = (*pool.connect_options()).clone().application_name("flowfabric");
        Self::start(options, connecting, pool)
    }

    /// Opens a database with the default options and brings its schema up to date.
    pub async fn connect(url: &str) -> Result<Arc<Self>, PostgresError> {
        Self::open(PostgresOptions::new(url)).await
    }

    pub async fn open(options: PostgresOptions) -> Result<Arc<Self>, PostgresError> {
        let connecting = options.connect_options()?;
        let unreachable = |error: sqlx::Error| PostgresError::Unreachable(error.to_string());
        let mut connection = connecting.connect().await.map_err(unreachable)?;
        check_server(&mut connection, options.durable).await?;
        if let Some(schema) = options.schema.as_ref().filter(|_| options.migrate) {
            let create = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
            connection.execute(&*create).await.map_err(unreachable)?;
        }
        match options.migrate {
            true => migrate::apply(&mut connection).await?,
            false => migrate::check(&mut connection).await?,
        }
        let stored = partitions::settle(
            &mut connection,
            &options.partitions,
            options.engine.limits.payload_bytes,
        )
        .await;
        if let Some(why) = partitions::mismatch(stored.map_err(unreachable)?, &options.partitions) {
            return Err(PostgresError::Partitions(why));
        }
        let _ = connection.close().await;
        let readers = options.readers(connecting.clone());
        Ok(Self::start(options, connecting, readers))
    }

    fn start(options: PostgresOptions, connecting: PgConnectOptions, readers: PgPool) -> Arc<Self> {
        let (alive, ended) = watch::channel(());
        let store = Arc::new(PostgresStore {
            connecting,
            readers,
            idle: Mutex::default(),
            statements: Arc::default(),
            writes: Writes::default(),
            caches: Caches::default(),
            turns: Turns::default(),
            time: options.clock.map_or_else(Time::database, Time::Given),
            bells: Arc::default(),
            outbox: Arc::default(),
            partitions: options.partitions,
            payload_bytes: options.engine.limits.payload_bytes,
            settled: OnceCell::new(),
            listens: options.listen,
            pooled: options.statement_cache == 0,
            closed: AtomicBool::new(false),
            working: RwLock::new(()),
            alive,
        });
        let engine = pumped(&store, options.engine, options.writers);
        engine.spawn_sweeper();
        listen::spawn(&store, ended);
        Arc::new(Self { engine, store })
    }

    /// Submits inside the caller's own transaction: if it commits, the executions are there and
    /// claimable at once; if it does not, nothing is left. The events follow after the commit.
    pub async fn submit_in(
        &self,
        transaction: &mut PgConnection,
        items: Vec<Submission>,
    ) -> Result<Vec<SubmitOutcome>, EngineError> {
        submit::submit_in(&self.store, &self.engine, transaction, items).await
    }

    /// Ends what this engine has open on the database, after the transactions that are under way.
    /// Later calls answer that it is closed.
    pub async fn close(&self) {
        self.store.closed.store(true, Ordering::Release);
        let _ = self.store.alive.send(());
        drop(self.store.working.write().await);
        self.store.close_writers().await;
        self.store.readers.close().await;
    }
}

/// An engine whose queue is served by several tasks.
fn pumped(store: &Arc<PostgresStore>, config: EngineConfig, writers: usize) -> Arc<Engine> {
    // One that took all that waits would leave nothing for the others.
    let batch = config.limits.batch.div_ceil(2);
    let (engine, queue) = Engine::new(store.clone(), config);
    let queue = Shared::new(queue);
    for _ in 0..writers.max(1) {
        tokio::spawn(pump_shared(store.clone(), queue.clone(), batch));
    }
    Arc::new(engine)
}

/// Refuses a server that cannot do what is promised here.
async fn check_server(connection: &mut PgConnection, durable: bool) -> Result<(), PostgresError> {
    let unreachable = |error: sqlx::Error| PostgresError::Unreachable(error.to_string());
    let sql = "SELECT current_setting('server_version_num')::int4, current_setting('fsync'), \
               current_setting('synchronous_commit'), current_setting('full_page_writes')";
    let found = connection.fetch_one(sql).await.map_err(unreachable)?;
    let version: i32 = found.try_get(0).map_err(unreachable)?;
    if version < OLDEST_SERVER {
        let (found, needed) = (version / 10_000, OLDEST_SERVER / 10_000);
        return Err(PostgresError::OldServer { found, needed });
    }
    for (place, setting) in ["fsync", "synchronous_commit", "full_page_writes"].iter().enumerate() {
        let value: String = found.try_get(place + 1).map_err(unreachable)?;
        if durable && value == "off" {
            return Err(PostgresError::NotDurable { setting });
        }
    }
    Ok(())
}

impl PostgresStore {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) async fn identity(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Identity, StoreError> {
        let read = move || async move {
            let sql = "SELECT (SELECT value FROM ff_meta WHERE name = 'history_id'), \
                       (SELECT count(*) FROM ff_event_shard), \
                       (SELECT value FROM ff_meta WHERE name = 'log_secret'), \
                       (SELECT value FROM ff_meta WHERE name = 'flow_partitions')";
            // As plain text: behind a pooler nothing else works outside a transaction.
            let found = connection.fetch_one(sql).await.map_err(|error| store_error(&error))?;
            let history: String = found.try_get(0).map_err(|error| store_error(&error))?;
            let shards: i64 = found.try_get(1).map_err(|error| store_error(&error))?;
            let secret: String = found.try_get(2).map_err(|error| store_error(&error))?;
            let partitions: Option<String> =
                found.try_get(3).map_err(|error| store_error(&error))?;
            let partitions = partitions.and_then(|stored| stored.parse().ok());
            let mismatch = |stored| partitions::mismatch(stored, &self.partitions);
            if let Some(why) = partitions.and_then(mismatch) {
                return Err(StoreError::Failed(why));
            }
            let history_id = Uuid::parse_str(&history)
                .map_err(|error| StoreError::Corrupt(format!("the history id: {error}")))?;
            let shards = u16::try_from(shards).unwrap_or(u16::MAX).max(1);
            let sweep_lock = history_id.as_u64_pair().0 as i64;
            Ok(Identity { history_id, secret: log_secret(&secret)?, shards, sweep_lock })
        };
        self.caches.current().identity.get_or_try_init(read).await.copied()
    }

    /// The shard of the log that an event belongs to, and its partition. All events of an execution
    /// and of a flow are in one shard, so that they are in order.
    fn shard_of(
        &self,
        shards: u16,
        execution: Option<ExecutionKey>,
        flow: Option<Uuid>,
    ) -> (u16, u16) {
        let partition = match (execution, flow) {
            (Some(key), _) => key.partition,
            (None, Some(flow)) => self.flow_partition(&FlowId(flow)),
            (None, None) => 0,
        };
        (partition % shards, partition)
    }
}

/// Two UUIDs without their hyphens.
fn log_secret(text: &str) -> Result<LogSecret, StoreError> {
    let corrupt = || StoreError::Corrupt("the log's secret cannot be read".to_owned());
    let half = |from: usize| Uuid::parse_str(text.get(from..from + 32)?).ok();
    let (first, second) = half(0).zip(half(32)).ok_or_else(corrupt)?;
    let mut secret = [0; 32];
    secret[..16].copy_from_slice(first.as_bytes());
    secret[16..].copy_from_slice(second.as_bytes());
    Ok(LogSecret(secret))
}

impl EngineBackend for PostgresBackend {
    fn engine(&self) -> &Engine {
        &self.engine
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn durability(&self) -> Durability {
        Durability::PowerLoss
    }

    fn now(&self) -> TimestampMs {
        self.time.now()
    }

    async fn sleep_until(&self, at: TimestampMs) {
        self.time.sleep_until(at).await;
    }

    fn flow_partition(&self, flow: &FlowId) -> u16 {
        flow_partition(flow, &self.partitions).index
    }

    fn solo_partition(&self, lane: &LaneId) -> u16 {
        lane_partition(lane, &self.partitions).index
    }

    async fn transact(&self, batch: &mut Batch) -> Result<(), StoreError> {
        let change = self.run(batch).await?;
        self.caches.current().outlines.learn(&change);
        self.bells.ring(&change);
        self.outbox.tell(&change);
        Ok(())
    }

    fn distrust(&self) {
        let cache = self.caches.current();
        cache.held.forget();
        cache.young.forget();
        cache.outlines.forget();
    }

    async fn query(&self, query: Query) -> Result<Rows, StoreError> {
        query::run(self, query).await
    }

    fn patience(&self) -> Duration {
        match self.listens {
            true => Duration::from_secs(45),
            false => Duration::from_secs(1),
        }
    }

    fn follower_patience(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn listen(&self) -> &Arc<Bells> {
        &self.bells
    }
}
