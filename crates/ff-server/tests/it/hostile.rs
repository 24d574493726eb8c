//! Strings that were made to break things, in every field that takes text.

use ff_server::Reach;
use serde_json::{Value, json};

use crate::server::{Server, at, claim};

const HOSTILE: [&str; 12] = [
    "'; DROP TABLE ff_execution; --",
    "\" OR 1=1 --",
    "<script>alert(1)</script>",
    "\u{0}",
    "a\u{0}b",
    "\u{202e}\u{feff}\u{fffd}",
    "../../../etc/passwd",
    "%s%n${jndi:ldap://x}{{7*7}}",
    "\r\nset-cookie: x=1",
    "🦀🦀🦀",
    "\u{7f}\u{1b}[31m",
    "",
];

/// Requests whose text fields all hold the given string.
fn requests(text: &str, handle: &str, id: &str) -> Vec<(&'static str, String, Value)> {
    let (at, long) = (at(id), text.repeat(3_000));
    vec![
        (
            "POST",
            "/v1/executions".into(),
            json!({
                "lane_id": text, "execution_kind": text, "payload": { text: text },
                "creator_identity": text, "idempotency_key": text, "tags": { text: text },
                "payload_encoding": text,
            }),
        ),
        ("POST", "/v1/executions".into(), json!({ "lane_id": "l", "execution_kind": long })),
        (
            "POST",
            "/v1/executions".into(),
            json!({ "lane_id": "l", "execution_kind": "k", text: 1 }),
        ),
        (
            "POST",
            "/v1/executions".into(),
            json!({ "lane_id": "l", "execution_kind": text, "tags": { "a.b": text } }),
        ),
        ("POST", "/v1/executions".into(), json!({ "lane_id": "l", "execution_id": text })),
        ("POST", "/v1/executions".into(), json!({ "delay": text, "deadline": text })),
        (
            "POST",
            "/v1/claims".into(),
            json!({
                "lanes": [text], "worker_id": text, "worker_instance_id": text,
                "capabilities": [text],
            }),
        ),
        ("POST", "/v1/leases/renew".into(), json!({ "handles": [text, long] })),
        ("POST", "/v1/leases/progress".into(), json!({ "handle": handle, "message": text })),
        ("POST", "/v1/leases/progress".into(), json!({ "handle": handle, "message": long })),
        ("POST", "/v1/leases/complete".into(), json!({ "handle": text, "result_base64": text })),
        ("POST", "/v1/leases/fail".into(), json!({ "handle": text, "reason": text })),
        ("POST", format!("{at}/cancel?x={}", escaped(text)), json!({ "reason": text })),
        (
            "POST",
            format!("{at}/revoke-lease"),
            json!({ "reason": long, "expected_lease_id": text }),
        ),
        ("PATCH", format!("{at}/tags"), json!({ "a.b": text, text: text })),
        ("PATCH", format!("{at}/tags"), json!({ "a.b": text })),
        ("POST", format!("/v1/lanes/{}/pause", escaped(text)), json!({ "reason": text })),
        ("POST", format!("/v1/flows/{}/cancel", escaped(text)), json!({ "policy": text })),
        (
            "POST",
            "/v1/tokens".into(),
            json!({ "name": text, "scopes": ["read"], "namespaces": [text] }),
        ),
        ("GET", format!("/v1/executions/{}", escaped(text)), Value::Null),
        ("GET", format!("/v1/executions?lane_id={0}&tag=a.b:{0}", escaped(text)), Value::Null),
        ("GET", format!("/v1/executions?cursor={}", escaped(text)), Value::Null),
        ("GET", format!("/v1/executions?namespace={}", escaped(text)), Value::Null),
        ("GET", format!("/v1/events?after={}", escaped(text)), Value::Null),
    ]
}

/// The same for what suspends and signals.
fn signals(text: &str, handle: &str) -> Vec<(&'static str, String, Value)> {
    let long = text.repeat(3_000);
    vec![
        (
            "POST",
            "/v1/leases/suspend".into(),
            json!({ "handle": handle, "suspension": {
                "condition": {
                    "type": "single", "waitpoint_key": text, "matcher": { "name": text },
                },
                "continuation": long, "idempotency_key": text,
            } }),
        ),
        (
            "POST",
            "/v1/signals".into(),
            json!({ "token": text, "signal": { "signal_name": text, "payload": text } }),
        ),
        ("GET", format!("/approve/{}", escaped(text)), Value::Null),
        ("POST", format!("/approve/{0}/{0}", escaped(text)), Value::Null),
    ]
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test]
async fn no_string_breaks_anything() {
    let server = Server::start().await;
    let id = server.submit("l", json!(1)).await;
    let (handle, _) = server.claim("l").await;
    for text in HOSTILE {
        let all = requests(text, &handle, &id).into_iter().chain(signals(text, &handle));
        for (method, path, body) in all {
            let body = if body.is_null() { None } else { Some(body) };
            let answer = server.client.send(method, &path, &[], body.clone()).await;
            let said = String::from_utf8_lossy(&answer.body);
            assert!(answer.status < 500, "{method} {path} {body:?}: {} {said}", answer.status);
            assert!(answer.header("set-cookie").is_none());
        }
        let strange = [("idempotency-key", "\u{7f}"), ("last-event-id", "?")];
        let answer = server.client.send("POST", "/v1/claims", &strange, Some(claim("l"))).await;
        assert!(answer.status < 500);
    }
    // What was accepted is still readable.
    let list = server.client.get("/v1/executions?limit=1000").await.expect(200);
    for line in list["executions"].as_array().unwrap() {
        let id = line["execution_id"].as_str().unwrap();
        server.client.get(&at(id)).await.expect(200);
    }
    server.stop().await;
}

/// Every route with bodies that no route takes.
#[tokio::test]
async fn bodies_that_are_not_understood_are_refused() {
    let server = Server::start().await;
    let bodies = [
        "{",
        "null",
        "[]",
        "1",
        "\"x\"",
        "{\"namespace\":\"other\"}",
        "{\"a\":1}",
        "\u{feff}{}",
        "{\"handle\":{}}",
        "{\"handles\":[1]}",
        "{\"lane_id\":null,\"execution_kind\":7}",
    ];
    for route in ff_server::table() {
        if route.method.as_str() == "GET" || route.reach == Reach::Nothing {
            continue;
        }
        let path = crate::walk::address(&route);
        for body in bodies {
            // A route that takes no body takes this for none.
            if route.body == 0 && body == "null" {
                continue;
            }
            let method = route.method.as_str();
            let answer = server.client.send_bytes(method, &path, &[], Some(body.as_bytes())).await;
            let refused = matches!(answer.status, 400 | 401 | 404 | 413);
            assert!(refused, "{method} {path} {body}: {}", answer.status);
        }
    }
    let events = server.client.get("/v1/events?namespace=*").await.expect(200);
    assert_eq!(events["events"], json!([]), "a refused request has changed something");
    server.stop().await;
}
