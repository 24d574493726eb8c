//! Every list that a route answers with is whole, or says that it was cut.

use std::collections::BTreeSet;

use ff_server::Config;
use serde_json::{Value, json};

use crate::server::{Server, at, claim, config};
use crate::suspension;

/// How an answer says that one of its lists was cut.
#[derive(Debug)]
enum Cut {
    /// This field says where the next page begins; it is null behind the last one.
    Next(&'static str),
    /// This field always says where to go on, for there is always more to come.
    GoesOn(&'static str),
    /// This field says how many there are, or that some were left out.
    Says(&'static str),
    /// The list is always whole, because of what it says.
    Never(&'static str),
}

use Cut::{GoesOn, Never, Next, Says};

/// Each list by the name of its route.
const LISTS: &[(&str, &str, Cut)] = &[
    ("submit_batch", "outcomes[]", Never("one for each item of the request")),
    ("list_executions", "executions[]", Next("next_cursor")),
    ("history", "events[]", Next("next_after")),
    ("claim_many", "executions[]", Never("what was claimed")),
    ("claim_many", "executions[].resume_signals[]", Never("bounded by limits::CONDITION_SIGNALS")),
    ("claim_many", "executions[].steps[]", Never("bounded by limits::STEPS")),
    ("renew_many", "outcomes[]", Never("one for each handle of the request")),
    ("lease_batch", "outcomes[]", Never("one for each operation of the request")),
    ("list_steps", "steps[]", Next("next_after")),
    ("list_steps", "unreadable[]", Next("next_after")),
    ("read_stream", "frames[]", GoesOn("next")),
    ("list_workers", "workers[]", Next("next_after")),
    ("list_workers", "unreadable[]", Next("next_after")),
    ("suspend", "signals[]", Never("bounded by limits::CONDITION_SIGNALS")),
    ("suspend", "waitpoints[]", Never("those of the request")),
    ("observe_signals", "signals[]", Never("bounded by limits::CONDITION_SIGNALS")),
    ("observe_signals", "unreadable[]", Never("bounded by limits::CONDITION_SIGNALS")),
    ("list_waitpoints", "waitpoints[]", Next("next_cursor")),
    ("list_waitpoints", "unreadable[]", Next("next_cursor")),
    ("list_execution_waitpoints", "waitpoints[]", Next("next_cursor")),
    ("list_execution_waitpoints", "unreadable[]", Next("next_cursor")),
    ("describe_suspension", "waitpoints[]", Never("bounded by limits::WAITPOINTS")),
    ("list_signals", "signals[]", Next("next_after")),
    ("list_signals", "unreadable[]", Next("next_after")),
    ("list_lanes", "lanes[]", Never("read without a limit")),
    ("counts", "counts[]", Never("read without a limit")),
    ("submit_flow", "execution_ids[]", Never("one for each node of the request")),
    ("cancel_flow", "member_execution_ids[]", Never("read to the end, page by page")),
    ("extend_flow", "execution_ids[]", Never("one for each node of the request")),
    ("replay_flow_from", "replayed[]", Never("bounded by limits::FLOW_REPLAY_NODES")),
    ("fork_flow", "execution_ids[]", Never("bounded by limits::FLOW_REPLAY_NODES")),
    ("list_flows", "flows[]", Next("next_cursor")),
    ("flow_graph", "nodes[]", Next("next_cursor")),
    ("flow_graph", "edges[]", Next("next_cursor")),
    ("flow_graph", "unreadable[]", Next("next_cursor")),
    ("parent_results", "parents[]", Next("next_after")),
    ("list_budgets", "budgets[]", Next("next_after")),
    ("list_budgets", "unreadable[]", Next("next_after")),
    ("list_quotas", "quotas[]", Next("next_after")),
    ("list_quotas", "unreadable[]", Next("next_after")),
    ("put_quota", "usage[]", Says("usage_truncated")),
    ("get_quota", "usage[]", Says("usage_truncated")),
    ("list_waitpoint_keys", "keys[]", Never("read without a limit")),
    ("list_waitpoint_keys", "unreadable[]", Never("read without a limit")),
    ("list_webhooks", "webhooks[]", Next("next_after")),
    ("list_webhooks", "unreadable[]", Next("next_after")),
    ("list_webhook_deliveries", "deliveries[]", Never("the last 50 are kept, and all are shown")),
    ("list_webhook_deliveries", "unreadable[]", Never("the last 50 are kept, and all are shown")),
    ("list_schedules", "schedules[]", Next("next_cursor")),
    ("list_schedules", "unreadable[]", Next("next_cursor")),
    ("list_schedules", "schedules[].upcoming[]", Never("as many as a list shows: none")),
    ("describe_schedule", "upcoming[]", Never("as many as were asked for")),
    ("preview_schedule", "upcoming[]", Never("as many as were asked for")),
    ("preview_bulk", "sample[]", Says("matched")),
    ("list_bulk", "operations[]", Next("next_cursor")),
    ("list_bulk", "unreadable[]", Next("next_cursor")),
    ("list_bulk_failures", "failures[]", Next("next_cursor")),
    ("list_bulk_failures", "unreadable[]", Next("next_cursor")),
    ("list_events", "events[]", GoesOn("next_cursor")),
    ("list_tokens", "tokens[]", Next("next_after")),
    ("list_tokens", "unreadable[]", Next("next_after")),
];

/// Parts of things that are bounded when they are given, by the end of their names.
const PARTS: &[&str] = &[
    "tags{}",
    "attempts[]",
    "required_capabilities[]",
    "capabilities[]",
    "lanes[]",
    "signal_names[]",
    "condition.members[]",
    "condition.waitpoint_keys[]",
    "counts{}",
    "ended{}",
    "dimensions{}",
    "estimate{}",
    "released{}",
    "weights{}",
    "event_types[]",
    "backfills[]",
    "running[]",
    "budget_estimate{}",
    "budget_ids[]",
    "retryable_categories[]",
    "states[]",
    "namespaces[]",
    "scopes[]",
];

/// The lists and maps in an answer's schema, by their paths.
fn lists(
    document: &Value,
    schema: &Value,
    at: &str,
    seen: &mut Vec<String>,
    found: &mut BTreeSet<String>,
) {
    if let Some(reference) = schema["$ref"].as_str() {
        if seen.iter().any(|known| known == reference) {
            return;
        }
        seen.push(reference.to_owned());
        let pointer = reference.trim_start_matches('#');
        lists(document, document.pointer(pointer).unwrap(), at, seen, found);
        seen.pop();
        return;
    }
    for form in ["oneOf", "anyOf", "allOf"] {
        for part in schema[form].as_array().into_iter().flatten() {
            lists(document, part, at, seen, found);
        }
    }
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        let inner = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        lists(document, part, &inner, seen, found);
    }
    if schema["items"].is_object() {
        found.insert(format!("{at}[]"));
        lists(document, &schema["items"], &format!("{at}[]"), seen, found);
    }
    if schema["additionalProperties"].is_object() {
        found.insert(format!("{at}{{}}"));
        lists(document, &schema["additionalProperties"], &format!("{at}{{}}"), seen, found);
    }
}

#[test]
fn every_list_says_that_it_was_cut() {
    let routes = ff_server::table();
    let document = serde_json::to_value(ff_server::openapi(&routes)).unwrap();
    let mut known = BTreeSet::new();
    for route in &routes {
        let method = route.method.as_str().to_lowercase();
        let responses = &document["paths"][route.path][&method]["responses"];
        let answers = responses.as_object().unwrap().iter();
        let answers = answers.filter(|(status, _)| status.starts_with('2'));
        let contents = answers.flat_map(|(_, answer)| answer["content"].as_object());
        for schema in contents.flat_map(|content| content.values()).map(|one| &one["schema"]) {
            let mut found = BTreeSet::new();
            lists(&document, schema, "", &mut Vec::new(), &mut found);
            for list in found {
                known.insert((route.name, list.clone()));
                let row = LISTS.iter().find(|row| row.0 == route.name && row.1 == list);
                match row {
                    Some((_, _, Next(field) | GoesOn(field) | Says(field))) => {
                        assert!(has(&document, schema, field), "{}: no {field}", route.name);
                    }
                    Some((_, _, Never(why))) => assert!(!why.is_empty()),
                    None => {
                        let part = PARTS.iter().any(|part| list.ends_with(part));
                        assert!(part, "how does {} say that {list} was cut?", route.name);
                    }
                }
            }
        }
    }
    for (route, list, _) in LISTS {
        assert!(known.contains(&(*route, (*list).to_owned())), "{route} has no {list}");
    }
}

/// Whether an answer has a field.
fn has(document: &Value, schema: &Value, field: &str) -> bool {
    let target = schema["$ref"].as_str().map(|reference| reference.trim_start_matches('#'));
    let schema = target.and_then(|target| document.pointer(target)).unwrap_or(schema);
    let parts = schema["allOf"].as_array().into_iter().flatten();
    schema["properties"].get(field).is_some() || parts.into_iter().any(|p| has(document, p, field))
}

/// What a thing is told from others by; the rest of it may change between two looks.
fn identity(thing: &Value) -> Value {
    let names = ["name", "namespace", "number", "sequence", "version"];
    let fields = thing.as_object().unwrap().iter();
    let own = fields.filter(|(name, _)| name.ends_with("_id") || names.contains(&name.as_str()));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Every page of a list, read with pages of one thing and with one page for all.
async fn whole(server: &Server, path: &str, route: &str) {
    let row = LISTS.iter().find(|row| row.0 == route).unwrap();
    let (name, Next(next)) = (row.1.trim_end_matches("[]"), &row.2) else { panic!("{row:?}") };
    let parameter = next.trim_start_matches("next_");
    let mut read = Vec::new();
    for limit in [1, 1000] {
        let (mut found, mut place) = (Vec::new(), String::new());
        loop {
            let mark = if path.contains('?') { '&' } else { '?' };
            let page = format!("{path}{mark}limit={limit}{place}");
            let page = server.client.get(&page).await.expect(200);
            found.extend(page[name].as_array().unwrap().iter().map(identity));
            place = match &page[*next] {
                Value::Null => break,
                Value::String(next) => {
                    let next: String = next.bytes().map(|byte| format!("%{byte:02X}")).collect();
                    format!("&{parameter}={next}")
                }
                next => format!("&{parameter}={next}"),
            };
        }
        read.push(found);
    }
    assert!(read[0].len() >= 2, "{route}: there is nothing to page through");
    assert_eq!(read[0], read[1], "{route}");
}

#[tokio::test]
async fn pages_of_one_are_the_whole_list() {
    let webhook_allow = Some("127.0.0.0/8".to_owned());
    let server = Server::start_with(Config { webhook_allow, ..config() }).await;
    let client = &server.client;
    for at in 0..3 {
        let put = async |path: &str, body: Value| {
            let path = format!("/v1/{path}{at}");
            client.send("PUT", &path, &[], Some(body)).await.expect(200);
        };
        put("budgets/b", json!({ "dimensions": { "tokens": { "hard": 10 } } })).await;
        put("quotas/q", json!({ "lane_id": "elsewhere", "concurrency": 1 })).await;
        let timing = json!({ "type": "cron", "expression": "30 3 * * *" });
        let template = json!({ "lane_id": "r", "execution_kind": "n" });
        put("schedules/s", json!({ "timing": timing, "template": template })).await;
        let hook =
            json!({ "url": format!("http://127.0.0.1:9/{at}"), "event_types": ["cancelled"] });
        client.post("/v1/webhooks", hook).await.expect(201);
        let work = json!({ "lane_id": "flows", "execution_kind": "k" });
        let nodes: Vec<_> =
            ["a", "b", "c"].map(|name| json!({ "name": name, "work": work })).into();
        let edges = json!([{ "from": "a", "to": "c" }, { "from": "b", "to": "c" }]);
        client.post("/v1/flows", json!({ "nodes": nodes, "edges": edges })).await.expect(201);
        let filter = json!({ "lane_id": "none" });
        let bulk = json!({ "filter": filter, "action": { "type": "cancel", "reason": "x" } });
        client.post("/v1/bulk", bulk).await.expect(201);
        let token = json!({ "name": format!("t{at}"), "scopes": ["read"], "namespaces": ["*"] });
        client.post("/v1/tokens", token).await.expect(201);
        for namespace in ["default", "other"] {
            let worker = json!({
                "worker_id": "w", "worker_instance_id": format!("w-{at}"), "lanes": ["l"],
                "capabilities": [], "liveness_ttl": "1h",
            });
            client.post(&format!("/v1/workers?namespace={namespace}"), worker).await.expect(200);
        }
    }
    let lists = [
        ("/v1/budgets", "list_budgets"),
        ("/v1/quotas", "list_quotas"),
        ("/v1/schedules", "list_schedules"),
        ("/v1/webhooks", "list_webhooks"),
        ("/v1/flows", "list_flows"),
        ("/v1/bulk", "list_bulk"),
        ("/v1/tokens", "list_tokens"),
        ("/v1/workers", "list_workers"),
        ("/v1/workers?namespace=*", "list_workers"),
        ("/v1/executions", "list_executions"),
    ];
    for (path, route) in lists {
        whole(&server, path, route).await;
    }
    let flow = client.get("/v1/flows").await.expect(200)["flows"][0]["flow_id"].clone();
    let graph = format!("/v1/flows/{}/graph", flow.as_str().unwrap());
    whole(&server, &graph, "flow_graph").await;
    let graph = client.get(&graph).await.expect(200);
    let child = graph["edges"][0]["to"].as_str().unwrap();
    whole(&server, &format!("{}/parents", at(child)), "parent_results").await;
    server.stop().await;
}

#[tokio::test]
async fn pages_of_one_execution_are_whole() {
    let server = suspension::server().await;
    let client = &server.client;
    let id = server.submit("l", json!(1)).await;
    let (handle, _) = server.claim("l").await;
    for number in 0..3 {
        let step = json!({ "handle": handle, "name": format!("s{number}"), "result": number });
        client.post("/v1/leases/steps", step).await.expect(200);
        let waitpoint =
            json!({ "waitpoint_key": format!("k{number}"), "expires_in_ms": 3_600_000 });
        let body = json!({ "handle": handle, "waitpoint": waitpoint });
        let made = client.post("/v1/leases/waitpoints", body).await.expect(200);
        let point = made["waitpoint_id"].as_str().unwrap();
        let signal = json!({ "signal_name": "go" });
        client.post(&format!("{}/waitpoints/{point}/signal", at(&id)), signal).await.expect(200);
    }
    for (part, route) in [
        ("steps", "list_steps"),
        ("waitpoints", "list_execution_waitpoints"),
        ("signals", "list_signals"),
        ("history", "history"),
    ] {
        whole(&server, &format!("{}/{part}", at(&id)), route).await;
    }
    whole(&server, "/v1/waitpoints", "list_waitpoints").await;
    server.stop().await;
}

/// More keys than a quota shows.
#[tokio::test]
async fn a_quota_says_that_keys_are_left_out() {
    let server = Server::start().await;
    let client = &server.client;
    let quota = json!({ "lane_id": "l", "key": { "tag": "t.id" }, "concurrency": 1 });
    client.send("PUT", "/v1/quotas/q", &[], Some(quota)).await.expect(200);
    let seen = client.get("/v1/quotas/q").await.expect(200);
    assert_eq!(seen["usage_truncated"], false);
    let item = |at: u32| {
        let tags = json!({ "t.id": at.to_string() });
        json!({ "lane_id": "l", "execution_kind": "k", "tags": tags })
    };
    let items: Vec<_> = (0..600).map(item).collect();
    client.post("/v1/executions/batch", json!({ "executions": items })).await.expect(200);
    let mut claim = claim("l");
    claim["max"] = json!(600);
    client.post("/v1/claims", claim).await.expect(200);
    let seen = client.get("/v1/quotas/q").await.expect(200);
    assert_eq!(seen["usage_truncated"], true);
    assert!(seen["usage"].as_array().unwrap().len() >= 500);
    server.stop().await;
}
