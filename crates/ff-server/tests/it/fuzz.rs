//! Requests made from the OpenAPI document: valid ones, edges, and nonsense, for every route.
//!
//! Nothing may answer 5xx except a typed 503, nothing may hang, every answer is what the document
//! says, and what was refused has changed nothing. `FF_FUZZ_ROUNDS` and `FF_FUZZ_SEED` ask for
//! more, or for others.

use std::sync::Arc;

use fastrand::Rng;
use ff_core::engine::clock::ManualClock;
use ff_core::engine_backend::EngineBackend;
use serde_json::{Map, Value, json};

use crate::client::Response;
use crate::server::{Server, config};
use crate::system::conforms;

const TEXTS: [&str; 16] = [
    "",
    "x",
    "l",
    "default",
    "\u{0}",
    "a\u{0}b",
    "'; DROP TABLE ff_execution; --",
    "../../etc/passwd",
    "\r\nset-cookie: a=b",
    "🦀\u{202e}\u{feff}",
    "30s",
    "PT1H",
    "1e999",
    "2026-01-01T00:00:00Z",
    "99999-99-99T99:99:99Z",
    "%00%ff",
];

const NUMBERS: [i64; 10] =
    [0, 1, -1, 2, 100, 1_000, 1 << 53, i64::MAX, i64::MIN, u32::MAX as i64 + 1];

/// Deeper than any shape that is not nonsense.
const DEEP: usize = 6;

struct Maker {
    rng: Rng,
    document: Value,
    /// Things that exist.
    known: Vec<String>,
    /// How often, in a hundred, a value is none that the document allows.
    nonsense: u8,
}

impl Maker {
    fn value(&mut self, schema: &Value, name: &str, depth: usize) -> Value {
        if depth > 0 && self.rng.u8(..100) < self.nonsense {
            return self.nonsense();
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let target = reference.rsplit('/').next().unwrap_or_default();
            let target = self.document["components"]["schemas"][target].clone();
            return self.value(&target, name, depth);
        }
        for key in ["oneOf", "anyOf"] {
            if let Some(variants) = schema[key].as_array() {
                let variant = variants[self.rng.usize(..variants.len())].clone();
                return self.value(&variant, name, depth + 1);
            }
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let mut merged = Map::new();
            for part in parts.clone() {
                if let Value::Object(fields) = self.value(&part, name, depth) {
                    merged.extend(fields);
                }
            }
            return Value::Object(merged);
        }
        if let Some(words) = schema["enum"].as_array() {
            return words[self.rng.usize(..words.len())].clone();
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => vec!["object", "string", "integer", "null"],
        };
        let kind = kinds[self.rng.usize(..kinds.len())].to_owned();
        self.of_kind(&kind, schema, name, depth)
    }

    fn of_kind(&mut self, kind: &str, schema: &Value, name: &str, depth: usize) -> Value {
        match kind {
            "null" => Value::Null,
            "boolean" => json!(self.rng.bool()),
            "integer" if self.rng.bool() => json!(self.rng.u32(..10)),
            "integer" => json!(NUMBERS[self.rng.usize(..NUMBERS.len())]),
            "number" => json!(self.rng.f64() * 1e9),
            "array" if depth < DEEP => {
                let items = schema.get("items").cloned().unwrap_or_default();
                (0..self.rng.usize(..3)).map(|_| self.value(&items, name, depth + 1)).collect()
            }
            "array" => json!([]),
            "object" => self.object(schema, depth),
            _ => Value::String(self.text(name)),
        }
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let mut object = Map::new();
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, field) in schema["properties"].as_object().cloned().unwrap_or_default() {
            let wanted = required.contains(&&*name) && self.rng.u8(..20) > 0;
            if wanted || (depth < DEEP && self.rng.u8(..3) == 0) {
                let value = self.value(&field, &name, depth + 1);
                object.insert(name, value);
            }
        }
        if let Some(others) = schema.get("additionalProperties").filter(|o| o.is_object()).cloned()
        {
            for _ in 0..self.rng.usize(..3) {
                let (name, value) = (self.text("key"), self.value(&others, "value", depth + 1));
                object.insert(name, value);
            }
        }
        Value::Object(object)
    }

    fn text(&mut self, name: &str) -> String {
        if name == "wait" {
            // A request that waits is no request that hangs.
            return ["0s", "1ms", "soon", "-1s"][self.rng.usize(..4)].to_owned();
        }
        match self.rng.u8(..10) {
            0..5 => self.known[self.rng.usize(..self.known.len())].clone(),
            5 => "x".repeat(self.rng.usize(..6_000)),
            6 if name.contains("tag") || name == "key" => "a.b".to_owned(),
            _ => TEXTS[self.rng.usize(..TEXTS.len())].to_owned(),
        }
    }

    fn nonsense(&mut self) -> Value {
        match self.rng.u8(..6) {
            0 => Value::Null,
            1 => json!([[[]]]),
            2 => json!({ "a": { "b": {} } }),
            3 => json!(-1.5),
            4 => (0..100).fold(json!(1), |inner, _| json!([inner])),
            _ => json!(TEXTS[self.rng.usize(..TEXTS.len())]),
        }
    }

    /// An address of a path with a query.
    fn address(&mut self, path: &str, parameters: &[Value]) -> String {
        let mut address = path.to_owned();
        let mut query = Vec::new();
        for parameter in parameters {
            let name = parameter["name"].as_str().unwrap_or_default();
            let text = match self.value(&parameter["schema"], name, 0) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            match parameter["in"].as_str() {
                Some("path") => {
                    let text = if text.is_empty() { "x" } else { &text };
                    address = address.replace(&format!("{{{name}}}"), &escaped(text));
                }
                Some("query") if self.rng.u8(..3) == 0 => {
                    query.push(format!("{name}={}", escaped(&text)));
                }
                _ => {}
            }
        }
        if query.is_empty() { address } else { format!("{address}?{}", query.join("&")) }
    }
}

fn escaped(text: &str) -> String {
    // Longer than any address may be is tried elsewhere.
    text.bytes().take(1_000).map(|byte| format!("%{byte:02x}")).collect()
}

/// A server with one of everything, and the names of it all.
async fn furnished() -> (Server, Vec<String>) {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let server = Server::start_on(config(), clock).await;
    let client = &server.client;
    let waiting = server.submit("idle", json!(1)).await;
    server.submit("l", json!(1)).await;
    let (handle, held) = server.claim("l").await;
    let node = json!({ "name": "n", "work": { "lane_id": "idle", "execution_kind": "k" } });
    let flow = client.post("/v1/flows", json!({ "nodes": [node] })).await.expect(201);
    let budget = json!({ "dimensions": { "tokens": { "hard": 1 } } });
    client.send("PUT", "/v1/budgets/b", &[], Some(budget)).await.expect(200);
    client.send("PUT", "/v1/quotas/q", &[], Some(json!({ "concurrency": 9 }))).await.expect(200);
    let hook = json!({ "url": "https://hook.invalid/", "event_types": ["worker_lost"] });
    let hook = client.post("/v1/webhooks", hook).await.expect(201);
    let schedule = json!({
        "timing": { "type": "interval", "every_ms": 60_000 },
        "template": { "lane_id": "idle", "execution_kind": "k" },
    });
    client.send("PUT", "/v1/schedules/s", &[], Some(schedule)).await.expect(200);
    let bulk = json!({ "filter": { "lane_id": "none" }, "action": { "type": "replay" } });
    let bulk = client.post("/v1/bulk", bulk).await.expect(201);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let known = vec![
        "s".to_owned(),
        text(&bulk["bulk_id"]),
        waiting.replace("{fp:", "").replace('}', ""),
        waiting,
        text(&held["execution_id"]),
        handle,
        text(&flow["flow_id"]),
        text(&hook["webhook_id"]),
        "b".to_owned(),
        "q".to_owned(),
        "idle".to_owned(),
        "0193b3c4-0000-7000-8000-000000000001".to_owned(),
    ];
    (server, known)
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
async fn requests_made_from_the_document_are_answered_as_it_says() {
    let seed = setting("FF_FUZZ_SEED", 1);
    let (server, known) = furnished().await;
    let document = server.client.get("/openapi.json").await.expect(200);
    let mut maker =
        Maker { rng: Rng::with_seed(seed), document: document.clone(), known, nonsense: 0 };
    let mut understood = 0;
    for round in 0..setting("FF_FUZZ_ROUNDS", 12) {
        maker.nonsense = if round % 2 == 0 { 0 } else { 15 };
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if operation.to_string().contains("text/event-stream") {
                    continue;
                }
                let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
                let address = maker.address(path, &parameters);
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                let body = schema.is_object().then(|| maker.value(schema, "", 0));
                let before = place(&server).await;
                let verb = method.to_uppercase();
                let answer = server.client.send(&verb, &address, &[], body.clone()).await;
                let what = format!("seed {seed}: {verb} {address} {}", json!(body));
                judge(&document, operation, &answer, &what);
                if answer.status >= 400 {
                    assert_eq!(
                        place(&server).await,
                        before,
                        "{what}: refused, and it did something"
                    );
                } else {
                    understood += 1;
                }
            }
        }
    }
    // A test in which everything is refused shows little.
    assert!(understood > 100, "only {understood} requests were understood");
    server.stop().await;
}

/// The end of the log, once everything has happened that happens by itself at this moment: bulk
/// operations and backfills go on after their answer.
async fn place(server: &Server) -> String {
    server.backend.engine().sweep().await.unwrap();
    let page = server.client.get("/v1/events?namespace=*&from=latest&limit=1").await.expect(200);
    page["next_cursor"].as_str().unwrap().to_owned()
}

fn judge(document: &Value, operation: &Value, answer: &Response, what: &str) {
    let said = String::from_utf8_lossy(&answer.body);
    let status = answer.status;
    assert!(status < 500 || status == 503, "{what}: {status} {said}");
    let page = operation.to_string().contains("text/html");
    if status >= 400 && page && answer.header("content-type") != Some("application/problem+json") {
        // People are told in words.
        assert!(said.starts_with("<!doctype html>"), "{what}: {said}");
        return;
    }
    if status >= 400 {
        let problem: Value = serde_json::from_slice(&answer.body)
            .unwrap_or_else(|error| panic!("{what}: {status} {error}: {said}"));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}");
        assert_eq!(problem["status"], status, "{what}: {problem}");
        assert!(problem["code"].is_string() && problem["retryable"].is_boolean(), "{what}");
        return;
    }
    let responses = operation["responses"].as_object().unwrap();
    let described = responses.get(&status.to_string());
    // A repeat is answered with 200 where the first was answered with 201.
    let described = described.or_else(|| responses.get("201")).unwrap_or_else(|| {
        panic!("{what}: {status} is not described");
    });
    let schema = &described["content"]["application/json"]["schema"];
    if schema.is_object() {
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        conforms(document, schema, &value, what);
    }
}
