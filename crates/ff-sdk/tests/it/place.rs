//! Where a test runs: on an engine in the same process, or through a server in front of it. The
//! engine's clock stands still until a test moves it, either way.

use std::sync::Arc;
use std::time::Duration;

use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_core::contracts::{EventFilter, EventType};
use ff_core::engine::StartAt;
use ff_core::engine::clock::ManualClock;
use ff_core::engine_backend::EngineBackend;
use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets};
use ff_core::types::{ExecutionId, Namespace};
use ff_sdk::transport::{Embedded, Http, HttpOptions, Transport};
use ff_sdk::{Client, Worker};
use ff_server::{Auth, Bound, Config};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const TOKEN: &str = "ff_root-token-of-the-tests-0123456789abcdef";

/// The lease of workers that do not say otherwise.
const LEASE: Duration = Duration::from_secs(30);

pub struct Place {
    pub engine: Arc<SqliteBackend>,
    pub clock: Arc<ManualClock>,
    pub client: Client,
    pub transport: Arc<dyn Transport>,
    _served: Option<Served>,
    _folder: tempfile::TempDir,
}

/// A server that runs until it is told to stop.
pub struct Served {
    pub url: String,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Served {
    pub async fn start(backend: Arc<SqliteBackend>) -> Self {
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            auth: Auth::Tokens,
            root_token: Some(TOKEN.to_owned()),
            drain: Duration::from_secs(5),
            ..Config::default()
        };
        let bound = Bound::bind(&config, backend).await.unwrap();
        let url = format!("http://{}/", bound.local_addr());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(bound.run(async {
            let _ = stopped.await;
        }));
        Self { url, stop, running }
    }

    pub fn options(&self) -> HttpOptions {
        HttpOptions::new(&self.url).token(TOKEN)
    }

    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.unwrap();
    }
}

impl Place {
    pub async fn embedded() -> Self {
        let (engine, clock, folder) = engine().await;
        let transport: Arc<dyn Transport> = Arc::new(Embedded::new(engine.clone()));
        Self::new(engine, clock, transport, None, folder)
    }

    pub async fn through_a_server() -> Self {
        let (engine, clock, folder) = engine().await;
        let served = Served::start(engine.clone()).await;
        let transport: Arc<dyn Transport> = Arc::new(Http::new(served.options()).unwrap());
        Self::new(engine, clock, transport, Some(served), folder)
    }

    fn new(
        engine: Arc<SqliteBackend>,
        clock: Arc<ManualClock>,
        transport: Arc<dyn Transport>,
        served: Option<Served>,
        folder: tempfile::TempDir,
    ) -> Self {
        let client = Client::with_transport(transport.clone(), Namespace::new("default"));
        Self { engine, clock, client, transport, _served: served, _folder: folder }
    }

    /// A worker on the engine's clock.
    pub fn worker(&self) -> Worker {
        Worker::new(self.client.clone()).clock(self.clock.clone()).lease(LEASE)
    }

    /// Moves the clock and fires whatever became due.
    pub async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.engine.engine().sweep().await.unwrap();
    }

    /// Waits until something has happened to anything.
    pub async fn said(&self, what: EventType) {
        let filter = EventFilter { event_types: vec![what], ..EventFilter::default() };
        let mut events = self.engine.subscribe(filter, StartAt::Oldest).await.unwrap();
        events.next().await.unwrap();
    }

    /// Waits until something has happened to an execution.
    pub async fn happened(&self, id: &ExecutionId, what: EventType) {
        let filter = EventFilter { event_types: vec![what], ..EventFilter::default() };
        let mut events = self.engine.subscribe(filter, StartAt::Oldest).await.unwrap();
        while events.next().await.unwrap().execution_id.as_ref() != Some(id) {}
    }
}

async fn engine() -> (Arc<SqliteBackend>, Arc<ManualClock>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let mut options = SqliteOptions::new(folder.path().join("place.db").to_str().unwrap());
    options.clock = clock.clone();
    let secret = Secret::new(*b"no secret at all, only for tests");
    let secret = WaitpointSecret::new("testing", secret).unwrap();
    options.engine.waitpoint_secrets = WaitpointSecrets::new([secret]).unwrap();
    (SqliteBackend::open(options).await.unwrap(), clock, folder)
}

/// One test for each way out of every body.
macro_rules! both_ways {
    ($($body:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $body() {
                super::$body($crate::place::Place::embedded().await).await;
            })+
        }

        mod through_a_server {
            $(#[tokio::test]
            async fn $body() {
                super::$body($crate::place::Place::through_a_server().await).await;
            })+
        }
    };
}

pub(crate) use both_ways;
