//! The log over HTTP.

use serde_json::json;

use crate::server::{Server, claim};

#[tokio::test]
async fn events_come_in_pages() {
    let server = Server::start().await;
    for at in 0..3 {
        server.submit("l", json!(at)).await;
    }
    let first = server.client.get("/v1/events?limit=2").await.expect(200);
    assert_eq!(first["events"].as_array().unwrap().len(), 2);
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = server.client.get(&format!("/v1/events?after={cursor}")).await.expect(200);
    assert_eq!(rest["events"].as_array().unwrap().len(), 1);
    let cursor = rest["next_cursor"].as_str().unwrap().to_owned();
    let client = server.client.clone();
    let path = format!("/v1/events?after={cursor}&wait=30s&event_types=claimed");
    let waiting = tokio::spawn(async move { client.get(&path).await.expect(200) });
    server.client.post("/v1/claims", claim("l")).await.expect(200);
    assert_eq!(waiting.await.unwrap()["events"][0]["event_type"], "claimed");
    for (query, code) in [
        ("after=nonsense", "invalid_cursor"),
        ("event_types=born", "invalid_input"),
        ("from=middle", "invalid_input"),
        ("limit=0", "invalid_input"),
    ] {
        server.client.get(&format!("/v1/events?{query}")).await.refused(400, code);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_stream_is_resumed_where_it_broke_off() {
    let server = Server::start().await;
    let mut stream = server.client.stream("/v1/events/stream", &[]).await;
    let first = server.submit("l", json!(1)).await;
    let (id, event, data) = stream.event().await;
    assert_eq!(event, "submitted");
    assert_eq!(data["execution_id"], first);
    assert_eq!(data["cursor"], id);
    drop(stream);
    let second = server.submit("l", json!(2)).await;
    let third = server.submit("l", json!(3)).await;
    let resume = [("last-event-id", &*id)];
    let mut stream = server.client.stream("/v1/events/stream", &resume).await;
    assert_eq!(stream.event().await.2["execution_id"], second);
    assert_eq!(stream.event().await.2["execution_id"], third);
    let mut filtered =
        server.client.stream("/v1/events/stream?from=oldest&event_types=claimed", &[]).await;
    server.claim("l").await;
    assert_eq!(filtered.event().await.1, "claimed");
    server.stop().await;
}

#[tokio::test]
async fn events_of_other_namespaces_are_not_seen() {
    let server = Server::start().await;
    let body = json!({ "lane_id": "l", "execution_kind": "k" });
    server.client.post("/v1/executions?namespace=other", body).await.expect(201);
    let own = server.client.get("/v1/events").await.expect(200);
    assert_eq!(own["events"], json!([]));
    let all = server.client.get("/v1/events?namespace=*").await.expect(200);
    assert_eq!(all["events"].as_array().unwrap().len(), 1);
    server.stop().await;
}
