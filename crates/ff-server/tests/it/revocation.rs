//! Tokens that are revoked or expire while a request of theirs waits or streams.

use std::sync::Arc;
use std::time::Duration;

use ff_core::engine::clock::ManualClock;
use ff_server::Config;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::client::{Client, Response};
use crate::server::{Server, at, claim, config};

const OFTEN: Duration = Duration::from_millis(20);
/// So that the end of a stream is the end of its connection.
const CLOSE: [(&str, &str); 1] = [("connection", "close")];
/// As rarely as may be, and longer than the test lasts.
const RARELY: Duration = Duration::from_secs(15);

async fn revoke(server: &Server) {
    let list = server.client.get("/v1/tokens").await.expect(200);
    for token in list["tokens"].as_array().unwrap() {
        let path = format!("/v1/tokens/{}", token["token_id"].as_str().unwrap());
        server.client.send("DELETE", &path, &[], None).await.expect(200);
    }
}

/// Waits until so many connections are open, this one's own among them.
async fn connections(server: &Server, count: usize) {
    let line = format!("ff_http_connections {count}\n");
    while !String::from_utf8_lossy(&server.client.get("/metrics").await.body).contains(&line) {
        tokio::task::yield_now().await;
    }
}

/// Work that is submitted without a pause.
fn traffic(client: &Client) -> JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        loop {
            let body = json!({ "lane_id": "l", "execution_kind": "k" });
            client.post("/v1/executions", body).await.expect(201);
        }
    })
}

/// Frames that are said without a pause.
fn frames(client: &Client, handle: String) -> JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        loop {
            let frame = json!({ "frame_type": "log", "payload": "eA==", "mode": "best_effort" });
            let body = json!({ "handle": handle, "frames": [frame] });
            let answer = client.post("/v1/leases/frames", body).await;
            assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        }
    })
}

#[tokio::test]
async fn a_revoked_token_loses_its_streams_under_traffic() {
    let server = Server::start_with(Config { token_check: OFTEN, ..config() }).await;
    let id = server.submit("f", json!(1)).await;
    let (handle, _) = server.claim("f").await;
    let user = server.user(&["read"], &["default"]).await;
    let mut events = user.stream("/v1/events/stream", &CLOSE).await;
    let mut tail = user.stream(&format!("{}/stream/tail", at(&id)), &CLOSE).await;
    let busy = [traffic(&server.client), frames(&server.client, handle)];
    events.event().await;
    tail.event().await;
    revoke(&server).await;
    events.end().await;
    tail.end().await;
    busy.iter().for_each(JoinHandle::abort);
    server.stop().await;
}

#[tokio::test]
async fn an_expired_token_loses_its_stream_under_traffic() {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let settings = Config { token_check: OFTEN, ..config() };
    let server = Server::start_on(settings, clock.clone()).await;
    let body = json!({
        "name": "short", "scopes": ["read"], "namespaces": ["default"], "expires_in": "1h",
    });
    let made = server.client.post("/v1/tokens", body).await.expect(201);
    let user = server.client.with(made["token"].as_str());
    let mut events = user.stream("/v1/events/stream", &CLOSE).await;
    let busy = traffic(&server.client);
    events.event().await;
    clock.advance(Duration::from_secs(60 * 60));
    events.end().await;
    busy.abort();
    server.stop().await;
}

/// Every kind of request that waits, of something that does not happen.
fn waits(id: &str, flow: &str, running: &str) -> Vec<(&'static str, String, Option<Value>)> {
    let mut patient = claim("empty");
    patient["wait"] = json!("60s");
    let cancellation = json!({ "policy": "cancel_pending", "wait": "60s" });
    vec![
        ("POST", "/v1/claims".into(), Some(patient)),
        ("GET", "/v1/events?from=latest&wait=60s&event_types=expired".into(), None),
        ("GET", format!("{}/stream?wait=60s", at(id)), None),
        ("GET", format!("{}/result?wait=60s", at(id)), None),
        ("GET", format!("/v1/flows/{flow}?wait=60s"), None),
        ("POST", format!("/v1/flows/{running}/cancel"), Some(cancellation)),
    ]
}

async fn waiting(server: &Server, user: &Client) -> Vec<JoinHandle<Response>> {
    let id = server.submit("l", json!(1)).await;
    server.claim("l").await;
    let flow = async |lane: &str| {
        let work = json!({ "lane_id": lane, "execution_kind": "k" });
        let flow = json!({ "flow_kind": "f", "nodes": [{ "name": "n", "work": work }] });
        let flow = server.client.post("/v1/flows", flow).await.expect(201);
        flow["flow_id"].as_str().unwrap().to_owned()
    };
    let (open, running) = (flow("l").await, flow("running").await);
    server.claim("running").await;
    let requests = waits(&id, &open, &running);
    let count = requests.len();
    let send = |(method, path, body): (&'static str, String, Option<Value>)| {
        let user = user.clone();
        tokio::spawn(async move { user.send(method, &path, &[], body).await })
    };
    let sent = requests.into_iter().map(send).collect();
    connections(server, count + 1).await;
    sent
}

#[tokio::test]
async fn a_revoked_token_loses_its_waits() {
    let server = Server::start_with(Config { token_check: OFTEN, ..config() }).await;
    let waits = ff_server::table().iter().filter(|route| route.timeout.as_secs() > 60).count();
    assert_eq!(waits, 6, "another route waits: revoke a token during its wait here");
    let user = server.user(&["read", "work", "operate"], &["default"]).await;
    let waiting = waiting(&server, &user).await;
    revoke(&server).await;
    for answer in waiting {
        answer.await.unwrap().refused(401, "unauthorized");
    }
    server.stop().await;
}

/// Without any check in between: what a wait would have answered is not told any more.
#[tokio::test]
async fn what_comes_after_the_revocation_is_not_handed_out() {
    let server = Server::start_with(Config { token_check: RARELY, ..config() }).await;
    let user = server.user(&["read", "work"], &["default"]).await;
    let mut requests: Vec<JoinHandle<Response>> = Vec::new();
    let patient = Value::Object({
        let mut patient = claim("later").as_object().unwrap().clone();
        patient.insert("wait".into(), json!("60s"));
        patient
    });
    let client = user.clone();
    requests.push(tokio::spawn(async move { client.post("/v1/claims", patient).await }));
    let client = user.clone();
    let path = "/v1/events?from=latest&wait=60s&event_types=submitted";
    requests.push(tokio::spawn(async move { client.get(path).await }));
    connections(&server, 3).await;
    revoke(&server).await;
    let id = server.submit("later", json!("secret")).await;
    for request in requests {
        request.await.unwrap().refused(401, "unauthorized");
    }
    // The work was given back, and waits for another worker.
    let mut again = claim("later");
    again["wait"] = json!("10s");
    let claimed = server.client.post("/v1/claims", again).await.expect(200);
    assert_eq!(claimed["executions"][0]["execution_id"], id, "{claimed}");
    server.stop().await;
}
