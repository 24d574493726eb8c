//! Two servers on one Postgres: what one accepts the other hands out, and webhooks have one voice.

use std::time::Duration;

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_server::{Bound, Config};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::receiver::Receiver;
use crate::server::{ROOT, at, claim, config};

struct Server {
    client: Client,
    backend: std::sync::Arc<PostgresBackend>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// Without a server nothing can be said about the store, so its absence is no success.
fn url() -> String {
    let url = std::env::var("FF_PG_TEST_URL").unwrap_or_default();
    assert!(
        !url.is_empty(),
        "FF_PG_TEST_URL names no server; run `cargo xtask postgres cargo test`"
    );
    url
}

/// A schema that no other test uses, in this process or in any other.
fn schema() -> String {
    format!("ff_server_{}", uuid::Uuid::new_v4().simple())
}

async fn start(schema: &str) -> Server {
    // The server of the tests is a fast one.
    let (schema, durable) = (Some(schema.to_owned()), false);
    let options = PostgresOptions { schema, durable, ..PostgresOptions::new(url()) };
    let backend = PostgresBackend::open(options).await.unwrap();
    let config = Config { webhook_allow: Some("127.0.0.0/8".to_owned()), ..config() };
    let bound = Bound::bind(&config, backend.clone()).await.unwrap();
    let client = Client { address: bound.local_addr(), token: Some(ROOT.to_owned()) };
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(bound.run(async {
        let _ = stopped.await;
    }));
    Server { client, backend, stop, running }
}

impl Server {
    async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.unwrap();
        self.backend.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_one_database() {
    let schema = schema();
    let (one, other) = (start(&schema).await, start(&schema).await);
    assert_eq!(one.client.get("/version").await.expect(200)["store"], "postgres");
    assert_eq!(one.client.get("/readyz").await.status, 200);
    let mut wait = claim("l");
    wait["wait"] = json!("20s");
    let client = other.client.clone();
    let claimed = tokio::spawn(async move { client.post("/v1/claims", wait).await.expect(200) });
    let body = json!({ "lane_id": "l", "execution_kind": "k", "payload": { "a": 1 } });
    let key = [("idempotency-key", "once")];
    let made =
        one.client.send("POST", "/v1/executions", &key, Some(body.clone())).await.expect(201);
    let again = other.client.send("POST", "/v1/executions", &key, Some(body)).await.expect(200);
    assert_eq!(again["execution_id"], made["execution_id"]);
    let claimed = claimed.await.unwrap();
    let claimed = &claimed["executions"][0];
    assert_eq!(claimed["payload"], json!({ "a": 1 }));
    let done = json!({ "handle": claimed["handle"], "result": [1] });
    assert_eq!(one.client.post("/v1/leases/complete", done).await.status, 204);
    let id = made["execution_id"].as_str().unwrap();
    let result = other.client.get(&format!("{}/result?wait=20s", at(id))).await.expect(200);
    assert_eq!((&result["finished"], &result["result"]), (&json!(true), &json!([1])));

    // A token that one makes opens the other.
    let token = json!({ "name": "t", "scopes": ["read"], "namespaces": ["default"] });
    let token = one.client.post("/v1/tokens", token).await.expect(201);
    let reader = other.client.with(token["token"].as_str());
    assert_eq!(reader.get("/v1/executions").await.status, 200);
    other.stop().await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_delivered_by_one_server_at_a_time() {
    let mut receiver = Receiver::start().await;
    let schema = schema();
    let (one, other) = (start(&schema).await, start(&schema).await);
    let hook = json!({ "url": receiver.url(), "event_types": ["submitted"] });
    one.client.post("/v1/webhooks", hook).await.expect(201);
    let mut ids = Vec::new();
    for at in 0..30 {
        let client = if at % 2 == 0 { &one.client } else { &other.client };
        let body = json!({ "lane_id": "l", "execution_kind": "k" });
        let made = client.post("/v1/executions", body).await.expect(201);
        ids.push(made["execution_id"].as_str().unwrap().to_owned());
    }
    let mut seen = Vec::new();
    for _ in 0..30 {
        seen.push(receiver.next().await.json()["subject"].as_str().unwrap().to_owned());
    }
    // Each once, although both servers look.
    ids.sort();
    seen.sort();
    assert_eq!(seen, ids);
    // The other goes on where the first has stopped.
    one.stop().await;
    let body = json!({ "lane_id": "l", "execution_kind": "k" });
    let made = other.client.post("/v1/executions", body).await.expect(201);
    assert_eq!(receiver.next().await.json()["subject"], made["execution_id"]);
    let quiet = tokio::time::timeout(Duration::from_millis(200), receiver.next()).await;
    assert!(quiet.is_err(), "something was delivered twice");
    other.stop().await;
}
