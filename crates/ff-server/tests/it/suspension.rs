//! Suspending, signalling and the page for people.

use ff_core::engine::EngineConfig;
use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets};
use serde_json::{Value, json};

use crate::server::{Server, at, config};

pub async fn server() -> Server {
    Server::start_engine(config(), with_secrets()).await
}

/// An engine that can make tokens with two keys.
pub fn with_secrets() -> EngineConfig {
    let secret = |kid: &str| WaitpointSecret::new(kid, Secret::new([kid.as_bytes()[1]; 32]));
    let secrets = ["k1", "k2"].map(|kid| secret(kid).unwrap());
    let waitpoint_secrets = WaitpointSecrets::new(secrets).unwrap();
    EngineConfig { waitpoint_secrets, ..EngineConfig::default() }
}

/// Suspends a new execution on a waitpoint with a token; returns its id and the waitpoint.
async fn suspended(server: &Server, key: &str) -> (String, Value) {
    let id = server.submit("l", json!(1)).await;
    let (handle, _) = server.claim("l").await;
    let body = json!({ "handle": handle, "suspension": {
        "reason": "waiting_for_approval",
        "waitpoints": [{
            "type": "fresh", "waitpoint_id": "0193b3c4-0000-7000-8000-00000000000a",
            "waitpoint_key": key, "token": {},
        }],
        "condition": { "type": "single", "waitpoint_key": key },
    } });
    let answer = server.client.post("/v1/leases/suspend", body).await.expect(200);
    assert_eq!(answer["status"], "suspended");
    (id, answer["waitpoints"][0].clone())
}

#[tokio::test]
async fn a_signal_lets_an_execution_go_on() {
    let server = server().await;
    let (id, waitpoint) = suspended(&server, "ok?").await;
    let described = server.client.get(&format!("{}/suspension", at(&id))).await.expect(200);
    assert_eq!(described["reason"], "waiting_for_approval");
    let open = server.client.get("/v1/waitpoints").await.expect(200);
    assert_eq!(open["waitpoints"][0]["waitpoint_key"], "ok?");
    assert!(!open.to_string().contains("ffw1"), "a list shows no tokens");
    let point = waitpoint["waitpoint_id"].as_str().unwrap();
    let path = format!("{}/waitpoints/{point}/signal", at(&id));
    let signal = json!({ "signal_name": "approve", "payload": { "by": "me" } });
    let accepted = server.client.post(&path, signal).await.expect(200);
    assert_eq!(accepted["effect"], "resume_condition_satisfied");
    let (handle, claimed) = server.claim("l").await;
    assert_eq!(claimed["resume_signals"][0]["payload"], json!({ "by": "me" }));
    assert_eq!(claimed["resume_signals"][0]["source_identity"], "root");
    let observed = server.client.post("/v1/leases/signals", json!({ "handle": handle })).await;
    assert_eq!(observed.expect(200)["signals"], claimed["resume_signals"]);
    let signals = server.client.get(&format!("{}/signals", at(&id))).await.expect(200);
    assert_eq!(signals["signals"][0]["number"], 1);
    server.stop().await;
}

#[tokio::test]
async fn a_waitpoint_token_is_all_that_a_sender_needs() {
    let server = server().await;
    let (id, waitpoint) = suspended(&server, "ok?").await;
    let stranger = server.client.with(None);
    let signal = |token: &str| json!({ "token": token, "signal": { "signal_name": "go" } });
    let token = waitpoint["token"].as_str().unwrap();
    for bad in ["", "ffw1.k1.x.y", &token[..token.len() - 2], "ff_x"] {
        stranger.post("/v1/signals", signal(bad)).await.refused(401, "invalid_token");
    }
    let key = [("idempotency-key", "once")];
    for outcome in ["accepted", "duplicate"] {
        let answer = stranger.send("POST", "/v1/signals", &key, Some(signal(token))).await;
        assert_eq!(answer.expect(200)["outcome"], outcome);
    }
    assert_eq!(server.client.get(&at(&id)).await.expect(200)["public_state"], "waiting");
    let point = waitpoint["waitpoint_id"].as_str().unwrap();
    let path = format!("{}/waitpoints/{point}/token", at(&id));
    assert_eq!(server.client.get(&path).await.expect(200)["token"], token);
    let reader = server.user(&["read", "signal"], &["default"]).await;
    reader.get(&path).await.refused(403, "forbidden");
    server.stop().await;
}

#[tokio::test]
async fn an_operator_resumes() {
    let server = server().await;
    let (id, _) = suspended(&server, "ok?").await;
    let resumed = server.client.post(&format!("{}/resume", at(&id)), json!({})).await.expect(200);
    assert_eq!(resumed["public_state"], "waiting");
    let again = server.client.post(&format!("{}/resume", at(&id)), json!({})).await;
    again.refused(409, "execution_not_suspended");
    server.stop().await;
}

#[tokio::test]
async fn a_person_decides_on_a_page() {
    let server = server().await;
    let (id, waitpoint) = suspended(&server, "<script>alert(1)</script>").await;
    let stranger = server.client.with(None);
    let token = waitpoint["token"].as_str().unwrap();
    let page = stranger.get(&format!("/approve/{token}")).await;
    let html = String::from_utf8(page.body.clone()).unwrap();
    assert_eq!(page.status, 200, "{html}");
    assert!(html.contains("&lt;script&gt;") && !html.contains("<script"), "{html}");
    assert!(html.contains(">approve<") && html.contains(">reject<"), "{html}");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    // Looking at it has changed nothing.
    assert_eq!(server.client.get(&at(&id)).await.expect(200)["public_state"], "suspended");
    let press = async |answer: &str| {
        stranger.send("POST", &format!("/approve/{token}/{answer}"), &[], None).await
    };
    assert!(String::from_utf8_lossy(&press("approve").await.body).contains("Thank you"));
    assert!(String::from_utf8_lossy(&press("reject").await.body).contains("Already answered"));
    let signals = server.client.get(&format!("{}/signals", at(&id))).await.expect(200);
    assert_eq!(signals["signals"].as_array().unwrap().len(), 1);
    assert_eq!(signals["signals"][0]["signal_name"], "approve");
    let closed = stranger.get(&format!("/approve/{token}")).await;
    assert!(String::from_utf8_lossy(&closed.body).contains("closed"));
    let forged = stranger.get("/approve/ffw1.k1.x.y").await;
    assert_eq!(forged.status, 401);
    server.stop().await;
}

/// Suspends a new execution until signals of two sources have come on one waitpoint.
async fn wants_two(server: &Server) -> (String, Value) {
    let id = server.submit("l", json!(1)).await;
    let (handle, _) = server.claim("l").await;
    let body = json!({ "handle": handle, "suspension": {
        "reason": "waiting_for_approval",
        "waitpoints": [{
            "type": "fresh", "waitpoint_id": "0193b3c4-0000-7000-8000-00000000000a",
            "waitpoint_key": "ok?", "token": {},
        }],
        "condition": {
            "type": "count", "n": 2, "distinct": "sources", "waitpoint_keys": ["ok?"],
        },
    } });
    let answer = server.client.post("/v1/leases/suspend", body).await.expect(200);
    (id, answer["waitpoints"][0].clone())
}

/// The ways in which a waitpoint is signalled over HTTP, and who each of them is.
const WAYS: [(&str, &str); 5] = [
    ("page", "link"),
    ("signals", "link"),
    ("ann", "ann"),
    ("another ann", "another ann"),
    ("root", "root"),
];

#[tokio::test]
async fn two_approvals_are_of_two_sources_whatever_the_route() {
    let server = server().await;
    let (ann, other) = (
        server.user(&["signal"], &["default"]).await,
        server.user(&["signal"], &["default"]).await,
    );
    for (first, second) in WAYS.iter().flat_map(|one| WAYS.iter().map(move |two| (one, two))) {
        let (id, waitpoint) = wants_two(&server).await;
        let (point, token) = (waitpoint["waitpoint_id"].clone(), waitpoint["token"].clone());
        let (point, token) = (point.as_str().unwrap(), token.as_str().unwrap());
        for (way, _) in [first, second] {
            let stranger = server.client.with(None);
            let signal = json!({ "signal_name": "approve" });
            let own = format!("{}/waitpoints/{point}/signal", at(&id));
            let answer = match *way {
                "page" => {
                    let path = format!("/approve/{token}/approve");
                    stranger.send("POST", &path, &[], None).await
                }
                "signals" => {
                    let body = json!({ "token": token, "signal": signal });
                    stranger.post("/v1/signals", body).await
                }
                "ann" => ann.post(&own, signal).await,
                "another ann" => other.post(&own, signal).await,
                _ => server.client.post(&own, signal).await,
            };
            assert_eq!(answer.status, 200, "{way}");
        }
        let state = server.client.get(&at(&id)).await.expect(200)["public_state"].clone();
        let expected = if first.1 == second.1 { "suspended" } else { "waiting" };
        assert_eq!(state, expected, "{} and {}", first.0, second.0);
        server.client.post(&format!("{}/cancel", at(&id)), json!({})).await.expect(200);
    }
    server.stop().await;
}

#[tokio::test]
async fn the_page_of_a_key_that_was_rotated_out_does_not_open() {
    let server = server().await;
    let (_, waitpoint) = suspended(&server, "ok?").await;
    let path = format!("/approve/{}", waitpoint["token"].as_str().unwrap());
    let stranger = server.client.with(None);
    assert_eq!(stranger.get(&path).await.status, 200);
    let rotated = server.client.post("/v1/waitpoint-keys/k2/rotate", json!({ "grace": "0s" }));
    rotated.await.expect(200);
    let shut = stranger.get(&path).await;
    let html = String::from_utf8_lossy(&shut.body).into_owned();
    assert!(shut.status == 401 && !html.contains("ok?"), "{}: {html}", shut.status);
    server.stop().await;
}
