//! What callers may take of a server, and that others are served all the same.

use std::time::Duration;

use ff_server::Config;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{Client, parse};
use crate::server::{Server, config};
use crate::walk::address;

/// The head of a request with a body of so many bytes, of which nothing has been sent.
fn head(target: &str, client: &Client, length: usize) -> String {
    let token = client.token.as_ref();
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    format!(
        "{target} HTTP/1.1\r\nhost: x\r\n{}content-type: application/json\r\n\
         content-length: {length}\r\n\r\n",
        token.unwrap_or_default()
    )
}

async fn open(client: &Client, target: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    stream.write_all(head(target, client, length).as_bytes()).await.unwrap();
    stream.write_all(b"{").await.unwrap();
    stream
}

/// Waits until so many connections are open, this one's own among them.
async fn connections(client: &Client, count: usize) {
    let line = format!("ff_http_connections {count}\n");
    while !String::from_utf8_lossy(&client.get("/metrics").await.body).contains(&line) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn bodies_that_do_not_arrive_keep_nothing_from_others() {
    let settings = Config {
        requests: 2,
        requests_per_token: 2,
        open_requests: 2,
        open_requests_per_address: 2,
        ..config()
    };
    let server = Server::start_with(settings).await;
    let (slow, other) = (server.user(&["submit"], &["*"]).await, server.client.clone());
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(open(&other.with(None), "POST /v1/signals", 100).await);
        held.push(open(&other.with(None), "GET /livez", 10).await);
    }
    for _ in 0..2 {
        held.push(open(&slow, "POST /v1/executions", 100).await);
    }
    connections(&other, 43).await;
    // Whoever has as many in hand as one may have is told so, and that alone.
    let body = json!({ "lane_id": "l", "execution_kind": "k" });
    let refused = slow.post("/v1/executions", body.clone()).await;
    refused.refused(429, "too_many_requests");
    assert!(refused.header("retry-after").is_some());
    other.post("/v1/executions", body).await.expect(201);
    assert_eq!(other.with(None).get("/livez").await.status, 200);
    let signal = json!({ "token": "ffw1.k1.x.y", "signal": { "signal_name": "x" } });
    assert_eq!(other.with(None).post("/v1/signals", signal).await.status, 401);
    drop(held);
    server.stop().await;
}

#[tokio::test]
async fn announced_bodies_take_no_room_from_others() {
    let server = Server::start().await;
    let honest = server.client.clone();
    let mut held = Vec::new();
    for last in [71, 72, 73] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, last], 0).into()).unwrap();
        let mut stream = socket.connect(honest.address).await.unwrap();
        let head = head("POST /v1/signals", &honest.with(None), 2 << 20);
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(b"{").await.unwrap();
        held.push(stream);
    }
    for _ in 0..3 {
        let greedy = server.user(&["submit"], &["*"]).await;
        held.push(open(&greedy, "POST /v1/executions/batch", 16 << 20).await);
    }
    connections(&honest, 7).await;
    let signal = json!({ "token": "ffw1.k1.x.y", "signal": { "signal_name": "x" } });
    assert_eq!(honest.with(None).post("/v1/signals", signal).await.status, 401);
    server.submit("l", json!(1)).await;
    let (handle, _) = server.claim("l").await;
    // A large body of another token has room too.
    let large = json!({ "lane_id": "l", "execution_kind": "k", "payload": "x".repeat(200_000) });
    honest.post("/v1/executions", large).await.expect(201);
    let renew = json!({ "handles": [handle] });
    honest.post("/v1/leases/renew", renew).await.expect(200);
    drop(held);
    server.stop().await;
}

#[tokio::test]
async fn a_body_must_keep_a_pace() {
    let settings = Config { body_grace: Duration::from_millis(50), ..config() };
    let server = Server::start_with(settings).await;
    let request = head("POST /v1/executions", &server.client, 100) + "{";
    let answer = parse(&server.client.raw(request.as_bytes()).await).unwrap();
    let problem = answer.refused(408, "request_timeout");
    assert!(problem["detail"].as_str().unwrap().contains("body_rate"), "{problem}");
    server.stop().await;
}

#[tokio::test]
async fn routes_without_a_body_take_an_empty_one() {
    let server = Server::start().await;
    let mut walked = 0;
    for route in ff_server::table().iter().filter(|route| route.body == 0) {
        let (method, path) = (route.method.as_str(), address(route));
        // What is announced is refused before it is sent.
        let announced = head(&format!("{method} {path}"), &server.client, 1_000_000);
        let answer = parse(&server.client.raw(announced.as_bytes()).await).unwrap();
        let problem = answer.refused(400, "unexpected_body");
        assert!(problem["detail"].as_str().unwrap().contains("takes no body"), "{problem}");
        if method == "GET" {
            continue;
        }
        for body in ["", "{}", " { }\n", "null "] {
            let answer = server.client.send_bytes(method, &path, &[], Some(body.as_bytes())).await;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!text.contains("unexpected_body"), "{method} {path} {body}: {text}");
            assert_ne!(answer.status, 413, "{method} {path}: {text}");
        }
        for body in ["{\"a\":1}", "[]", "0", "nul l", "{{}}"] {
            let answer = server.client.send_bytes(method, &path, &[], Some(body.as_bytes())).await;
            answer.refused(400, "unexpected_body");
        }
        walked += 1;
    }
    assert!(walked >= 10, "{walked}");
    server.stop().await;
}

#[tokio::test]
async fn requests_per_second_are_limited_by_token() {
    let settings = Config { requests_per_second: Some(1), burst: Some(2), ..config() };
    let server = Server::start_with(settings).await;
    let user = server.user(&["read"], &["*"]).await;
    let refused = loop {
        match user.get("/v1/executions").await {
            answer if answer.status == 429 => break answer,
            answer => assert_eq!(answer.status, 200),
        }
    };
    let problem = refused.refused(429, "rate_limit_exceeded");
    assert_eq!(problem["retryable"], true);
    assert_eq!(refused.header("retry-after"), Some("1"));
    // Others have a rate of their own, and probes have none.
    assert_eq!(server.client.get("/v1/executions").await.status, 200);
    for _ in 0..10 {
        assert_eq!(user.get("/livez").await.status, 200);
    }
    server.stop().await;
}
