//! Submitting, reading and operating.

use serde_json::{Value, json};

use crate::server::{Server, at, claim};

/// Replaces what differs from run to run by words.
fn settled(mut value: Value, id: &str) -> Value {
    match &mut value {
        Value::Object(map) => {
            for (key, field) in map.iter_mut() {
                let instant = key.ends_with("_at") || matches!(&**key, "at" | "not_before");
                *field = match field.take() {
                    Value::String(text) if instant && text.ends_with('Z') => json!("instant"),
                    Value::String(text) if text == id => json!("id"),
                    other => settled(other, id),
                };
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = settled(item.take(), id);
            }
        }
        _ => {}
    }
    value
}

#[tokio::test]
async fn an_execution_is_submitted_and_described() {
    let server = Server::start().await;
    let body = json!({
        "lane_id": "mail", "execution_kind": "send", "payload": { "to": ["a", 1.50] },
        "priority": 7, "tags": { "team.name": "x" }, "delay": "1h", "deadline": "P1D",
        "policy": { "retry_policy": { "max_retries": 1 } },
    });
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [("traceparent", trace), ("tracestate", "a=b")];
    let answer = server.client.send("POST", "/v1/executions", &headers, Some(body)).await;
    let outcome = answer.expect(201);
    let id = outcome["execution_id"].as_str().unwrap();
    assert_eq!(outcome["status"], "created");
    assert_eq!(outcome["public_state"], "delayed");

    let described = server.client.get(&at(id)).await.expect(200);
    assert_eq!(
        settled(described, id),
        json!({
            "execution_id": "id", "namespace": "default", "lane_id": "mail",
            "execution_kind": "send", "flow_id": null, "public_state": "delayed", "priority": 7,
            "tags": { "team.name": "x", "trace.parent": trace, "trace.state": "a=b" },
            "required_capabilities": [], "creator_identity": "root", "idempotency_key": null,
            "resubmitted_from": null,
            "payload_encoding": "json", "created_at": "instant", "started_at": null,
            "finished_at": null, "not_before": "instant", "deadline_at": "instant",
            "retry_count": 0, "reclaim_count": 0, "replay_count": 0, "failure_reason": null,
            "failure_category": null, "cancellation_reason": null, "cancelled_by": null,
            "lease": null, "progress": null, "attempts": [], "version": 1, "step_count": 0,
        })
    );
    let payload = server.client.get(&format!("{}/payload", at(id))).await;
    // The value is stored as it was written, its numbers included.
    assert!(String::from_utf8_lossy(&payload.body).contains(r#"{"to":["a",1.5]}"#));
    let why = server.client.get(&format!("{}/explain", at(id))).await.expect(200);
    assert_eq!(why["rule"], "delay");
    let history = server.client.get(&format!("{}/history", at(id))).await.expect(200);
    assert_eq!(history["events"][0]["event_type"], "submitted");
    assert_eq!(history["next_after"], Value::Null);
    let result = server.client.get(&format!("{}/result", at(id))).await.expect(200);
    assert_eq!(result, json!({ "execution_id": id, "public_state": "delayed", "finished": false }));
    // The wire form of the id works as well, if it is escaped.
    let escaped = format!("/v1/executions/{}", id.replace('{', "%7B").replace('}', "%7D"));
    assert_eq!(server.client.get(&escaped).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn keys_make_submissions_safe_to_repeat() {
    let server = Server::start().await;
    let body = |payload: i32| json!({ "lane_id": "l", "execution_kind": "k", "payload": payload });
    let key = [("idempotency-key", "\"order 7\"")];
    let send =
        async |path: &str, body: Value| server.client.send("POST", path, &key, Some(body)).await;
    let first = send("/v1/executions", body(1)).await.expect(201);
    let again = send("/v1/executions", body(1)).await;
    let outcome = again.expect(200);
    assert_eq!(outcome, json!({ "status": "duplicate", "execution_id": first["execution_id"] }));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    send("/v1/executions", body(2)).await.refused(422, "idempotency_key_reused");
    let mut other = body(1);
    other["idempotency_key"] = json!("another");
    send("/v1/executions", other).await.refused(400, "invalid_input");

    let batch = json!({ "executions": [body(1), body(2)] });
    let first = send("/v1/executions/batch", batch.clone()).await.expect(200);
    let again = send("/v1/executions/batch", batch).await.expect(200);
    for at in 0..2 {
        assert_eq!(first["outcomes"][at]["status"], "created");
        assert_eq!(again["outcomes"][at]["status"], "duplicate");
        assert_eq!(again["outcomes"][at]["execution_id"], first["outcomes"][at]["execution_id"]);
    }
    server.stop().await;
}

#[tokio::test]
async fn items_of_a_batch_are_judged_one_by_one() {
    let server = Server::start().await;
    let batch = json!({ "executions": [
        { "lane_id": "l", "execution_kind": "good" },
        { "lane_id": "l", "execution_kind": "k", "payload": 1, "payload_base64": "AA==" },
        { "lane_id": "", "execution_kind": "k" },
        { "lane_id": "l", "execution_kind": "k", "tags": { "Bad": "x" } },
        { "lane_id": "l", "execution_kind": "bytes", "payload_base64": "/wA=" },
    ] });
    let answer = server.client.post("/v1/executions/batch", batch).await.expect(200);
    let words: Vec<_> = answer["outcomes"].as_array().unwrap().iter().collect();
    let code = |at: usize| words[at]["problem"]["code"].as_str();
    assert_eq!(words[0]["status"], "created");
    assert_eq!(code(1), Some("invalid_input"));
    assert_eq!(code(2), Some("invalid_input"));
    assert_eq!(code(3), Some("invalid_tag_key"));
    let id = words[4]["execution_id"].as_str().unwrap();
    let payload = server.client.get(&format!("{}/payload", at(id))).await.expect(200);
    assert_eq!(payload, json!({ "execution_id": id, "payload_base64": "/wA=" }));
    let empty = server.client.post("/v1/executions/batch", json!({ "executions": [] })).await;
    empty.refused(400, "invalid_input");
    server.stop().await;
}

#[tokio::test]
async fn lists_are_paged_and_filtered() {
    let server = Server::start().await;
    for at in 0..5 {
        let lane = if at % 2 == 0 { "even" } else { "odd" };
        server.submit(lane, json!(at)).await;
    }
    let mut seen = Vec::new();
    let mut path = "/v1/executions?limit=2".to_owned();
    loop {
        let page = server.client.get(&path).await.expect(200);
        let ids = page["executions"].as_array().unwrap().iter();
        seen.extend(ids.map(|line| line["execution_id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/executions?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5);
    let count = async |query: &str| {
        let page = server.client.get(&format!("/v1/executions?{query}")).await.expect(200);
        page["executions"].as_array().unwrap().len()
    };
    assert_eq!(count("lane_id=even").await, 3);
    assert_eq!(count("states=waiting,active&order=oldest").await, 5);
    assert_eq!(count("states=completed").await, 0);
    assert_eq!(count("created_before=2020-01-01T00:00:00Z").await, 0);
    for bad in ["limit=0", "limit=1001", "states=odd", "order=up", "cursor=x", "x=1", "tag=x"] {
        let answer = server.client.get(&format!("/v1/executions?{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
    server.stop().await;
}

#[tokio::test]
async fn operators_change_the_course_of_work() {
    let server = Server::start().await;
    let id = server.submit("l", json!(1)).await;
    let send = async |method: &str, verb: &str, body: Value| {
        server.client.send(method, &format!("{}/{verb}", at(&id)), &[], Some(body)).await
    };
    let changed = send("PUT", "priority", json!({ "priority": 5 })).await.expect(200);
    assert_eq!(changed["priority"], 5);
    let tags = json!({ "a.b": "x" });
    assert_eq!(send("PATCH", "tags", tags.clone()).await.expect(200)["tags"], tags);
    let removed = send("PATCH", "tags", json!({ "a.b": null })).await.expect(200);
    assert_eq!(removed["tags"], json!({}));
    let moved = send("POST", "reschedule", json!({ "delay": "1h" })).await.expect(200);
    assert_eq!(moved["public_state"], "delayed");
    send("POST", "reschedule", json!({ "delay": "0s" })).await.expect(200);
    let none = send("POST", "revoke-lease", json!({})).await.expect(200);
    assert_eq!(none, json!({ "status": "already_satisfied", "reason": "no_active_lease" }));
    server.claim("l").await;
    let revoked = send("POST", "revoke-lease", json!({ "reason": "stuck" })).await.expect(200);
    assert_eq!(revoked["status"], "revoked");
    send("POST", "replay", json!({})).await.refused(409, "execution_not_terminal");
    let cancelled = send("POST", "cancel", json!({ "reason": "no need" })).await.expect(200);
    assert_eq!(cancelled, json!({ "execution_id": id, "public_state": "cancelled" }));
    let result = server.client.get(&format!("{}/result", at(&id))).await.expect(200);
    assert_eq!(result["cancellation_reason"], "no need");
    assert_eq!(result["finished"], true);
    let absent = at("{fp:0}:0193b3c4-0000-7000-8000-000000000001");
    server.client.post(&format!("{absent}/cancel"), json!({})).await.refused(404, "not_found");
    server.client.get("/v1/executions/nonsense").await.refused(400, "invalid_input");
    server.stop().await;
}

#[tokio::test]
async fn ended_work_is_resubmitted() {
    let server = Server::start().await;
    let id = server.submit("l", json!({ "a": 1 })).await;
    let resubmit = format!("{}/resubmit", at(&id));
    server.client.post(&resubmit, json!({})).await.refused(409, "execution_not_ended");
    server.client.post(&format!("{}/cancel", at(&id)), json!({})).await.expect(200);
    let refused = server.client.post(&format!("{}/replay", at(&id)), json!({})).await;
    let problem = refused.refused(409, "execution_not_terminal");
    assert!(problem["detail"].as_str().unwrap().contains("use `resubmit`"), "{problem}");

    let made = server.client.post(&resubmit, json!({ "idempotency_key": "k" })).await.expect(201);
    assert_eq!((&made["status"], &made["public_state"]), (&"created".into(), &"waiting".into()));
    let copy = made["execution_id"].as_str().unwrap();
    assert_ne!(copy, id);
    let again = server.client.post(&resubmit, json!({ "idempotency_key": "k" })).await.expect(200);
    assert_eq!(again, json!({ "status": "duplicate", "execution_id": copy }));
    let described = server.client.get(&at(copy)).await.expect(200);
    assert_eq!(described["resubmitted_from"], id);
    let stored = server.client.get(&format!("{}/payload", at(copy))).await.expect(200);
    assert_eq!(stored["payload"], json!({ "a": 1 }));
    let other = server.client.post(&resubmit, json!({ "payload": [2] })).await.expect(201);
    let other = other["execution_id"].as_str().unwrap();
    let stored = server.client.get(&format!("{}/payload", at(other))).await.expect(200);
    assert_eq!((&stored["payload"], &stored["payload_encoding"]), (&json!([2]), &"json".into()));
    server.client.post(&resubmit, json!({ "input": 1 })).await.refused(400, "invalid_input");
    server.stop().await;
}

#[tokio::test]
async fn a_replay_names_the_holder_of_its_unique_key() {
    let server = Server::start().await;
    let unique = json!({
        "lane_id": "l", "execution_kind": "k", "idempotency_key": "only",
        "unique_until_finished": true,
    });
    let first = server.client.post("/v1/executions", unique.clone()).await.expect(201);
    let first = first["execution_id"].as_str().unwrap();
    let (handle, _) = server.claim("l").await;
    let body = json!({ "handle": handle, "reason": "broke", "class": "fatal" });
    server.client.post("/v1/leases/fail", body).await.expect(200);
    let second = server.client.post("/v1/executions", unique).await.expect(201);
    let refused = server.client.post(&format!("{}/replay", at(first)), json!({})).await;
    let problem = refused.refused(409, "unique_key_held");
    assert_eq!(problem["execution_id"], second["execution_id"]);
    let holder = second["execution_id"].as_str().unwrap();
    assert!(problem["detail"].as_str().unwrap().contains(holder), "{problem}");
    server.stop().await;
}

#[tokio::test]
async fn lanes_are_paused_and_counted() {
    let server = Server::start().await;
    server.submit("l", json!(1)).await;
    let pause = server.client.post("/v1/lanes/l/pause", json!({ "reason": "deploy" })).await;
    assert_eq!(pause.status, 204);
    let lanes = server.client.get("/v1/lanes").await.expect(200);
    assert_eq!(lanes["lanes"][0]["state"], "paused");
    assert_eq!(lanes["lanes"][0]["paused_by"], "root");
    let none = server.client.post("/v1/claims", claim("l")).await.expect(200);
    assert_eq!(none, json!({ "executions": [] }));
    assert_eq!(server.client.send("POST", "/v1/lanes/l/resume", &[], None).await.status, 204);
    server.claim("l").await;
    let counts = server.client.get("/v1/counts").await.expect(200);
    let expected = json!([{ "namespace": "default", "lane_id": "l", "counts": { "active": 1 } }]);
    assert_eq!(counts["counts"], expected);
    server.stop().await;
}

/// Two readers of such a body would take different values from it.
#[tokio::test]
async fn a_body_that_could_be_read_in_two_ways_is_refused() {
    let server = Server::start().await;
    let submit = |payload: &str, tags: &str| {
        format!(r#"{{"lane_id":"l","execution_kind":"k","payload":{payload},"tags":{tags}}}"#)
    };
    let send = async |body: String| {
        let headers = [("content-type", "application/json")];
        server.client.send_bytes("POST", "/v1/executions", &headers, Some(body.as_bytes())).await
    };
    for (payload, tags) in [
        (r#"{"amount":1,"amount":1000}"#, "{}"),
        (r#"{"a":[{"b":1,"\u0062":2}]}"#, "{}"),
        (r#""\ud800""#, "{}"),
        ("1e400", "{}"),
        ("1", r#"{"team":"a","team":"b"}"#),
    ] {
        send(submit(payload, tags)).await.refused(400, "invalid_input");
    }
    for payload in ["18446744073709551616", "1.10", r#"{ "b":1, "a":"\u0061" }"#] {
        send(submit(payload, "{}")).await.expect(201);
        let (_, claimed) = server.claim("l").await;
        let path = format!("{}/payload", at(claimed["execution_id"].as_str().unwrap()));
        let answer = String::from_utf8(server.client.get(&path).await.body).unwrap();
        assert!(answer.contains(payload), "{payload} became {answer}");
    }
    server.stop().await;
}
