//! Every route that changes something leaves an event that says who did it.

use std::collections::BTreeSet;

use ff_api::Scope;
use ff_core::engine::EngineConfig;
use ff_server::{Access, Route};
use serde_json::{Value, json};

use crate::client::{Client, Response};
use crate::server::{Server, at, claim, config};
use crate::suspension;

/// Routes that write no event, and why.
const SILENT: [&str; 9] = [
    // They change nothing.
    "observe_signals",
    "preview_bulk",
    "preview_schedule",
    // They come often, and what they write is no transition.
    "renew_many",
    "progress",
    "append_frames",
    "record_step",
    "report_usage",
    "heartbeat_worker",
];

/// A caller whose every request is looked for in the log.
struct Walk {
    server: Server,
    table: Vec<Route>,
    caller: Client,
    token_id: String,
    cursor: String,
    walked: BTreeSet<&'static str>,
    wrong: Vec<String>,
}

impl Walk {
    async fn start() -> Self {
        // A bulk operation must not end by itself before it is cancelled.
        let engine = EngineConfig { manual_sweeps: true, ..suspension::with_secrets() };
        let server = Server::start_engine(config(), engine).await;
        let body = json!({ "name": "ops", "scopes": ["admin"], "namespaces": ["*"] });
        let made = server.client.post("/v1/tokens", body).await.expect(201);
        let caller = server.client.with(made["token"].as_str());
        let token_id = made["token_id"].as_str().unwrap().to_owned();
        let (table, walked) = (ff_server::table(), BTreeSet::new());
        let (cursor, wrong) = (String::new(), Vec::new());
        Self { server, table, caller, token_id, cursor, walked, wrong }
    }

    /// Calls a route, and looks for its event.
    async fn call(&mut self, name: &'static str, path: &str, body: Value) -> Value {
        let route = self.table.iter().find(|route| route.name == name).expect(name);
        let (method, access) = (route.method.as_str().to_owned(), route.access);
        let body = Some(body).filter(|body| !body.is_null());
        let answer = match access {
            Access::Waitpoint => self.caller.with(None).send(&method, path, &[], body).await,
            _ => self.caller.send(&method, path, &[], body).await,
        };
        let told = String::from_utf8_lossy(&answer.body);
        assert!((200..300).contains(&answer.status), "{name}: {} {told}", answer.status);
        self.walked.insert(name);
        let found = self.events().await;
        if !SILENT.contains(&name) {
            self.check(name, access, &answer, &found);
        }
        if answer.header("content-type") == Some("application/json") {
            answer.json()
        } else {
            Value::Null
        }
    }

    /// What the log has got since this was last asked.
    async fn events(&mut self) -> Vec<Value> {
        let mut path = "/v1/events?namespace=*&limit=1000".to_owned();
        if !self.cursor.is_empty() {
            path += &format!("&after={}", self.cursor);
        }
        let mut page = self.caller.get(&path).await.expect(200);
        self.cursor = page["next_cursor"].as_str().unwrap().to_owned();
        page["events"].as_array_mut().unwrap().drain(..).collect()
    }

    fn check(&mut self, name: &str, access: Access, answer: &Response, found: &[Value]) {
        let request_id = answer.header("x-request-id").unwrap();
        let full = json!({
            "token_id": self.token_id, "token_name": "ops", "remote": "127.0.0.1",
            "request_id": request_id,
        });
        let expected = match access {
            Access::Scoped(Scope::Submit | Scope::Work) => json!({ "token_id": self.token_id }),
            Access::Waitpoint => json!({ "remote": "127.0.0.1", "request_id": request_id }),
            _ => full.clone(),
        };
        let own: Vec<_> = found.iter().filter(|event| event["actor"] == expected).collect();
        if own.is_empty() {
            self.wrong.push(format!("{name} left no event with {expected}: {found:?}"));
        }
        if expected == full {
            assert!(own.iter().all(|event| event["by"] == "ops"), "{name}: {own:#?}");
        }
    }

    async fn submitted(&mut self) -> String {
        let work = json!({ "lane_id": "l", "execution_kind": "k" });
        let made = self.call("submit", "/v1/executions", work).await;
        made["execution_id"].as_str().unwrap().to_owned()
    }

    /// An execution that was submitted and claimed, and its handle.
    async fn claimed(&mut self) -> (String, String) {
        let id = self.submitted().await;
        let claimed = self.call("claim_many", "/v1/claims", claim("l")).await;
        let claimed = &claimed["executions"][0];
        assert_eq!(claimed["execution_id"], *id);
        (id, claimed["handle"].as_str().unwrap().to_owned())
    }

    /// A claimed execution whose worker does one thing.
    async fn works(&mut self, name: &'static str, path: &str, mut body: Value) -> String {
        let (id, handle) = self.claimed().await;
        body["handle"] = json!(handle);
        self.call(name, path, body).await;
        let _ = self.caller.post(&format!("{}/cancel", at(&id)), json!({})).await;
        self.events().await;
        id
    }

    async fn work(&mut self) {
        let (id, handle) = self.claimed().await;
        self.call("renew_many", "/v1/leases/renew", json!({ "handles": [handle] })).await;
        self.caller.post(&format!("{}/cancel", at(&id)), json!({})).await.expect(200);
        self.events().await;
        self.works("progress", "/v1/leases/progress", json!({ "percent": 1 })).await;
        self.works("complete", "/v1/leases/complete", json!({})).await;
        self.works("fail", "/v1/leases/fail", json!({ "reason": "x", "category": "y" })).await;
        self.works("cancel", "/v1/leases/cancel", json!({ "reason": "x" })).await;
        self.works("delay", "/v1/leases/delay", json!({ "delay": "1h" })).await;
        let step = json!({ "name": "s", "result": 1 });
        self.works("record_step", "/v1/leases/steps", step).await;
        let sleep = json!({ "name": "s", "duration": "1h" });
        self.works("sleep_step", "/v1/leases/sleep", sleep).await;
        let frames = json!({ "frames": [{ "frame_type": "t", "payload": "eA==" }] });
        self.works("append_frames", "/v1/leases/frames", frames).await;
        let (_, handle) = self.claimed().await;
        let batch = json!({ "operations": [{ "complete": { "handle": handle } }] });
        self.call("lease_batch", "/v1/leases/batch", batch).await;
        let items = json!({ "executions": [{ "lane_id": "other", "execution_kind": "k" }] });
        self.call("submit_batch", "/v1/executions/batch", items).await;
        let worker = json!({
            "worker_id": "w", "worker_instance_id": "w-1", "lanes": ["l"], "liveness_ttl": "1h",
        });
        self.call("register_worker", "/v1/workers", worker).await;
        self.call("heartbeat_worker", "/v1/workers/w-1/heartbeat", Value::Null).await;
        self.call("retire_worker", "/v1/workers/w-1", Value::Null).await;
    }

    async fn operate(&mut self) {
        let id = self.submitted().await;
        let of = |verb: &str| format!("{}/{verb}", at(&id));
        self.call("change_priority", &of("priority"), json!({ "priority": 7 })).await;
        self.call("set_tags", &of("tags"), json!({ "a.b": "c" })).await;
        self.call("reschedule", &of("reschedule"), json!({ "delay": "1h" })).await;
        self.call("cancel_execution", &of("cancel"), json!({ "reason": "x" })).await;
        let again = self.call("resubmit", &of("resubmit"), json!({})).await;
        let again = format!("{}/cancel", at(again["execution_id"].as_str().unwrap()));
        self.caller.post(&again, json!({})).await.expect(200);
        let (id, _) = self.claimed().await;
        self.call("revoke_lease", &format!("{}/revoke-lease", at(&id)), json!({})).await;
        let (handle, _) = self.server.claim("l").await;
        self.caller.post("/v1/leases/complete", json!({ "handle": handle })).await.expect(204);
        self.call("replay_execution", &format!("{}/replay", at(&id)), json!({})).await;
        self.caller.post(&format!("{}/cancel", at(&id)), json!({})).await.expect(200);
        self.call("pause_lane", "/v1/lanes/l/pause", json!({ "reason": "x" })).await;
        self.call("resume_lane", "/v1/lanes/l/resume", Value::Null).await;
        let filter = json!({ "lane_id": "nothing" });
        self.call("preview_bulk", "/v1/bulk/preview", json!({ "filter": filter })).await;
        let bulk = json!({ "filter": filter, "action": { "type": "cancel", "reason": "x" } });
        let started = self.call("start_bulk", "/v1/bulk", bulk).await;
        let path = format!("/v1/bulk/{}/cancel", started["bulk_id"].as_str().unwrap());
        self.call("cancel_bulk", &path, Value::Null).await;
    }

    async fn flows(&mut self) {
        let work = json!({ "lane_id": "l", "execution_kind": "k" });
        let node = |name: &str| json!({ "name": name, "work": work });
        let graph = json!({ "nodes": [node("root")] });
        let made = self.call("submit_flow", "/v1/flows", graph.clone()).await;
        let (handle, root) = self.server.claim("l").await;
        let root = root["execution_id"].as_str().unwrap().to_owned();
        let grow = json!({ "handle": handle, "nodes": [node("child")] });
        self.call("extend_flow", "/v1/leases/extend-flow", grow).await;
        let wait = json!({ "handle": handle });
        self.call("wait_children", "/v1/leases/wait-children", wait).await;
        for _ in 0..2 {
            let (handle, _) = self.server.claim("l").await;
            self.caller.post("/v1/leases/complete", json!({ "handle": handle })).await.expect(204);
        }
        self.call("fork_flow", &format!("{}/fork-flow", at(&root)), json!({})).await;
        self.call("replay_flow_from", &format!("{}/replay-flow", at(&root)), json!({})).await;
        for flow in self.caller.get("/v1/flows").await.expect(200)["flows"].as_array().unwrap() {
            let path = format!("/v1/flows/{}/cancel", flow["flow_id"].as_str().unwrap());
            self.call("cancel_flow", &path, json!({ "policy": "cancel_all" })).await;
        }
        assert!(made["flow_id"].is_string());
    }

    /// A suspended execution with a token, and where it is signalled.
    async fn suspended(&mut self) -> (String, Value) {
        let (id, handle) = self.claimed().await;
        let fresh = json!({
            "type": "fresh", "waitpoint_id": "0193b3c4-0000-7000-8000-00000000000a",
            "waitpoint_key": "ok?", "token": {},
        });
        let body = json!({ "handle": handle, "suspension": {
            "waitpoints": [fresh], "condition": { "type": "single", "waitpoint_key": "ok?" },
        } });
        let answer = self.call("suspend", "/v1/leases/suspend", body).await;
        (id, answer["waitpoints"][0].clone())
    }

    async fn waits(&mut self) {
        self.call("seed_waitpoint_secret", "/v1/waitpoint-keys/k1/seed", Value::Null).await;
        let early = json!({ "waitpoint": { "waitpoint_key": "x", "expires_in_ms": 60_000 } });
        self.works("create_waitpoint", "/v1/leases/waitpoints", early).await;
        self.works("observe_signals", "/v1/leases/signals", json!({})).await;
        for name in ["signal_waitpoint", "deliver_signal", "approve", "resume"] {
            let (id, waitpoint) = self.suspended().await;
            let (point, token) = (waitpoint["waitpoint_id"].clone(), waitpoint["token"].clone());
            let (point, token) = (point.as_str().unwrap(), token.as_str().unwrap());
            let signal = json!({ "signal_name": "go" });
            let (path, body) = match name {
                "signal_waitpoint" => (format!("{}/waitpoints/{point}/signal", at(&id)), signal),
                "deliver_signal" => {
                    ("/v1/signals".to_owned(), json!({ "token": token, "signal": signal }))
                }
                "approve" => (format!("/approve/{token}/go"), Value::Null),
                _ => (format!("{}/resume", at(&id)), json!({})),
            };
            self.call(name, &path, body).await;
            self.caller.post(&format!("{}/cancel", at(&id)), json!({})).await.expect(200);
            self.events().await;
        }
        self.call("rotate_waitpoint_secret", "/v1/waitpoint-keys/k2/rotate", json!({})).await;
    }

    async fn limits(&mut self) {
        let budget = json!({
            "scope": { "lane": "b" }, "on_breach": "suspend", "reset_period_ms": 86_400_000,
            "dimensions": { "tokens": { "hard": 10 } }, "estimate": { "tokens": 4 },
        });
        self.call("put_budget", "/v1/budgets/b", budget).await;
        let first = self.server.submit("b", json!(1)).await;
        let second = self.server.submit("b", json!(2)).await;
        let (handle, _) = self.server.claim("b").await;
        let used = json!({ "handle": handle, "budget_id": "b", "amounts": { "tokens": 9 } });
        self.call("report_usage", "/v1/leases/usage", used).await;
        self.caller.post("/v1/claims", claim("b")).await.expect(200);
        self.events().await;
        let raise = json!({ "raise": { "tokens": 90 } });
        self.call("approve_budget", &format!("{}/approve-budget", at(&second)), raise).await;
        let release = json!({ "execution_id": first });
        self.call("release_budget", "/v1/budgets/b/release", release).await;
        self.call("reset_budget", "/v1/budgets/b/reset", Value::Null).await;
        self.call("delete_budget", "/v1/budgets/b", Value::Null).await;
        let quota = json!({ "lane_id": "q", "concurrency": 1 });
        self.call("put_quota", "/v1/quotas/q", quota).await;
        self.call("delete_quota", "/v1/quotas/q", Value::Null).await;
    }

    async fn settings(&mut self) {
        let timing = json!({ "type": "cron", "expression": "30 3 * * *", "time_zone": "UTC" });
        let template = json!({ "lane_id": "s", "execution_kind": "k" });
        let schedule = json!({ "timing": timing, "template": template });
        self.call("preview_schedule", "/v1/schedule-preview", json!({ "timing": timing })).await;
        self.call("put_schedule", "/v1/schedules/s", schedule).await;
        self.call("pause_schedule", "/v1/schedules/s/pause", json!({ "reason": "x" })).await;
        self.call("resume_schedule", "/v1/schedules/s/resume", Value::Null).await;
        self.call("trigger_schedule", "/v1/schedules/s/trigger", Value::Null).await;
        let range = json!({ "from": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z" });
        self.call("backfill_schedule", "/v1/schedules/s/backfill", range).await;
        self.call("delete_schedule", "/v1/schedules/s", Value::Null).await;
        let hook = json!({ "url": "https://example.invalid/", "name": "h", "lane_id": "none" });
        let made = self.call("create_webhook", "/v1/webhooks", hook).await;
        let at = format!("/v1/webhooks/{}", made["webhook_id"].as_str().unwrap());
        self.call("pause_webhook", &format!("{at}/pause"), Value::Null).await;
        self.call("resume_webhook", &format!("{at}/resume"), Value::Null).await;
        self.call("rotate_webhook_secret", &format!("{at}/rotate"), json!({})).await;
        self.call("delete_webhook", &at, Value::Null).await;
        let token = json!({ "name": "t", "scopes": ["read"], "namespaces": ["a"] });
        let made = self.call("create_token", "/v1/tokens", token).await;
        let at = format!("/v1/tokens/{}", made["token_id"].as_str().unwrap());
        self.call("revoke_token", &at, Value::Null).await;
    }
}

#[tokio::test]
async fn every_route_that_changes_something_says_who_called_it() {
    let mut walk = Walk::start().await;
    walk.waits().await;
    walk.work().await;
    walk.operate().await;
    walk.flows().await;
    walk.limits().await;
    walk.settings().await;
    assert!(walk.wrong.is_empty(), "{:#?}", walk.wrong);
    let changing = walk.table.iter().filter(|route| route.method.as_str() != "GET");
    let missing: Vec<_> =
        changing.map(|route| route.name).filter(|name| !walk.walked.contains(name)).collect();
    assert!(missing.is_empty(), "walk these routes too: {missing:?}");
    let audited = walk.caller.get("/v1/events?namespace=*&audit=true&limit=1000").await.expect(200);
    let audited = audited["events"].as_array().unwrap();
    assert!(audited.len() > 30, "{}", audited.len());
    assert!(audited.iter().all(|event| event["actor"]["request_id"].is_string()));
    walk.server.stop().await;
}

#[tokio::test]
async fn only_an_admin_names_another_creator() {
    let server = Server::start().await;
    let body = json!({ "name": "ci", "scopes": ["submit", "read"], "namespaces": ["default"] });
    let made = server.client.post("/v1/tokens", body).await.expect(201);
    let ci = server.client.with(made["token"].as_str());
    let work = |creator: &str| {
        let mut work = json!({ "lane_id": "l", "execution_kind": "k" });
        work["creator_identity"] = json!(creator);
        work
    };
    ci.post("/v1/executions", work("boss")).await.refused(403, "forbidden");
    ci.post("/v1/executions", work("ci")).await.expect(201);
    let made = server.client.post("/v1/executions", work("boss")).await.expect(201);
    let path = at(made["execution_id"].as_str().unwrap());
    assert_eq!(server.client.get(&path).await.expect(200)["creator_identity"], "boss");
    server.stop().await;
}

#[tokio::test]
async fn a_token_that_only_works_is_named_where_it_worked() {
    let server = Server::start().await;
    let worker = server.user(&["work"], &["default"]).await;
    server.submit("l", json!(1)).await;
    let claimed = worker.post("/v1/claims", claim("l")).await.expect(200);
    let handle = claimed["executions"][0]["handle"].clone();
    worker.post("/v1/leases/complete", json!({ "handle": handle })).await.expect(204);
    let page = server.client.get("/v1/events?event_types=claimed,completed").await.expect(200);
    let tokens = server.client.get("/v1/tokens").await.expect(200);
    let id = &tokens["tokens"][0]["token_id"];
    for event in page["events"].as_array().unwrap() {
        assert_eq!(event["actor"], json!({ "token_id": id }), "{event}");
        assert_eq!(event["by"], "w-1");
    }
    server.stop().await;
}
