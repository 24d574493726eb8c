//! Steps, streams and workers.

use serde_json::{Value, json};

use crate::server::{Server, at};

#[tokio::test]
async fn steps_stand_and_come_back_with_the_next_claim() {
    let server = Server::start().await;
    let id = server.submit("l", json!(1)).await;
    let (handle, _) = server.claim("l").await;
    let record = async |result: Value| {
        let body = json!({ "handle": handle, "name": "charge", "result": result });
        server.client.post("/v1/leases/steps", body).await.expect(200)
    };
    assert_eq!(record(json!(7)).await["outcome"], "recorded");
    assert_eq!(record(json!(7)).await["outcome"], "recorded", "a repeat is told the same");
    let kept = record(json!(8)).await;
    assert_eq!((&kept["outcome"], &kept["result"]), (&json!("kept"), &json!("Nw==")));
    let steps = server.client.get(&format!("{}/steps", at(&id))).await.expect(200);
    assert_eq!(steps["steps"][0]["name"], "charge");
    let sleep = json!({ "handle": handle, "name": "rest", "duration": "0s" });
    server.client.post("/v1/leases/sleep", sleep).await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn frames_are_followed_to_their_end() {
    let server = Server::start().await;
    let id = server.submit("l", json!(1)).await;
    let (handle, _) = server.claim("l").await;
    let append = async |payload: &str| {
        let frame = json!({ "frame_type": "token", "payload": payload });
        let body = json!({ "handle": handle, "frames": [frame] });
        server.client.post("/v1/leases/frames", body).await.expect(200)
    };
    append("YQ==").await;
    let page = server.client.get(&format!("{}/stream", at(&id))).await.expect(200);
    assert_eq!(page["frames"][0]["payload"], "YQ==");
    assert_eq!(page["closed"], Value::Null);
    let path = format!("{}/stream/tail", at(&id));
    let mut tail = server.client.stream(&path, &[]).await;
    let (first, event, frame) = tail.event().await;
    assert_eq!((&*event, &frame["payload"]), ("frame", &json!("YQ==")));
    drop(tail);
    append("Yg==").await;
    let mut tail = server.client.stream(&path, &[("last-event-id", &first)]).await;
    assert_eq!(tail.event().await.2["payload"], "Yg==");
    server.client.post("/v1/leases/complete", json!({ "handle": handle })).await;
    let (_, event, end) = tail.event().await;
    assert_eq!((&*event, &end["reason"]), ("closed", &json!("attempt_success")));
    // The last chunk: nothing more comes on this stream.
    tail.read_until("\r\n0\r\n\r\n").await;
    let absent = "/v1/executions/0:0193b3c4-0000-7000-8000-000000000001/stream/tail";
    server.client.get(absent).await.refused(404, "not_found");
    let bad = server.client.get(&format!("{}/stream?from=middle", at(&id))).await;
    bad.refused(400, "invalid_cursor");
    server.stop().await;
}

#[tokio::test]
async fn workers_make_themselves_known() {
    let server = Server::start().await;
    let body = json!({
        "worker_id": "w", "worker_instance_id": "w-1", "lanes": ["l"], "liveness_ttl": "1m",
    });
    let registered = server.client.post("/v1/workers", body).await.expect(200);
    assert_eq!(registered["outcome"], "registered");
    let beat = server.client.send("POST", "/v1/workers/w-1/heartbeat", &[], None).await;
    assert_eq!(beat.expect(200)["outcome"], "refreshed");
    let workers = server.client.get("/v1/workers?lane_id=l").await.expect(200);
    assert_eq!(workers["workers"][0]["worker_instance_id"], "w-1");
    let stranger = server.user(&["admin"], &["other"]).await;
    assert_eq!(stranger.get("/v1/workers").await.expect(200)["workers"], json!([]));
    let gone = stranger.send("DELETE", "/v1/workers/w-1", &[], None).await.expect(200);
    assert_eq!(gone["outcome"], "not_registered");
    let gone = server.client.send("DELETE", "/v1/workers/w-1", &[], None).await.expect(200);
    assert_eq!(gone["outcome"], "retired");
    server.stop().await;
}
