//! Schedules over HTTP: made, seen, driven by hand and forgotten.

use ff_core::engine_backend::EngineBackend;
use serde_json::{Value, json};

use crate::server::Server;

fn nightly() -> Value {
    json!({
        "timing": { "type": "cron", "expression": "30 3 * * *", "time_zone": "Europe/Berlin" },
        "template": {
            "lane_id": "reports", "execution_kind": "nightly", "payload": { "full": true },
        },
        "overlap": "buffer_one", "missed": { "all": { "max": 3 } },
    })
}

async fn put(server: &Server, name: &str, body: Value) -> Value {
    let path = format!("/v1/schedules/{name}");
    server.client.send("PUT", &path, &[], Some(body)).await.expect(200)
}

#[tokio::test]
async fn schedules_are_made_seen_and_forgotten() {
    let server = Server::start().await;
    let client = &server.client;
    assert_eq!(put(&server, "nightly", nightly()).await, json!({ "outcome": "created" }));
    assert_eq!(put(&server, "nightly", nightly()).await, json!({ "outcome": "unchanged" }));
    let mut changed = nightly();
    changed["jitter_ms"] = json!(1_000);
    assert_eq!(put(&server, "nightly", changed).await, json!({ "outcome": "updated" }));
    put(&server, "a%20b", nightly()).await;

    let seen = client.get("/v1/schedules/nightly?upcoming=3").await.expect(200);
    assert_eq!((&seen["name"], &seen["generation"]), (&json!("nightly"), &json!(2)));
    assert_eq!(seen["template"]["payload"], json!({ "full": true }));
    assert_eq!(seen["template"]["payload_encoding"], "json");
    assert_eq!(seen["missed"], json!({ "all": { "max": 3 } }));
    assert_eq!(seen["upcoming"].as_array().unwrap().len(), 3);
    assert!(seen["next_start_at"].as_str().unwrap().ends_with('Z'));

    let first = client.get("/v1/schedules?limit=1").await.expect(200);
    assert_eq!(first["schedules"][0]["name"], "a b");
    let cursor = first["next_cursor"].as_str().unwrap().replace('"', "%22").replace(' ', "%20");
    let rest = client.get(&format!("/v1/schedules?cursor={cursor}")).await.expect(200);
    assert_eq!(rest["schedules"][0]["name"], "nightly");
    assert_eq!(rest["next_cursor"], Value::Null);

    let gone = client.send("DELETE", "/v1/schedules/nightly", &[], None).await;
    assert_eq!(gone.status, 204);
    client.get("/v1/schedules/nightly").await.refused(404, "not_found");
    let preview = json!({ "timing": nightly()["timing"], "count": 2 });
    let due = client.post("/v1/schedule-preview", preview).await.expect(200);
    assert_eq!(due["upcoming"].as_array().unwrap().len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn runs_are_started_by_hand() {
    let server = Server::start().await;
    let client = &server.client;
    put(&server, "nightly", nightly()).await;
    let pause = json!({ "reason": "holidays" });
    assert_eq!(client.post("/v1/schedules/nightly/pause", pause).await.status, 204);
    let seen = client.get("/v1/schedules/nightly").await.expect(200);
    assert_eq!(seen["paused"]["reason"], "holidays");
    assert_eq!(seen["upcoming"], json!([]));

    let trigger = "/v1/schedules/nightly/trigger";
    let key = [("idempotency-key", "once")];
    let run = client.send("POST", trigger, &key, None).await.expect(201);
    let again = client.send("POST", trigger, &key, None).await.expect(201);
    assert_eq!(run, again, "one run for one key");
    let other = client.send("POST", trigger, &[], None).await.expect(201);
    assert_ne!(run, other);
    let (_, claimed) = server.claim("reports").await;
    assert_eq!(claimed["payload"], json!({ "full": true }));
    assert_eq!(claimed["tags"]["schedule.name"], "nightly");

    let resumed = client.send("POST", "/v1/schedules/nightly/resume", &[], None).await;
    assert_eq!(resumed.status, 204);
    let range = json!({ "from": "2026-03-01T00:00:00Z", "until": "2026-03-04T00:00:00Z" });
    let made_up = client.post("/v1/schedules/nightly/backfill", range).await.expect(200);
    assert_eq!(made_up, json!({ "runs": 3 }));
    server.backend.engine().sweep().await.unwrap();
    let due = "/v1/executions?tag=schedule.due_at:2026-03-02T02:30:00Z";
    let found = client.get(due).await.expect(200);
    assert_eq!(found["executions"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn bad_schedules_are_refused_and_foreign_ones_do_not_exist() {
    let server = Server::start().await;
    let stranger = server.user(&["admin"], &["own"]).await;
    put(&server, "theirs", nightly()).await;
    let path = "/v1/schedules/theirs";
    stranger.get(path).await.refused(404, "not_found");
    stranger.send("DELETE", path, &[], None).await.refused(404, "not_found");
    let trigger = stranger.send("POST", &format!("{path}/trigger"), &[], None).await;
    trigger.refused(404, "not_found");
    assert_eq!(stranger.get("/v1/schedules").await.expect(200)["schedules"], json!([]));

    for (field, value) in [
        ("timing", json!({ "type": "cron", "expression": "61 * * * *" })),
        ("timing", json!({ "type": "interval", "every_ms": 0 })),
        ("template", json!({ "lane_id": "", "execution_kind": "k" })),
        ("namespace", json!("own")),
    ] {
        let mut bad = nightly();
        bad[field] = value;
        let answer = server.client.send("PUT", "/v1/schedules/bad", &[], Some(bad)).await;
        answer.refused(400, "invalid_input");
    }
    server.client.get("/v1/schedules/bad").await.refused(404, "not_found");
    let many = server.client.get("/v1/schedules/theirs?upcoming=101").await;
    many.refused(400, "invalid_input");
    server.stop().await;
}
