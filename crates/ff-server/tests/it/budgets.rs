//! Budgets, quotas and the keys of waitpoints over HTTP.

use ff_core::engine::EngineConfig;
use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets};
use serde_json::{Value, json};

use crate::server::{Server, at, claim, config};
use crate::system::conforms;

async fn put(server: &Server, path: &str, body: Value) -> Value {
    server.client.send("PUT", path, &[], Some(body)).await.expect(200)
}

#[tokio::test]
async fn budgets_are_declared_spent_reset_and_forgotten() {
    let server = Server::start().await;
    let client = &server.client;
    let body = json!({
        "scope": { "lane": "l" }, "on_breach": "suspend", "reset_period_ms": 86_400_000,
        "dimensions": { "tokens": { "hard": 10, "soft": 5 } }, "estimate": { "tokens": 4 },
    });
    let made = put(&server, "/v1/budgets/daily", body.clone()).await;
    assert_eq!(made["dimensions"]["tokens"]["used"], 0);
    let document = client.get("/openapi.json").await.expect(200);
    let content = &document["paths"]["/v1/budgets/{budget_id}"]["get"]["responses"]["200"];
    conforms(&document, &content["content"]["application/json"]["schema"], &made, "budget");

    let first = server.submit("l", json!(1)).await;
    let second = server.submit("l", json!(2)).await;
    let (handle, claimed) = server.claim("l").await;
    assert_eq!(claimed["execution_id"], first);
    let report = |amount: u64| {
        let amounts = json!({ "tokens": amount });
        json!({ "handle": handle, "budget_id": "daily", "amounts": amounts })
    };
    let key = [("idempotency-key", "call-1")];
    let send = async |body: Value| client.send("POST", "/v1/leases/usage", &key, Some(body)).await;
    assert_eq!(send(report(7)).await.expect(200)["outcome"], "soft_breach");
    assert_eq!(send(report(7)).await.expect(200), json!({ "outcome": "already_applied" }));
    let hard = client.post("/v1/leases/usage", report(7)).await.expect(200);
    assert_eq!((&hard["outcome"], &hard["hard"]), (&json!("hard_breach"), &json!(10)));

    // There is room for 3 and 4 are expected: it is suspended until somebody approves.
    assert_eq!(client.post("/v1/claims", claim("l")).await.expect(200)["executions"], json!([]));
    assert_eq!(client.get(&at(&second)).await.expect(200)["public_state"], "suspended");
    let approve = format!("{}/approve-budget", at(&second));
    let approved = client.post(&approve, json!({ "raise": { "tokens": 90 } })).await;
    assert_eq!(approved.status, 204);
    let (_, claimed) = server.claim("l").await;
    assert_eq!(claimed["execution_id"], second);

    let release = json!({ "execution_id": first });
    let released = client.post("/v1/budgets/daily/release", release).await.expect(200);
    assert_eq!(released, json!({ "released": { "tokens": 7 } }));
    let reset = client.send("POST", "/v1/budgets/daily/reset", &[], None).await.expect(200);
    assert!(reset["next_reset_at"].is_string(), "{reset}");
    let list = client.get("/v1/budgets?limit=1").await.expect(200);
    assert_eq!(list["budgets"][0]["dimensions"]["tokens"]["hard"], 100);
    assert_eq!(list["next_after"], "daily");
    let rest = client.get("/v1/budgets?after=daily").await.expect(200);
    assert_eq!(rest, json!({ "budgets": [], "next_after": null }));
    let gone = client.send("DELETE", "/v1/budgets/daily", &[], None).await;
    assert_eq!(gone.status, 204);
    client.get("/v1/budgets/daily").await.refused(404, "not_found");
    client.send("DELETE", "/v1/budgets/daily", &[], None).await.refused(404, "not_found");

    let mut bad = body;
    bad["namespace"] = json!("other");
    let refused = client.send("PUT", "/v1/budgets/daily", &[], Some(bad)).await;
    refused.refused(400, "invalid_input");
    server.stop().await;
}

#[tokio::test]
async fn quotas_have_weights_and_namespaces() {
    let server = Server::start().await;
    let client = &server.client;
    let body = json!({
        "lane_id": "l", "key": { "tag": "tenant.name" }, "concurrency": 1, "fair": true,
        "weights": { "large": 3 }, "rate": { "limit": 100, "window_ms": 1000 },
    });
    let made = put(&server, "/v1/quotas/turns?namespace=*", body.clone()).await;
    assert_eq!(made["weights"], json!({ "large": 3 }));
    assert_eq!(made["namespace"], "");
    server.submit("l", json!(1)).await;
    server.claim("l").await;
    let quota = client.get("/v1/quotas/turns?namespace=*").await.expect(200);
    let used = quota["usage"].as_array().unwrap().iter().find(|usage| usage["in_use"] == 1);
    assert!(used.is_some(), "{quota}");
    // Those of all namespaces and those of one are kept apart.
    client.get("/v1/quotas/turns").await.refused(404, "not_found");
    put(&server, "/v1/quotas/own%2Fname", json!({ "concurrency": 2 })).await;
    let own = client.get("/v1/quotas").await.expect(200);
    assert_eq!(own["quotas"][0]["quota_id"], "own/name");
    let confined = server.user(&["admin"], &["own"]).await;
    let foreign = confined.send("PUT", "/v1/quotas/x?namespace=*", &[], Some(body)).await;
    foreign.refused(403, "forbidden");
    assert_eq!(confined.get("/v1/quotas").await.expect(200)["quotas"], json!([]));
    confined.send("DELETE", "/v1/quotas/own%2Fname", &[], None).await.refused(404, "not_found");
    let gone = client.send("DELETE", "/v1/quotas/turns?namespace=*", &[], None).await;
    assert_eq!(gone.status, 204);
    let none = json!({ "concurrency": 0 });
    let refused = client.send("PUT", "/v1/quotas/none", &[], Some(none)).await;
    refused.refused(400, "invalid_input");
    server.stop().await;
}

#[tokio::test]
async fn waitpoint_secrets_are_rotated() {
    let secret = |kid: &str, byte: u8| WaitpointSecret::new(kid, Secret::new([byte; 32])).unwrap();
    let secrets = WaitpointSecrets::new([secret("k1", 0x11), secret("k2", 0x22)]).unwrap();
    let engine = EngineConfig { waitpoint_secrets: secrets, ..EngineConfig::default() };
    let server = Server::start_engine(config(), engine).await;
    let client = &server.client;
    let post = async |path: &str, body: Value| client.post(path, body).await;
    let rotated = post("/v1/waitpoint-keys/k2/rotate", json!({ "grace": "1h" })).await.expect(200);
    assert_eq!((&rotated["outcome"], &rotated["new_kid"]), (&json!("rotated"), &json!("k2")));
    let again = post("/v1/waitpoint-keys/k2/rotate", json!({})).await.expect(200);
    assert_eq!(again, json!({ "outcome": "noop", "kid": "k2" }));
    let seeded = client.send("POST", "/v1/waitpoint-keys/k1/seed", &[], None).await.expect(200);
    assert_eq!(seeded["outcome"], "already_seeded");
    let keys = client.get("/v1/waitpoint-keys").await.expect(200);
    let active: Vec<_> =
        keys["keys"].as_array().unwrap().iter().filter(|key| key["active"] == true).collect();
    assert_eq!(active.len(), 1, "{keys}");
    assert_eq!(active[0]["kid"], "k2");
    assert!(!keys.to_string().contains("2222"), "{keys}");
    let unknown = post("/v1/waitpoint-keys/k9/rotate", json!({})).await;
    assert_eq!(unknown.status, 400);
    server.stop().await;
}
