//! Webhooks against a real receiver: signed, in order, without gaps, and never to the wrong place.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ff_server::Config;
use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::receiver::{Received, Receiver};
use crate::server::{Server, config};

fn allowing() -> Config {
    Config { webhook_allow: Some("127.0.0.0/8,::1".to_owned()), ..config() }
}

/// Makes a webhook for some types of events; returns its address and its secret.
async fn make(server: &Server, url: &str, types: &[&str]) -> (String, String) {
    let body = json!({ "url": url, "name": "hook", "event_types": types });
    let made = server.client.post("/v1/webhooks", body).await.expect(201);
    let path = format!("/v1/webhooks/{}", made["webhook_id"].as_str().unwrap());
    (path, made["secret"].as_str().unwrap().to_owned())
}

/// Whether a request was signed with a secret.
fn signed_by(received: &Received, secret: &str) -> bool {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    let (id, time) = (received.header("webhook-id"), received.header("webhook-timestamp"));
    mac.update(format!("{id}.{time}.").as_bytes());
    mac.update(&received.body);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    received.header("webhook-signature").split(' ').any(|signature| signature == expected)
}

#[tokio::test]
async fn events_are_delivered_and_signed() {
    let mut receiver = Receiver::start().await;
    let server = Server::start_with(allowing()).await;
    let (path, secret) = make(&server, &receiver.url(), &["submitted", "claimed"]).await;
    let id = server.submit("l", json!("private")).await;
    server.claim("l").await;
    let first = receiver.next().await;
    assert!(signed_by(&first, &secret), "{first:?}");
    assert!(first.header("content-type").starts_with("application/cloudevents+json"));
    let event = first.json();
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["type"], "dev.flowfabric.execution.submitted.v1");
    assert_eq!(event["subject"], id);
    assert_eq!(event["id"], first.header("webhook-id"));
    assert_eq!(event["data"]["execution_id"], id);
    assert!(!event.to_string().contains("private"), "{event}");
    assert_eq!(receiver.next().await.event(), "claimed");
    // The report follows the delivery.
    let described = until(&server, &path, |webhook| webhook["delivered"] == 2).await;
    assert_eq!((&described["state"], &described["failures"]), (&json!("active"), &json!(0)));
    assert!(!described.to_string().contains(&secret["whsec_".len()..]), "{described}");
    let metrics = String::from_utf8(server.client.get("/metrics").await.body).unwrap();
    assert!(metrics.contains("ff_webhook_attempts_total{outcome=\"delivered\"} 2\n"), "{metrics}");
    let deliveries = server.client.get(&format!("{path}/deliveries")).await.expect(200);
    assert_eq!(deliveries["deliveries"][0]["number"], 2);
    assert_eq!(deliveries["deliveries"][0]["status"], 204);
    server.stop().await;
}

/// Asks again until the webhook is as expected.
async fn until(server: &Server, path: &str, good: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..2_000 {
        let webhook = server.client.get(path).await.expect(200);
        if good(&webhook) {
            return webhook;
        }
        tokio::task::yield_now().await;
    }
    panic!("it stays {}", server.client.get(path).await.expect(200));
}

#[tokio::test]
async fn what_was_refused_comes_again_in_order() {
    let mut receiver = Receiver::start().await;
    receiver.answer(&["500 No", "503 Busy\r\nretry-after: 1", "302 Found\r\nlocation: /elsewhere"]);
    let server = Server::start_with(allowing()).await;
    let (path, secret) = make(&server, &receiver.url(), &["submitted"]).await;
    let first = server.submit("l", json!(1)).await;
    let second = server.submit("l", json!(2)).await;
    let refused = receiver.next().await;
    assert_eq!(refused.json()["subject"], first);
    let failing = until(&server, &path, |webhook| webhook["failures"] == 1).await;
    assert_eq!(failing["last_error"], "the receiver answered 500");
    assert!(failing["next_attempt_at"].is_string());
    // Whoever says so need not wait for the next attempt.
    let resumed = server.client.send("POST", &format!("{path}/resume"), &[], None).await;
    assert_eq!(resumed.expect(200)["failures"], 0);
    for _ in 0..3 {
        // By itself after a while; a redirect is not followed.
        let again = receiver.next().await;
        assert!(signed_by(&again, &secret));
        assert!(again.head.starts_with("POST /hook "), "{}", again.head);
        assert_eq!(again.json()["subject"], first);
        assert_eq!(again.header("webhook-id"), refused.header("webhook-id"));
    }
    assert_eq!(receiver.next().await.json()["subject"], second);
    until(&server, &path, |webhook| webhook["delivered"] == 2).await;
    server.stop().await;
}

#[tokio::test]
async fn a_restart_leaves_no_gap() {
    let mut receiver = Receiver::start().await;
    let server = Server::start_with(allowing()).await;
    make(&server, &receiver.url(), &["submitted"]).await;
    let mut ids = Vec::new();
    for at in 0..40 {
        ids.push(server.submit("l", json!(at)).await);
    }
    receiver.next().await;
    // It ends in the middle of its deliveries.
    let server = server.restart(allowing()).await;
    for at in 40..50 {
        ids.push(server.submit("l", json!(at)).await);
    }
    let mut seen = vec![ids[0].clone()];
    while seen.last() != ids.last() {
        let subject = receiver.next().await.json()["subject"].as_str().unwrap().to_owned();
        // Some may come twice, because the report of them was lost; none comes out of turn.
        let at = ids.iter().position(|id| *id == subject).unwrap();
        let furthest = ids.iter().position(|id| id == seen.last().unwrap()).unwrap();
        assert!(at <= furthest + 1, "{at} after {furthest}");
        if at == furthest + 1 {
            seen.push(subject);
        }
    }
    assert_eq!(seen, ids);
    server.stop().await;
}

/// The place of a webhook is in the store and goes back with it, so what comes after a restore is
/// told, under names that no lost event had. A reader that keeps its own cursor is refused.
#[tokio::test]
async fn a_restore_leaves_no_gap() {
    let mut receiver = Receiver::start().await;
    let server = Server::start_with(allowing()).await;
    let (path, _) = make(&server, &receiver.url(), &["submitted"]).await;
    server.submit("l", json!(0)).await;
    receiver.next().await;
    until(&server, &path, |webhook| webhook["delivered"] == 1).await;
    let copy = |file: &std::path::Path| file.with_extension("copy");
    let save = |file: &std::path::Path| assert!(std::fs::copy(file, copy(file)).unwrap() > 0);
    let server = server.restart_with(allowing(), save).await;
    let mut names = Vec::new();
    for at in 1..=3 {
        server.submit("l", json!(at)).await;
        names.push(receiver.next().await.header("webhook-id").to_owned());
    }
    until(&server, &path, |webhook| webhook["delivered"] == 4).await;
    let seen = server.client.get("/v1/events?from=oldest&limit=100").await.expect(200);
    let cursor = seen["next_cursor"].as_str().unwrap().to_owned();

    let restore = |file: &std::path::Path| assert!(std::fs::copy(copy(file), file).unwrap() > 0);
    let server = server.restart_with(allowing(), restore).await;
    for at in 4..9 {
        let id = server.submit("l", json!(at)).await;
        let told = receiver.next().await;
        assert_eq!(told.json()["subject"], id);
        assert!(!names.contains(&told.header("webhook-id").to_owned()), "the name of a lost event");
    }
    let page = format!("/v1/events?after={cursor}");
    server.client.get(&page).await.refused(400, "cursor_from_other_history");
    let resumed = [("last-event-id", &*cursor)];
    let stream = server.client.send("GET", "/v1/events/stream", &resumed, None).await;
    stream.refused(400, "cursor_from_other_history");
    server.stop().await;
}

#[tokio::test]
async fn addresses_of_ones_own_are_not_called() {
    let mut receiver = Receiver::start().await;
    let server = Server::start().await;
    for url in [receiver.url(), "http://169.254.169.254/latest".to_owned(), "ftp://x".to_owned()] {
        let refused = server.client.post("/v1/webhooks", json!({ "url": url })).await;
        refused.refused(400, "invalid_input");
    }
    // A name is looked up when it is called.
    let url = format!("http://localhost:{}/hook", receiver.address.port());
    let (path, _) = make(&server, &url, &["submitted"]).await;
    server.submit("l", json!(1)).await;
    let failing = until(&server, &path, |webhook| webhook["failures"] == 1).await;
    let error = failing["last_error"].as_str().unwrap();
    assert!(error.contains("no address that webhooks may call"), "{error}");
    assert!(receiver.try_next().is_none());
    server.stop().await;
}

#[tokio::test]
async fn a_secret_that_is_rotated_during_deliveries_is_used_at_once() {
    let mut receiver = Receiver::start().await;
    let server = Server::start_with(allowing()).await;
    let (path, old) = make(&server, &receiver.url(), &["submitted"]).await;
    let held = receiver.gate.clone().lock_owned().await;
    for at in 0..5 {
        server.submit("l", json!(at)).await;
    }
    let under_way = receiver.next().await;
    assert!(signed_by(&under_way, &old));
    let rotate = json!({ "grace": "1h" });
    let rotated = server.client.post(&format!("{path}/rotate"), rotate).await.expect(200);
    let new = rotated["secret"].as_str().unwrap();
    drop(held);
    let next = receiver.next().await;
    assert!(signed_by(&next, &old) && signed_by(&next, new), "both go until the grace is over");
    server.stop().await;
}

/// Neither the store's files nor anything that the server says has a secret, or the key behind it.
#[tokio::test]
async fn secrets_are_neither_stored_nor_told() {
    use ff_core::engine::EngineConfig;
    use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets};

    let mut receiver = Receiver::start().await;
    let key = WaitpointSecret::new("k1", Secret::new(*b"canary-canary-canary-canary-cana"));
    let waitpoint_secrets = WaitpointSecrets::new([key.unwrap()]).unwrap();
    let engine = EngineConfig { waitpoint_secrets, ..EngineConfig::default() };
    let server = Server::start_engine(allowing(), engine).await;
    let (path, first) = make(&server, &receiver.url(), &["submitted"]).await;
    let rotate = json!({ "grace": "1h" });
    let rotated = server.client.post(&format!("{path}/rotate"), rotate).await.expect(200);
    let second = rotated["secret"].as_str().unwrap().to_owned();
    receiver.answer(&["500 No"]);
    server.submit("l", json!(1)).await;
    let received = receiver.next().await;
    assert!(signed_by(&received, &first) && signed_by(&received, &second));
    until(&server, &path, |webhook| webhook["failures"] == 1).await;

    let mut said = server.stored_bytes();
    for path in [&path, &format!("{path}/deliveries"), "/v1/webhooks", "/v1/events", "/metrics"] {
        said.extend(server.client.get(path).await.body);
    }
    said.extend(server.client.post(&format!("{path}/rotate"), json!({ "grace": 1 })).await.body);
    let has = |needle: &[u8]| said.windows(needle.len()).any(|part| part == needle);
    assert!(has(b"ff_webhook") && has(b"deliveries"), "there is something to look at");
    for secret in [&first, &second] {
        let written = secret.strip_prefix("whsec_").unwrap();
        assert!(!has(written.as_bytes()) && !has(&STANDARD.decode(written).unwrap()));
    }
    assert!(!has(b"canary-canary"));
    server.stop().await;
}

#[tokio::test]
async fn webhooks_are_paused_disabled_rotated_and_forgotten() {
    let mut receiver = Receiver::start().await;
    let server = Server::start_with(allowing()).await;
    let client = &server.client;
    let (path, old) = make(&server, &receiver.url(), &["submitted"]).await;
    let post = async |verb: &str| {
        client.send("POST", &format!("{path}/{verb}"), &[], None).await.expect(200)
    };
    assert_eq!(post("pause").await["state"], "paused");
    let missed = server.submit("l", json!(1)).await;
    let rotated =
        client.post(&format!("{path}/rotate"), json!({ "grace": "1h" })).await.expect(200);
    let new = rotated["secret"].as_str().unwrap().to_owned();
    assert_eq!(post("resume").await["state"], "active");
    let received = receiver.next().await;
    assert_eq!(received.json()["subject"], missed);
    assert!(signed_by(&received, &old) && signed_by(&received, &new));
    until(&server, &path, |webhook| webhook["delivered"] == 1).await;
    client.post(&format!("{path}/rotate"), json!({ "grace": "0s" })).await.expect(200);
    receiver.answer(&["410 Gone"]);
    server.submit("l", json!(2)).await;
    let received = receiver.next().await;
    assert!(!signed_by(&received, &new), "the old secret was to be cut off");
    until(&server, &path, |webhook| webhook["state"] == "disabled").await;
    let events = client.get("/v1/events?event_types=webhook_disabled").await.expect(200);
    assert_eq!(events["events"].as_array().unwrap().len(), 1);

    let stranger = server.user(&["admin"], &["own"]).await;
    stranger.get(&path).await.refused(404, "not_found");
    stranger.send("DELETE", &path, &[], None).await.refused(404, "not_found");
    assert_eq!(stranger.get("/v1/webhooks").await.expect(200)["webhooks"], json!([]));
    let list = client.get("/v1/webhooks?namespace=*&limit=1").await.expect(200);
    assert_eq!(list["webhooks"][0]["state"], "disabled");
    assert!(list["next_after"].is_string());
    assert_eq!(client.send("DELETE", &path, &[], None).await.status, 204);
    client.get(&path).await.refused(404, "not_found");
    server.stop().await;
}

/// Accepts connections, tells of each, and answers none of them.
async fn silent_receiver() -> (String, tokio::sync::mpsc::UnboundedReceiver<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (accepted, connections) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            tokio::select! {
                stream = listener.accept() => open.push(stream),
                () = accepted.closed() => return,
            }
            let _ = accepted.send(());
        }
    });
    (url, connections)
}

#[tokio::test]
async fn slow_receivers_of_one_tenant_delay_no_other() {
    let mut receiver = Receiver::start().await;
    let server = Server::start_with(allowing()).await;
    let (slow, other) =
        (server.user(&["admin"], &["slow"]).await, server.user(&["admin"], &["other"]).await);
    let (url, mut connections) = silent_receiver().await;
    for at in 0..96 {
        let body = json!({ "url": url, "name": at.to_string(), "event_types": ["submitted"] });
        slow.post("/v1/webhooks", body).await.expect(201);
    }
    let body = json!({ "url": receiver.url(), "name": "x", "event_types": ["submitted"] });
    other.post("/v1/webhooks", body).await.expect(201);
    let work = json!({ "lane_id": "l", "execution_kind": "k" });
    slow.post("/v1/executions", work.clone()).await.expect(201);
    for _ in 0..8 {
        connections.recv().await.unwrap();
    }
    other.post("/v1/executions", work).await.expect(201);
    // One round of the slow ones takes as long as this is patient.
    receiver.next().await;
    drop(connections);
    server.stop().await;
}
