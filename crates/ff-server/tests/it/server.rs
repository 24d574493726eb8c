//! A running server with its own store, and how it is ended.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_core::engine::EngineConfig;
use ff_core::engine::clock::{Clock, SystemClock};
use ff_server::{Auth, Bound, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::Client;

pub const ROOT: &str = "ff_root-token-of-the-tests-0123456789abcdef";

pub struct Server {
    pub client: Client,
    pub backend: Arc<SqliteBackend>,
    pub folder: TempDir,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

pub fn config() -> Config {
    Config {
        listen: ([127, 0, 0, 1], 0).into(),
        auth: Auth::Tokens,
        root_token: Some(ROOT.to_owned()),
        drain: Duration::from_secs(5),
        ..Config::default()
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(config()).await
    }

    pub async fn start_with(config: Config) -> Self {
        Self::start_on(config, Arc::new(SystemClock)).await
    }

    /// A server whose engine has settings of its own.
    pub async fn start_engine(config: Config, engine: EngineConfig) -> Self {
        let options = SqliteOptions { engine, ..SqliteOptions::new("") };
        Self::start_options(config, options).await
    }

    /// A server whose store goes by another clock.
    pub async fn start_on(config: Config, clock: Arc<dyn Clock>) -> Self {
        let options = SqliteOptions { clock, ..SqliteOptions::new("") };
        Self::start_options(config, options).await
    }

    async fn start_options(config: Config, options: SqliteOptions) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), config, options).await
    }

    async fn start_in(folder: TempDir, config: Config, options: SqliteOptions) -> Self {
        let uri = folder.path().join("flowfabric.db").display().to_string();
        let options = SqliteOptions { uri, ..options };
        let backend = SqliteBackend::open(options).await.unwrap();
        let bound = Bound::bind(&config, backend.clone()).await.unwrap();
        let address = bound.local_addr();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(bound.run(async {
            let _ = stopped.await;
        }));
        let client = Client { address, token: config.root_token };
        Self { client, backend, folder, stop, running }
    }

    /// Another server on the same file; the one before it ends without being asked.
    pub async fn restart(self, config: Config) -> Self {
        self.restart_with(config, |_| {}).await
    }

    /// The same, with something done to the file while no server has it.
    pub async fn restart_with(self, config: Config, change: impl FnOnce(&Path)) -> Self {
        self.running.abort();
        let _ = self.running.await;
        self.backend.close().await;
        drop(self.backend);
        change(&self.folder.path().join("flowfabric.db"));
        Self::start_in(self.folder, config, SqliteOptions::new("")).await
    }

    /// Asks the server to end and waits until it has.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.unwrap();
        self.backend.close().await;
    }

    /// A client with a token of its own.
    pub async fn user(&self, scopes: &[&str], namespaces: &[&str]) -> Client {
        // Names are not given twice, so each gets a number.
        static USERS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("user-{}", USERS.fetch_add(1, Ordering::Relaxed));
        let body = json!({ "name": name, "scopes": scopes, "namespaces": namespaces });
        let made = self.client.post("/v1/tokens", body).await.expect(201);
        self.client.with(made["token"].as_str())
    }

    /// Everything that the store's files hold.
    pub fn stored_bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap_or_default()).collect()
    }

    pub async fn submit(&self, lane: &str, payload: Value) -> String {
        let body = json!({ "lane_id": lane, "execution_kind": "k", "payload": payload });
        let answer = self.client.post("/v1/executions", body).await.expect(201);
        answer["execution_id"].as_str().unwrap().to_owned()
    }

    /// Claims one execution of a lane and returns its handle and itself.
    pub async fn claim(&self, lane: &str) -> (String, Value) {
        let mut answer = self.client.post("/v1/claims", claim(lane)).await.expect(200);
        let claimed = answer["executions"][0].take();
        (claimed["handle"].as_str().unwrap().to_owned(), claimed)
    }
}

pub fn claim(lane: &str) -> Value {
    json!({ "lanes": [lane], "worker_id": "w", "worker_instance_id": "w-1" })
}

/// An execution's place in an address, without braces.
pub fn at(id: &str) -> String {
    format!("/v1/executions/{}", id.replace("{fp:", "").replace('}', ""))
}
