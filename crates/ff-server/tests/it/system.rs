//! Probes, metrics, the document and the end.

use std::time::{Duration, Instant};

use ff_server::{Auth, Bound, Config};
use serde_json::{Value, json};

use crate::server::{Server, at, claim, config};

#[tokio::test]
async fn the_server_speaks_about_itself() {
    let server = Server::start().await;
    let stranger = server.client.with(None);
    for probe in ["/livez", "/readyz"] {
        assert_eq!(stranger.get(probe).await.expect(200), json!({ "status": "ok" }));
    }
    let version = server.client.get("/version").await.expect(200);
    assert_eq!(version["store"], "sqlite");
    assert_eq!(version["durability"], "power_loss");
    server.submit("l", json!(1)).await;
    let metrics = server.client.get("/metrics").await;
    let text = String::from_utf8(metrics.body).unwrap();
    assert_eq!(metrics.status, 200);
    for line in [
        "ff_http_requests_total{route=\"submit\",status=\"2xx\"} 1",
        "ff_http_request_seconds_count{route=\"submit\"} 1",
        "ff_executions{lane=\"l\",state=\"waiting\"} 1",
        "ff_build_info{version=",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let document: Value = server.client.get("/openapi.json").await.expect(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    server.client.get("/nowhere").await.refused(404, "no_such_route");
    server.client.send("DELETE", "/version", &[], None).await.refused(405, "method_not_allowed");
    server.stop().await;
}

#[tokio::test]
async fn a_server_whose_database_is_gone_is_not_ready_and_accepts_nothing() {
    let server = Server::start().await;
    server.submit("l", json!(1)).await;
    std::fs::remove_file(server.folder.path().join("flowfabric.db")).unwrap();
    let work = json!({ "lane_id": "l", "execution_kind": "k", "payload": 2 });
    server.client.post("/v1/executions", work).await.refused(503, "transport");
    let stranger = server.client.with(None);
    stranger.get("/readyz").await.refused(503, "not_ready");
    assert_eq!(stranger.get("/livez").await.expect(200), json!({ "status": "ok" }));
    server.stop().await;
}

/// Every answer of a small life has the fields that the document promises, and no others.
#[tokio::test]
async fn answers_keep_what_the_document_promises() {
    let server = Server::start().await;
    let document = server.client.get("/openapi.json").await.expect(200);
    let id = server.submit("l", json!(1)).await;
    let check = |path: &str, method: &str, status: &str, answer: &Value| {
        let content = &document["paths"][path][method]["responses"][status]["content"];
        let schema = &content["application/json"]["schema"];
        assert!(schema.is_object(), "{method} {path} {status} is not described");
        conforms(&document, schema, answer, path);
    };
    let claimed = server.client.post("/v1/claims", claim("l")).await.expect(200);
    check("/v1/claims", "post", "200", &claimed);
    let described = server.client.get(&at(&id)).await.expect(200);
    check("/v1/executions/{execution_id}", "get", "200", &described);
    for read in ["result", "payload", "explain", "history"] {
        let path = format!("/v1/executions/{{execution_id}}/{read}");
        let answer = server.client.get(&format!("{}/{read}", at(&id))).await.expect(200);
        check(&path, "get", "200", &answer);
    }
    for path in ["/v1/executions", "/v1/lanes", "/v1/counts", "/v1/events", "/version"] {
        check(path, "get", "200", &server.client.get(path).await.expect(200));
    }
    let handle = &claimed["executions"][0]["handle"];
    let renewed = server.client.post("/v1/leases/renew", json!({ "handles": [handle] })).await;
    check("/v1/leases/renew", "post", "200", &renewed.expect(200));
    let failed = json!({ "operations": [{ "fail": { "handle": handle, "reason": "x" } }] });
    let failed = server.client.post("/v1/leases/batch", failed).await.expect(200);
    check("/v1/leases/batch", "post", "200", &failed);
    server.stop().await;
}

/// A check of types, required and unknown fields: enough to notice that one side has moved.
pub fn conforms(document: &Value, schema: &Value, value: &Value, path: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        let target = &document["components"]["schemas"][name];
        return conforms(document, target, value, &format!("{path} {name}"));
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(variants) = schema[key].as_array() {
            let fits = |variant: &Value| {
                std::panic::catch_unwind(|| conforms(document, variant, value, path)).is_ok()
            };
            assert!(variants.iter().any(fits), "{path}: {value} fits none of {schema}");
            return;
        }
    }
    if schema["allOf"].is_array() {
        return conforms(document, &merged(document, schema), value, path);
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    let fits = types.iter().any(|kind| match *kind {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    });
    assert!(fits, "{path}: {value} is not {types:?}");
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        items.iter().for_each(|item| conforms(document, schema, item, path));
    }
    if let (Some(fields), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    {
        for required in schema["required"].as_array().into_iter().flatten() {
            let name = required.as_str().unwrap();
            assert!(fields.contains_key(name), "{path}: {name} is missing in {value}");
        }
        for (name, field) in fields {
            let schema = properties.get(name);
            let schema = schema.unwrap_or_else(|| panic!("{path}: {name} is not described"));
            conforms(document, schema, field, &format!("{path}.{name}"));
        }
    }
}

/// One object with the fields of all parts.
fn merged(document: &Value, schema: &Value) -> Value {
    let mut whole = json!({ "type": "object", "properties": {}, "required": [] });
    for part in schema["allOf"].as_array().unwrap() {
        let name = part["$ref"].as_str().map(|name| name.rsplit('/').next().unwrap());
        let part = name.map_or(part, |name| &document["components"]["schemas"][name]);
        for (name, field) in part["properties"].as_object().into_iter().flatten() {
            whole["properties"][name] = field.clone();
        }
        let required = part["required"].as_array().cloned().unwrap_or_default();
        whole["required"].as_array_mut().unwrap().extend(required);
    }
    whole
}

#[tokio::test]
async fn the_end_is_orderly_and_bounded() {
    let server = Server::start().await;
    let stream = server.client.stream("/v1/events/stream", &[]).await;
    let client = server.client.clone();
    let mut request = claim("l");
    request["wait"] = json!("60s");
    let waiting = tokio::spawn(async move { client.post("/v1/claims", request).await });
    let client = server.client.clone();
    let polling = tokio::spawn(async move { client.get("/v1/events?from=latest&wait=60s").await });
    // Both are in hand once the server has counted three connections.
    loop {
        let text = server.client.get("/metrics").await.body;
        if String::from_utf8_lossy(&text).contains("ff_http_connections 4\n") {
            break;
        }
        tokio::task::yield_now().await;
    }
    let (begun, client) = (Instant::now(), server.client.clone());
    server.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(waiting.await.unwrap().expect(200), json!({ "executions": [] }));
    assert_eq!(polling.await.unwrap().expect(200)["events"], json!([]));
    assert!(!stream.end().await.contains("problem"));
    assert!(tokio::net::TcpStream::connect(client.address).await.is_err());
}

#[tokio::test]
async fn without_tokens_only_this_machine_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db").display().to_string();
    let backend = ff_backend_sqlite::SqliteBackend::new(&path).await.unwrap();
    let open = Config { auth: Auth::None, listen: ([0, 0, 0, 0], 0).into(), ..config() };
    let error = Bound::bind(&open, backend.clone()).await.err().unwrap().to_string();
    assert!(error.contains("this machine only"), "{error}");
    let insecure = Config { insecure: true, ..open };
    assert!(Bound::bind(&insecure, backend).await.is_ok());

    let server = Server::start_with(Config { auth: Auth::None, ..config() }).await;
    let anyone = server.client.with(None);
    assert_eq!(anyone.get("/v1/executions").await.status, 200);
    let foreign = [("origin", "http://evil.example")];
    let page = anyone.send("POST", "/v1/lanes/l/resume", &foreign, None).await;
    page.refused(403, "forbidden");
    server.stop().await;
}

#[tokio::test]
async fn a_configured_server_serves_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { data: folder.path().join("data"), ..config() };
    ff_server::serve(config.clone(), |_| (), std::future::ready(())).await.unwrap();
    assert!(folder.path().join("data/flowfabric.db").is_file());
    let strange = Config { backend: Some("mysql://x".into()), ..config };
    let error = ff_server::serve(strange, |_| (), std::future::ready(())).await.unwrap_err();
    assert!(error.to_string().contains("mysql"), "{error}");
}
