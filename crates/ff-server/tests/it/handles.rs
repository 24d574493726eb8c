//! A lease is proved by its handle, and a handle cannot be written from what others may see.

use serde_json::{Value, json};

use crate::server::{Server, at};

/// What a worker says with a handle, route by route.
fn reports(handle: &str) -> Vec<(&'static str, Value)> {
    let own = |mut body: Value| {
        body["handle"] = json!(handle);
        body
    };
    let frames = json!({ "frames": [{ "frame_type": "t", "payload": "eA==" }] });
    let suspension = json!({ "suspension": { "condition": { "type": "operator_only" } } });
    let node = json!({ "name": "m", "work": { "lane_id": "l", "execution_kind": "k" } });
    let waitpoint = json!({ "waitpoint": { "waitpoint_key": "x", "expires_in_ms": 60_000 } });
    vec![
        ("progress", own(json!({ "percent": 1 }))),
        ("complete", own(json!({}))),
        ("fail", own(json!({ "reason": "x", "category": "y" }))),
        ("cancel", own(json!({ "reason": "x" }))),
        ("delay", own(json!({ "delay": "1h" }))),
        ("steps", own(json!({ "name": "s", "result": 1 }))),
        ("sleep", own(json!({ "name": "s", "duration": "1h" }))),
        ("frames", own(frames)),
        ("suspend", own(suspension)),
        ("waitpoints", own(waitpoint)),
        ("signals", own(json!({}))),
        ("extend-flow", own(json!({ "nodes": [node] }))),
        ("wait-children", own(json!({}))),
    ]
}

#[tokio::test]
async fn a_handle_cannot_be_written_from_what_others_see() {
    let server = Server::start().await;
    let graph = json!({ "nodes": [{
        "name": "n", "work": { "lane_id": "l", "execution_kind": "k" },
    }] });
    server.client.post("/v1/flows", graph).await.expect(201);
    let (handle, claimed) = server.claim("l").await;
    let id = claimed["execution_id"].as_str().unwrap();
    let secret = handle.split('.').nth(6).unwrap();
    assert!(handle.starts_with("ffh2.") && secret.len() > 8, "{handle}");

    let stranger = server.user(&["work", "read"], &["default"]).await;
    let mut seen = stranger.get(&at(id)).await.expect(200).to_string();
    for path in ["/history", "/attempts", "/explain", "/stream", "/steps"] {
        seen += &String::from_utf8_lossy(&stranger.get(&format!("{}{path}", at(id))).await.body);
    }
    for path in ["/v1/executions", "/v1/events", "/v1/lanes", "/v1/flows", "/v1/workers"] {
        seen += &String::from_utf8_lossy(&stranger.get(path).await.body);
    }
    assert!(seen.contains("w-1") && !seen.contains(secret), "{seen}");

    // Everything of the handle but its secret.
    let parts: Vec<&str> = handle.splitn(9, '.').collect();
    let written = |secret: &str| {
        let mut parts = parts.clone();
        parts[6] = secret;
        parts.join(".")
    };
    let mut without = parts.clone();
    without[0] = "ffh1";
    without.remove(6);
    let before = stranger.get(&at(id)).await.expect(200);
    for forged in [written("0"), written("1"), written("3fffffffffffffff"), without.join(".")] {
        for (verb, body) in reports(&forged) {
            let path = format!("/v1/leases/{verb}");
            let answer = stranger.post(&path, body).await;
            let code = answer.json()["code"].clone();
            assert_eq!((answer.status, code), (409, json!("stale_lease")), "{verb} {answer:?}");
        }
        let renewed = stranger.post("/v1/leases/renew", json!({ "handles": [forged] })).await;
        assert_eq!(renewed.expect(200)["outcomes"][0]["problem"]["code"], "stale_lease");
        let batch = json!({ "operations": [{ "complete": { "handle": forged } }] });
        let batch = stranger.post("/v1/leases/batch", batch).await.expect(200);
        assert_eq!(batch["outcomes"][0]["problem"]["code"], "stale_lease");
    }
    assert_eq!(stranger.get(&at(id)).await.expect(200), before);
    server.client.post("/v1/leases/complete", json!({ "handle": handle })).await.expect(204);
    server.stop().await;
}
