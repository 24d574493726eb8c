//! Where the tests find their server, and places in it that nobody else uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_core::backend::CapabilitySet;
use ff_core::contracts::ClaimArgs;
use ff_core::types::{LaneId, WorkerId, WorkerInstanceId};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// Without a server nothing can be said about the store, so its absence is no success.
pub fn url() -> String {
    let url = std::env::var("FF_PG_TEST_URL").unwrap_or_default();
    assert!(
        !url.is_empty(),
        "FF_PG_TEST_URL names no server; run `cargo xtask test`, or with a private server \
         `cargo xtask postgres cargo test -p ff-backend-postgres`"
    );
    url
}

pub async fn pool(url: &str, connections: u32) -> PgPool {
    PgPoolOptions::new().max_connections(connections).connect(url).await.expect("connect")
}

async fn execute(sql: &str) {
    let pool = pool(&url(), 1).await;
    sqlx::raw_sql(sql).execute(&pool).await.expect(sql);
    pool.close().await;
}

/// A name that no other test uses, in this process or in any other.
pub fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    format!("ff_test_{}_{nanos}_{number}", std::process::id())
}

/// A schema of one's own; the store makes it.
pub struct Schema(pub String);

impl Schema {
    pub fn new() -> Self {
        Self(unique_name())
    }

    pub fn options(&self) -> PostgresOptions {
        PostgresOptions { schema: Some(self.0.clone()), ..options(&url()) }
    }

    pub async fn open(&self) -> Arc<PostgresBackend> {
        PostgresBackend::open(self.options()).await.expect("open")
    }

    pub async fn drop(self) {
        execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.0)).await;
    }
}

/// An empty database of one's own.
pub struct Database(String);

impl Database {
    pub async fn create() -> Self {
        let name = unique_name();
        execute(&format!("CREATE DATABASE {name}")).await;
        Self(name)
    }

    pub fn url(&self) -> String {
        let url = url();
        let (before, parameters) = url.split_once('?').unwrap_or((&url, ""));
        let (server, _) = before.rsplit_once('/').expect("the URL names a database");
        let separator = if parameters.is_empty() { "" } else { "?" };
        format!("{server}/{}{separator}{parameters}", self.0)
    }

    pub async fn drop(self) {
        execute(&format!("DROP DATABASE {} WITH (FORCE)", self.0)).await;
    }
}

/// The server of the tests does not flush: nobody pulls its plug.
pub fn options(url: &str) -> PostgresOptions {
    PostgresOptions { durable: false, ..PostgresOptions::new(url) }
}

pub fn claim_from(lane: &str, max: usize, wait: Duration) -> ClaimArgs {
    ClaimArgs {
        lanes: vec![LaneId::new(lane)],
        capabilities: CapabilitySet::default(),
        worker_id: WorkerId::new("worker"),
        worker_instance_id: WorkerInstanceId::new("worker-1"),
        lease_ttl_ms: 60_000,
        max,
        wait,
    }
}
