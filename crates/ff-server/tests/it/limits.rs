//! Bodies, heads, connections and clients that are too large, too many or too slow.

use std::time::Duration;

use ff_server::Config;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::parse;
use crate::server::{Server, config};

#[tokio::test]
async fn bodies_are_bounded() {
    let server = Server::start().await;
    let large = vec![b' '; 3 * 1024 * 1024];
    let answer = server.client.send_bytes("POST", "/v1/executions", &[], Some(&large)).await;
    answer.refused(413, "body_too_large");
    // A length that is only announced is refused before anything is sent.
    let head = format!(
        "POST /v1/executions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 99999999999\r\n\r\n",
        crate::server::ROOT
    );
    let answer = parse(&server.client.raw(head.as_bytes()).await).unwrap();
    assert_eq!(answer.status, 413);
    let payload = "x".repeat(1024 * 1024 + 1);
    let body = json!({ "lane_id": "l", "execution_kind": "k", "payload": payload });
    server.client.post("/v1/executions", body).await.refused(413, "payload_too_large");
    let nested = format!(
        r#"{{"lane_id":"l","execution_kind":"k","payload":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let answer =
        server.client.send_bytes("POST", "/v1/executions", &[], Some(nested.as_bytes())).await;
    answer.refused(400, "invalid_input");
    let text = [("content-type", "text/plain")];
    let answer = server.client.send_bytes("POST", "/v1/executions", &text, Some(b"{}")).await;
    answer.refused(415, "unsupported_media_type");
    let long = format!("/v1/executions?lane_id={}", "x".repeat(9_000));
    server.client.get(&long).await.refused(414, "uri_too_long");
    let header = "x".repeat(100_000);
    let answer = server.client.send("GET", "/livez", &[("x-long", &header)], None).await;
    assert_eq!(answer.status, 431);
    let list = server.client.get("/v1/executions").await.expect(200);
    assert_eq!(list["executions"], json!([]), "a refused request has changed something");
    server.stop().await;
}

#[tokio::test]
async fn slow_clients_are_cut() {
    let quick = Duration::from_millis(300);
    let settings =
        Config { header_timeout: quick, body_idle: quick, connection_idle: quick, ..config() };
    let server = Server::start_with(settings).await;
    let ended = async |mut stream: TcpStream| {
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        let _ = tokio::time::timeout(Duration::from_secs(10), read).await.expect("it is held open");
        rest
    };
    let connect = async |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.client.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    };
    // Nothing, half a head, half a body, and an idle connection after a request.
    ended(connect(b"").await).await;
    ended(connect(b"GET /livez HTTP/1.1\r\nhost:").await).await;
    let half = format!(
        "POST /v1/executions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 10\r\n\r\n{{",
        crate::server::ROOT
    );
    let answer = parse(&ended(connect(half.as_bytes()).await).await).unwrap();
    answer.refused(408, "request_timeout");
    let idle = ended(connect(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await).await;
    assert!(idle.starts_with(b"HTTP/1.1 200"));
    // Many at once do not keep others out.
    let mut many = Vec::new();
    for _ in 0..500 {
        many.push(connect(b"GET /liv").await);
    }
    assert_eq!(server.client.get("/livez").await.status, 200);
    for stream in many {
        ended(stream).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn too_much_at_once_is_told_to_come_back() {
    let server = Server::start_with(Config { connections: 1, ..config() }).await;
    let first = TcpStream::connect(server.client.address).await.unwrap();
    let answer = loop {
        // The first connection may not have been counted yet.
        match server.client.get("/version").await {
            answer if answer.status == 503 => break answer,
            _ => tokio::task::yield_now().await,
        }
    };
    answer.refused(503, "overloaded");
    assert_eq!(answer.header("retry-after"), Some("1"));
    // A server that is full still says that it is alive.
    for probe in ["/livez", "/readyz"] {
        assert_eq!(server.client.get(probe).await.status, 200, "{probe}");
    }
    drop(first);
    server.stop().await;

    let server = Server::start_with(Config { streams_per_token: 1, ..config() }).await;
    let held = server.client.stream("/v1/events/stream", &[]).await;
    let answer = server.client.get("/v1/events/stream").await;
    let problem = answer.refused(429, "too_many_streams");
    assert_eq!(problem["retryable"], true);
    assert!(answer.header("retry-after").is_some());
    drop(held);
    server.stop().await;
}

#[tokio::test]
async fn malformed_http_is_survived() {
    let server = Server::start().await;
    for bytes in [
        &b"\r\n\r\n\r\n\r\n"[..],
        b"\0\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost x\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"POST /v1/executions HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/executions HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"POST /v1/executions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /v1/executions HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/executions/%ff%fe HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        b"GET /livez?%zz=%00 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.client.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(Duration::from_secs(10), read).await.expect("it hangs");
        let status = parse(&answer).map_or(400, |answer| answer.status);
        assert!((200..500).contains(&status), "{status}: {:?}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(server.client.get("/livez").await.status, 200);
    server.stop().await;
}
