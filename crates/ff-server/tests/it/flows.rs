//! Graphs over HTTP: submitted whole, grown, waited for, run again and cancelled.

use serde_json::{Value, json};

use crate::server::{Server, at, claim};
use crate::system::conforms;

fn node(name: &str, payload: &Value) -> Value {
    json!({ "name": name, "work": { "lane_id": "l", "execution_kind": name, "payload": payload } })
}

fn diamond() -> Value {
    let mut join = node("join", &json!({ "own": 1 }));
    join["merge_results"] = json!(true);
    join["policy"] = json!({ "kind": "quorum", "k": 2 });
    json!({
        "flow_kind": "order",
        "tags": { "a.b": "c" },
        "nodes": [node("top", &json!(0)), node("left", &json!(1)), node("right", &json!(2)), join],
        "edges": [
            { "from": "top", "to": "left" }, { "from": "top", "to": "right" },
            { "from": "left", "to": "join" }, { "from": "right", "to": "join" },
        ],
    })
}

/// Claims the next execution, checks its name, and ends it.
async fn run(server: &Server, result: Value) -> Value {
    let (handle, claimed) = server.claim("l").await;
    let body = json!({ "handle": handle, "result": result });
    assert_eq!(server.client.post("/v1/leases/complete", body).await.status, 204);
    claimed
}

#[tokio::test]
async fn a_graph_runs_to_its_end() {
    let server = Server::start().await;
    let document = server.client.get("/openapi.json").await.expect(200);
    let check = |path: &str, method: &str, status: &str, answer: &Value| {
        let content = &document["paths"][path][method]["responses"][status]["content"];
        conforms(&document, &content["application/json"]["schema"], answer, path);
    };
    let made = server.client.post("/v1/flows", diamond()).await.expect(201);
    assert_eq!(made["outcome"], "created");
    check("/v1/flows", "post", "201", &made);
    let flow = format!("/v1/flows/{}", made["flow_id"].as_str().unwrap());
    let client = server.client.clone();
    let path = format!("{flow}?wait=20s");
    let end = tokio::spawn(async move { client.get(&path).await.expect(200) });

    assert_eq!(run(&server, json!("t")).await["execution_kind"], "top");
    let mut middle = [run(&server, json!("m")).await, run(&server, json!("m")).await];
    middle.sort_by_key(|one| one["execution_kind"].as_str().unwrap().to_owned());
    assert_eq!(middle[0]["execution_kind"], "left");
    let (handle, join) = server.claim("l").await;
    assert_eq!(join["payload"]["parents"]["right"]["result"], "m");
    assert_eq!(join["payload"]["own"], 1);
    let id = join["execution_id"].as_str().unwrap().to_owned();
    let parents = server.client.get(&format!("{}/parents", at(&id))).await.expect(200);
    check("/v1/executions/{execution_id}/parents", "get", "200", &parents);
    assert_eq!(parents["parents"].as_array().unwrap().len(), 2);
    assert_eq!(parents["parents"][0]["result"], "m");
    let done = server.client.post("/v1/leases/complete", json!({ "handle": handle })).await;
    assert_eq!(done.status, 204);

    let described = end.await.unwrap();
    check("/v1/flows/{flow_id}", "get", "200", &described);
    assert_eq!(described["status"], "completed");
    assert_eq!(described["counts"], json!({ "completed": 4 }));
    let graph = server.client.get(&format!("{flow}/graph?limit=2")).await.expect(200);
    check("/v1/flows/{flow_id}/graph", "get", "200", &graph);
    assert_eq!(graph["nodes"].as_array().unwrap().len(), 2);
    let cursor = graph["next_cursor"].as_str().unwrap();
    let rest = server.client.get(&format!("{flow}/graph?cursor={cursor}")).await.expect(200);
    assert_eq!(rest["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(rest["next_cursor"], Value::Null);
    let list = server.client.get("/v1/flows?statuses=completed,failed").await.expect(200);
    check("/v1/flows", "get", "200", &list);
    assert_eq!(list["flows"][0]["flow_id"], made["flow_id"]);
    assert_eq!(server.client.get("/v1/flows?statuses=open").await.expect(200)["flows"], json!([]));
    server.stop().await;
}

/// A node with more parents than fit beside it: the pages have every edge that was submitted, once.
#[tokio::test]
async fn a_graph_is_answered_whole() {
    let server = Server::start().await;
    let work = json!({ "lane_id": "l", "execution_kind": "k" });
    let nodes: Vec<_> =
        (0..152).map(|at| json!({ "name": format!("n{at}"), "work": work })).collect();
    let edges = (0..150).flat_map(|at| [150, 151].map(|to| (at, to)));
    let edges: Vec<_> = edges
        .map(|(from, to)| json!({ "from": format!("n{from}"), "to": format!("n{to}") }))
        .collect();
    let body = json!({ "nodes": nodes, "edges": edges });
    let made = server.client.post("/v1/flows", body).await.expect(201);
    let ids: Vec<&str> =
        made["execution_ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    let mut submitted: Vec<(&str, &str)> =
        (0..150).flat_map(|at| [(ids[at], ids[150]), (ids[at], ids[151])]).collect();
    submitted.sort_unstable();
    let path = format!("/v1/flows/{}/graph", made["flow_id"].as_str().unwrap());
    for limit in [10, 1000] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}?limit={limit}{cursor}");
            let page = server.client.get(&page).await.expect(200);
            for edge in page["edges"].as_array().unwrap() {
                let end = |name: &str| edge[name].as_str().unwrap().to_owned();
                found.push((end("from"), end("to")));
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        found.sort_unstable();
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(found, submitted, "{limit}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_flow_is_accepted_once_under_its_key() {
    let server = Server::start().await;
    let key = [("idempotency-key", "order-7")];
    let send = async |body: Value| server.client.send("POST", "/v1/flows", &key, Some(body)).await;
    let first = send(diamond()).await.expect(201);
    let again = send(diamond()).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let again = again.expect(200);
    assert_eq!(again["outcome"], "duplicate");
    assert_eq!(again["execution_ids"], first["execution_ids"]);
    let mut other = diamond();
    other["nodes"][0]["work"]["payload"] = json!("other");
    assert_eq!(send(other).await.status / 100, 4);
    let mut other = diamond();
    other["idempotency_key"] = json!("another");
    send(other).await.refused(400, "invalid_input");
    // An id of the caller's own needs no key.
    let mut own = diamond();
    own["flow_id"] = json!("0193b3c4-0000-7000-8000-000000000009");
    assert_eq!(send(own.clone()).await.expect(201)["flow_id"], own["flow_id"]);
    assert_eq!(send(own).await.expect(200)["outcome"], "duplicate");
    server.stop().await;
}

#[tokio::test]
async fn wrong_graphs_are_refused_whole() {
    let server = Server::start().await;
    let mut circle = diamond();
    circle["edges"].as_array_mut().unwrap().push(json!({ "from": "join", "to": "top" }));
    let mut nowhere = diamond();
    nowhere["edges"][0]["to"] = json!("nobody");
    let mut empty = diamond();
    empty["nodes"] = json!([]);
    for (graph, code) in
        [(circle, "invalid_graph"), (nowhere, "invalid_graph"), (empty, "invalid_graph")]
    {
        server.client.post("/v1/flows", graph).await.refused(400, code);
    }
    let mut namespace = diamond();
    namespace["namespace"] = json!("other");
    server.client.post("/v1/flows", namespace).await.refused(400, "invalid_input");
    let mut both = diamond();
    both["nodes"][1]["work"]["payload_base64"] = json!("AA==");
    let problem = server.client.post("/v1/flows", both).await.refused(400, "invalid_input");
    assert!(problem["detail"].as_str().unwrap().starts_with("node 1: "), "{problem}");
    assert_eq!(server.client.get("/v1/flows").await.expect(200)["flows"], json!([]));
    assert_eq!(server.client.get("/v1/executions").await.expect(200)["executions"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn members_grow_wait_run_again_and_fork() {
    let server = Server::start().await;
    let graph = json!({ "nodes": [node("root", &json!(1))] });
    let made = server.client.post("/v1/flows", graph).await.expect(201);
    let (handle, root) = server.claim("l").await;
    let root = root["execution_id"].as_str().unwrap().to_owned();
    let grow = json!({ "handle": handle, "nodes": [node("child", &json!(2))] });
    let grown = server.client.post("/v1/leases/extend-flow", grow.clone()).await.expect(200);
    assert_eq!(grown["outcome"], "created");
    // A node with a name is added once.
    let again = server.client.post("/v1/leases/extend-flow", grow).await.expect(200);
    assert_eq!(again["execution_ids"], grown["execution_ids"]);
    let wait = json!({ "handle": handle });
    let waiting = server.client.post("/v1/leases/wait-children", wait).await.expect(200);
    assert_eq!(waiting, json!({ "outcome": "waiting", "open": 1 }));
    assert_eq!(run(&server, json!("c")).await["execution_kind"], "child");
    assert_eq!(run(&server, json!("r")).await["execution_id"], root);

    let replayed = server.client.post(&format!("{}/replay-flow", at(&root)), json!({})).await;
    assert_eq!(replayed.expect(200)["replayed"], json!([root]));
    assert_eq!(run(&server, json!("r2")).await["execution_id"], root);
    let fork = json!({ "payload": "other input" });
    let forked = server.client.post(&format!("{}/fork-flow", at(&root)), fork).await.expect(201);
    assert_ne!(forked["flow_id"], made["flow_id"]);
    assert_eq!(run(&server, json!(null)).await["payload"], "other input");
    let path = format!("/v1/flows/{}", forked["flow_id"].as_str().unwrap());
    let described = server.client.get(&path).await.expect(200);
    assert_eq!(described["forked_from"], made["flow_id"]);

    let alone = server.submit("l", json!(1)).await;
    let nothing = server.client.post(&format!("{}/replay-flow", at(&alone)), json!({})).await;
    nothing.refused(409, "not_in_flow");
    server.stop().await;
}

#[tokio::test]
async fn flows_of_others_do_not_exist() {
    let server = Server::start().await;
    let made = server.client.post("/v1/flows", diamond()).await.expect(201);
    let stranger = server.user(&["admin"], &["own"]).await;
    let theirs = made["flow_id"].as_str().unwrap();
    let absent = "0193b3c4-0000-7000-8000-000000000001";
    for (method, verb, body) in [
        ("GET", "", None),
        ("GET", "/graph", None),
        ("POST", "/cancel", Some(json!({ "policy": "cancel_all" }))),
    ] {
        let mut answers = Vec::new();
        for id in [theirs, absent] {
            let path = format!("/v1/flows/{id}{verb}");
            let answer = stranger.send(method, &path, &[], body.clone()).await;
            answers.push(answer.refused(404, "not_found")["detail"].clone());
        }
        assert_eq!(answers[0], answers[1], "{verb}");
    }
    assert_eq!(stranger.get("/v1/flows").await.expect(200)["flows"], json!([]));
    let (handle, _) = server.claim("l").await;
    for (path, body) in [
        ("/v1/leases/extend-flow", json!({ "handle": handle, "nodes": [node("x", &json!(1))] })),
        ("/v1/leases/wait-children", json!({ "handle": handle })),
    ] {
        stranger.post(path, body).await.refused(404, "not_found");
    }
    let untouched = server.client.get(&format!("/v1/flows/{theirs}")).await.expect(200);
    assert_eq!((&untouched["status"], &untouched["node_count"]), (&json!("running"), &json!(4)));
    let cancel = json!({ "policy": "cancel_all", "wait": "5s" });
    let path = format!("/v1/flows/{theirs}/cancel");
    let cancelled = server.client.post(&path, cancel).await.expect(200);
    assert_eq!(cancelled["member_execution_ids"].as_array().unwrap().len(), 4);
    let none = server.client.post("/v1/claims", claim("l")).await.expect(200);
    assert_eq!(none, json!({ "executions": [] }));
    server.stop().await;
}
