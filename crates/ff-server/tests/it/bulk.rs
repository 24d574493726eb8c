//! Bulk operations over HTTP: counted, started, watched and stopped.

use ff_core::engine_backend::EngineBackend;
use serde_json::{Value, json};

use crate::server::{Server, at};

#[tokio::test]
async fn many_are_counted_and_then_cancelled() {
    let server = Server::start().await;
    let client = &server.client;
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.push(server.submit("l", json!(number)).await);
    }
    let other = server.submit("other", json!(null)).await;
    let filter = json!({ "lane_id": "l", "states": ["waiting"] });
    let preview = client.post("/v1/bulk/preview", json!({ "filter": filter })).await.expect(200);
    assert_eq!(preview["matched"], 3);
    assert_eq!(preview["sample"][0]["execution_id"], *ids[0]);

    let body = json!({ "filter": filter, "action": { "type": "cancel", "reason": "tidy" } });
    let key = [("idempotency-key", "tidy-1")];
    let started = client.send("POST", "/v1/bulk", &key, Some(body.clone())).await.expect(201);
    let again = client.send("POST", "/v1/bulk", &key, Some(body)).await.expect(201);
    assert_eq!(started["bulk_id"], again["bulk_id"]);
    assert_eq!(started["filter"], filter);
    server.backend.engine().sweep().await.unwrap();
    let path = format!("/v1/bulk/{}", started["bulk_id"].as_str().unwrap());
    let seen = client.get(&path).await.expect(200);
    assert_eq!((&seen["state"], &seen["changed"]), (&json!("finished"), &json!(3)), "{seen}");
    let cancelled = client.get(&at(&ids[1])).await.expect(200);
    assert_eq!(cancelled["cancellation_reason"], "tidy");
    assert_eq!(client.get(&at(&other)).await.expect(200)["public_state"], "waiting");
    let stopped = client.send("POST", &format!("{path}/cancel"), &[], None).await.expect(200);
    assert_eq!(stopped["state"], "finished", "it had ended already");
    let list = client.get("/v1/bulk?limit=1").await.expect(200);
    assert_eq!(list["operations"][0]["bulk_id"], started["bulk_id"]);
    server.stop().await;
}

#[tokio::test]
async fn those_that_refuse_are_listed() {
    let server = Server::start().await;
    let client = &server.client;
    let id = server.submit("l", json!(null)).await;
    let (handle, _) = server.claim("l").await;
    client.post("/v1/leases/complete", json!({ "handle": handle })).await.expect(204);
    let body = json!({ "filter": {}, "action": { "type": "cancel", "reason": "" } });
    let started = client.post("/v1/bulk", body).await.expect(201);
    server.backend.engine().sweep().await.unwrap();
    let path = format!("/v1/bulk/{}/failures", started["bulk_id"].as_str().unwrap());
    let page = client.get(&path).await.expect(200);
    assert_eq!(page["failures"][0]["execution_id"], *id);
    assert_eq!(page["failures"][0]["code"], "invalid_input");
    assert_eq!(page["next_cursor"], Value::Null);
    server.stop().await;
}

#[tokio::test]
async fn a_bulk_operation_stays_in_its_namespace() {
    let server = Server::start().await;
    let theirs = server.submit("l", json!(null)).await;
    let own = server.user(&["admin"], &["own"]).await;
    let filter = json!({ "states": ["waiting"] });
    let preview = own.post("/v1/bulk/preview", json!({ "filter": filter })).await.expect(200);
    assert_eq!(preview, json!({ "matched": 0, "sample": [] }));
    let body = json!({ "filter": filter, "action": { "type": "cancel", "reason": "" } });
    let started = own.post("/v1/bulk", body.clone()).await.expect(201);
    assert_eq!(started["namespace"], "own");
    server.backend.engine().sweep().await.unwrap();
    assert_eq!(server.client.get(&at(&theirs)).await.expect(200)["public_state"], "waiting");
    let foreign = server.client.post("/v1/bulk", body).await.expect(201);
    let path = format!("/v1/bulk/{}", foreign["bulk_id"].as_str().unwrap());
    own.get(&path).await.refused(404, "not_found");
    own.get(&format!("{path}/failures")).await.refused(404, "not_found");
    own.send("POST", &format!("{path}/cancel"), &[], None).await.refused(404, "not_found");

    for bad in [
        json!({ "action": { "type": "replay" } }),
        json!({ "filter": { "namespace": "x" }, "action": { "type": "replay" } }),
        json!({ "filter": { "tag": "x" }, "action": { "type": "replay" } }),
        json!({ "filter": {}, "action": { "type": "explode" } }),
    ] {
        server.client.post("/v1/bulk", bad).await.refused(400, "invalid_input");
    }
    server.stop().await;
}
