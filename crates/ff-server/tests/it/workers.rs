//! A worker that has nothing but HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Server, at, claim};

#[tokio::test]
async fn a_worker_needs_http_alone() {
    let server = Server::start().await;
    let id = server.submit("l", json!({ "n": 1 })).await;
    let (handle, claimed) = server.claim("l").await;
    assert_eq!(claimed["execution_id"], id);
    assert_eq!(claimed["payload"], json!({ "n": 1 }));
    assert_eq!(claimed["attempt_type"], "initial");
    let post = async |verb: &str, body: Value| {
        server.client.post(&format!("/v1/leases/{verb}"), body).await
    };
    let renewed = post("renew", json!({ "handles": [handle, "nonsense"] })).await.expect(200);
    assert_eq!(renewed["outcomes"][0]["status"], "renewed");
    assert_eq!(renewed["outcomes"][1]["problem"]["code"], "invalid_input");
    let progress = json!({ "handle": handle, "percent": 50, "message": "half" });
    assert_eq!(post("progress", progress).await.status, 204);
    let described = server.client.get(&at(&id)).await.expect(200);
    assert_eq!(described["progress"], json!({ "percent": 50, "message": "half" }));
    let complete = json!({ "handle": handle, "result": { "sum": 2 } });
    assert_eq!(post("complete", complete.clone()).await.status, 204);
    assert_eq!(post("complete", complete).await.status, 204, "a repeat is answered alike");
    let other = json!({ "handle": handle, "result": 3 });
    post("complete", other).await.refused(409, "result_already_recorded");
    let result = server.client.get(&format!("{}/result?wait=10s", at(&id))).await.expect(200);
    assert_eq!(
        result,
        json!({
            "execution_id": id, "public_state": "completed", "finished": true,
            "result": { "sum": 2 },
        })
    );
    server.stop().await;
}

#[tokio::test]
async fn failures_delays_and_cancellations() {
    let server = Server::start().await;
    for _ in 0..4 {
        server.submit("l", json!(null)).await;
    }
    let post = async |verb: &str, body: Value| {
        server.client.post(&format!("/v1/leases/{verb}"), body).await
    };
    let (handle, _) = server.claim("l").await;
    let failed = post("fail", json!({ "handle": handle, "reason": "x" })).await.expect(200);
    assert_eq!(failed["status"], "retry_scheduled");
    let (handle, _) = server.claim("l").await;
    let fatal = json!({ "handle": handle, "reason": "x", "class": "fatal", "category": "c" });
    assert_eq!(post("fail", fatal).await.expect(200), json!({ "status": "terminal_failed" }));
    let (handle, _) = server.claim("l").await;
    let delayed = post("delay", json!({ "handle": handle, "delay": "1h" })).await.expect(200);
    assert!(delayed["delay_until"].is_string());
    let (handle, claimed) = server.claim("l").await;
    assert_eq!(post("cancel", json!({ "handle": handle, "reason": "r" })).await.status, 204);
    let id = claimed["execution_id"].as_str().unwrap();
    assert_eq!(server.client.get(&at(id)).await.expect(200)["public_state"], "cancelled");
    post("complete", json!({ "handle": "x" })).await.refused(400, "invalid_input");
    server.stop().await;
}

#[tokio::test]
async fn many_reports_go_in_one_request() {
    let server = Server::start().await;
    for at in 0..4 {
        server.submit("l", json!(at)).await;
    }
    let mut request = claim("l");
    request["max"] = json!(10);
    let claimed = server.client.post("/v1/claims", request).await.expect(200);
    let handle = |at: usize| claimed["executions"][at]["handle"].clone();
    let batch = json!({ "operations": [
        { "complete": { "handle": handle(0), "result": null } },
        { "fail": { "handle": handle(1), "reason": "x", "class": "fatal" } },
        { "delay": { "handle": handle(2), "delay": "1h" } },
        { "progress": { "handle": handle(3), "percent": 1 } },
        { "cancel": { "handle": "nonsense" } },
        { "complete": { "handle": handle(0), "result": 1 } },
    ] });
    let answer = server.client.post("/v1/leases/batch", batch).await.expect(200);
    let outcomes = answer["outcomes"].as_array().unwrap();
    let words: Vec<_> =
        outcomes.iter().map(|outcome| outcome["status"].as_str().unwrap()).collect();
    let expected = ["completed", "terminal_failed", "delayed", "progressed", "refused", "refused"];
    assert_eq!(words, expected);
    assert_eq!(outcomes[5]["problem"]["code"], "result_already_recorded");
    let id = claimed["executions"][0]["execution_id"].as_str().unwrap();
    let result = server.client.get(&format!("{}/result", at(id))).await;
    // `null` is a result and not the absence of one.
    assert!(String::from_utf8_lossy(&result.body).contains("\"result\":null"));
    server.stop().await;
}

#[tokio::test]
async fn a_claim_waits_for_work() {
    let server = Server::start().await;
    let client = server.client.clone();
    let mut request = claim("l");
    request["wait"] = json!("30s");
    let waiting = tokio::spawn(async move { client.post("/v1/claims", request).await.expect(200) });
    let id = server.submit("l", json!(1)).await;
    let claimed = waiting.await.unwrap();
    assert_eq!(claimed["executions"][0]["execution_id"], id);
    server.stop().await;
}

#[tokio::test]
async fn the_same_claim_is_answered_alike_under_one_key() {
    let server = Server::start().await;
    server.submit("l", json!(1)).await;
    server.submit("l", json!(2)).await;
    let key = [("idempotency-key", "c1")];
    let send = async || server.client.send("POST", "/v1/claims", &key, Some(claim("l"))).await;
    let (first, again) = (send().await, send().await);
    assert_eq!(first.expect(200), again.expect(200));
    assert_eq!(first.header("idempotency-replayed"), None);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let mut other = claim("l");
    other["max"] = json!(2);
    let reused = server.client.send("POST", "/v1/claims", &key, Some(other)).await;
    reused.refused(422, "idempotency_key_reused");
    server.stop().await;
}

#[tokio::test]
async fn work_claimed_for_a_client_that_left_is_put_back() {
    use tokio::io::AsyncWriteExt;

    let server = Server::start().await;
    let mut request = claim("l");
    request["wait"] = json!("30s");
    let body = request.to_string();
    let head = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        crate::server::ROOT,
        body.len()
    );
    let mut leaving = tokio::net::TcpStream::connect(server.client.address).await.unwrap();
    leaving.write_all(head.as_bytes()).await.unwrap();
    drop(leaving);
    let id = server.submit("l", json!(1)).await;
    let patient = async {
        loop {
            let mut next = claim("l");
            next["wait"] = json!("1s");
            let claimed = server.client.post("/v1/claims", next).await.expect(200);
            if claimed["executions"][0]["execution_id"] == id {
                return;
            }
        }
    };
    // Well before the lease of thirty seconds would have expired.
    tokio::time::timeout(Duration::from_secs(10), patient).await.expect("the work is lost");
    server.stop().await;
}
