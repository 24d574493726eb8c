//! Flows, workers, limits, waitpoints, the live view and the benchmark from the shell.

use serde_json::{Value, json};

use crate::command::{self, Dev, Ran};

fn parsed(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

/// Three nodes of the demo worker's; the last one waits for two.
fn graph() -> String {
    let node = |name: &str, kind: &str| {
        let work = json!({"lane_id": "demo", "execution_kind": kind, "payload": name});
        json!({"name": name, "work": work})
    };
    let nodes = [node("left", "echo"), node("right", "echo"), node("both", "echo")];
    let edges = [json!({"from": "left", "to": "both"}), json!({"from": "right", "to": "both"})];
    json!({"flow_kind": "demo", "nodes": nodes, "edges": edges}).to_string()
}

#[test]
fn flows_are_submitted_drawn_listed_and_cancelled() {
    let dev = Dev::start();
    let ended = parsed(&dev.run(&["flow", "submit", &graph(), "--wait", "-o", "json"]));
    assert_eq!((&ended["status"], &ended["node_count"]), (&"completed".into(), &3.into()));
    let id = ended["flow_id"].as_str().expect("an id").to_owned();

    let text = dev.run(&["flow", "show", &id, "--graph", "text"]);
    assert_eq!(text.code, 0, "{}", text.stderr);
    let last = text.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("both (echo): completed  after all of "), "{}", text.stdout);
    let dot = dev.run(&["flow", "show", &id, "--graph", "dot"]).stdout;
    assert!(dot.starts_with("digraph flow {") && dot.contains(" -> n2;"), "{dot}");
    let mermaid = dev.run(&["flow", "show", &id, "--graph", "mermaid"]).stdout;
    assert!(mermaid.starts_with("flowchart LR") && mermaid.contains(" --> n2"), "{mermaid}");
    assert_eq!(parsed(&dev.run(&["flow", "show", &id, "-o", "json"]))["flow_kind"], "demo");

    let members = dev.run(&["run", "ls", "--flow", &id, "-o", "jsonl"]);
    let member: Value = serde_json::from_str(members.stdout.lines().next().expect("a member"))
        .expect("one line of JSON");
    let member = member["execution_id"].as_str().expect("an id");
    let forked = parsed(&dev.run(&["run", "fork", member, "-i", "\"other\"", "-o", "json"]));
    assert_ne!(forked["flow_id"].as_str(), Some(id.as_str()));
    let copy = parsed(&dev.run(&["run", "resubmit", member, "-i", "\"again\"", "-o", "json"]));
    let copy = copy["execution_id"].as_str().expect("an id");
    let shown = parsed(&dev.run(&["run", "show", copy, "-o", "json"]));
    assert_eq!(shown["resubmitted_from"].as_str(), Some(member));
    let listed = parsed(&dev.run(&["flow", "ls", "-o", "json"]));
    assert_eq!(listed["flows"].as_array().map(Vec::len), Some(2));
    let failed = dev.run(&["flow", "ls", "--status", "failed,cancelled"]);
    assert_eq!((failed.code, failed.stdout.as_str()), (0, ""), "{}", failed.stderr);

    let quiet = graph().replace("\"demo\"", "\"quiet\"");
    let waiting = parsed(&dev.run(&["flow", "submit", &quiet, "-o", "json"]));
    let waiting = waiting["flow_id"].as_str().expect("an id");
    let late = dev.run(&["flow", "submit", &quiet, "--wait", "--timeout", "50ms"]);
    assert_eq!(late.code, 124, "{}", late.stderr);
    assert_eq!(dev.run(&["flow", "cancel", waiting, "--wait", "10s"]).code, 0);
    let shown = parsed(&dev.run(&["flow", "show", waiting, "-o", "json"]));
    assert_eq!(shown["status"], "cancelled");

    let missing = "0193b3c4-0000-7000-8000-000000000001";
    assert_eq!(dev.run(&["flow", "show", missing]).code, 66);
    let wrong = dev.run(&["flow", "submit", "{\"nodes\": []}"]);
    assert!(wrong.code == 1 && wrong.stderr.contains("try:"), "{}", wrong.stderr);
    assert_eq!(dev.run(&["flow", "submit", "no json"]).code, 64);
}

#[test]
fn limits_are_declared_shown_and_forgotten() {
    let dev = Dev::start();
    let set = ["budget", "set", "tokens", "--hard", "tokens=100", "--soft", "tokens=80"];
    let set = dev.run(&[&set[..], &["--scope", "lane:demo", "--reset", "1h"]].concat());
    assert_eq!(set.code, 0, "{}", set.stderr);
    let shown = parsed(&dev.run(&["budget", "show", "tokens", "-o", "json"]));
    assert_eq!(shown["dimensions"]["tokens"]["hard"], 100);
    assert_eq!(
        (&shown["scope"]["lane"], &shown["reset_period_ms"]),
        (&"demo".into(), &3_600_000.into())
    );
    let listed = parsed(&dev.run(&["budget", "ls", "-o", "json"]));
    assert_eq!(listed["budgets"][0]["budget_id"], "tokens");
    assert_eq!(dev.run(&["budget", "reset", "tokens"]).code, 0);
    let asked = dev.run(&["budget", "rm", "tokens"]);
    assert!(asked.code == 64 && asked.stderr.contains("--yes"), "{}", asked.stderr);
    assert_eq!(dev.run(&["budget", "rm", "tokens", "--yes"]).code, 0);
    assert_eq!(dev.run(&["budget", "show", "tokens"]).code, 66);
    assert_eq!(dev.run(&["budget", "set", "x", "--hard", "tokens"]).code, 64);

    let set = ["quota", "set", "calm", "--lane", "demo", "--rate", "1000/1s", "--concurrency"];
    assert_eq!(dev.run(&[&set[..], &["3", "--key", "tag:app.customer"]].concat()).code, 0);
    let shown = parsed(&dev.run(&["quota", "show", "calm", "-o", "json"]));
    assert_eq!((&shown["rate"]["limit"], &shown["concurrency"]), (&1000.into(), &3.into()));
    assert_eq!(shown["key"]["tag"], "app.customer");
    assert_eq!(dev.run(&["quota", "ls"]).code, 0);
    assert_eq!(dev.run(&["quota", "rm", "calm", "--yes"]).code, 0);
    assert_eq!(dev.run(&["quota", "show", "calm"]).code, 66);
}

#[test]
fn waitpoints_are_listed_and_signalled() {
    let dev = Dev::start();
    let empty = dev.run(&["waitpoint", "ls"]);
    assert_eq!((empty.code, empty.stdout.as_str()), (0, ""), "{}", empty.stderr);
    let started = parsed(&dev.run(&["run", "start", "ask", "--lane", "quiet", "-o", "json"]));
    let id = started["execution_id"].as_str().expect("an id").to_owned();
    let claim = json!({"lanes": ["quiet"], "worker_id": "w", "worker_instance_id": "w-1"});
    let claimed = dev.post("/v1/claims", &claim);
    let handle = claimed["executions"][0]["handle"].clone();
    let key = "answer";
    let condition = json!({"type": "single", "waitpoint_key": key});
    let waitpoint_id = "0193b3c4-0000-7000-8000-000000000002";
    let fresh = json!({"type": "fresh", "waitpoint_id": waitpoint_id, "waitpoint_key": key,
                       "token": {}});
    let suspension = json!({"condition": condition, "waitpoints": [fresh]});
    dev.post("/v1/leases/suspend", &json!({"handle": handle, "suspension": suspension}));

    let open = parsed(&dev.run(&["waitpoint", "ls", "-o", "json"]));
    assert_eq!(open["waitpoints"][0]["waitpoint_key"], key);
    let token = dev.run(&["waitpoint", "token", &id, waitpoint_id]);
    assert!(token.code == 0 && token.stdout.len() > 20, "{}", token.stderr);
    let other = dev.run(&["run", "signal", &id, "question"]);
    assert_eq!(other.code, 66, "{}", other.stderr);
    assert!(other.stderr.contains("it waits for answer"), "{}", other.stderr);
    let said = parsed(&dev.run(&["run", "signal", &id, key, "-i", "{\"ok\": true}", "-o", "json"]));
    assert_eq!(said["effect"], "resume_condition_satisfied");
    let again = dev.run(&["waitpoint", "signal", &id, waitpoint_id, key]);
    assert_ne!(again.code, 0, "it is closed: {}", again.stdout);
    let all = dev.run(&["waitpoint", "ls", "--run", &id, "-o", "jsonl"]);
    assert!(all.stdout.contains("\"closed\""), "{}", all.stdout);
}

#[test]
fn workers_are_listed_and_retired() {
    let dev = Dev::start();
    let worker = json!({"worker_id": "cook", "worker_instance_id": "cook-1", "lanes": ["soup"],
                        "liveness_ttl": "60s"});
    let demo = parsed(&dev.run(&["worker", "ls", "--lane", "demo", "-o", "json"]));
    assert_eq!(demo["workers"][0]["worker_id"], "demo", "it shows itself");
    dev.post("/v1/workers", &worker);
    let listed = parsed(&dev.run(&["worker", "ls", "--lane", "soup", "-o", "json"]));
    assert_eq!(listed["workers"][0]["worker_instance_id"], "cook-1");
    let shown = parsed(&dev.run(&["worker", "show", "cook-1", "-o", "json"]));
    assert_eq!(shown["worker_id"], "cook");
    assert_eq!(dev.run(&["worker", "retire", "cook-1"]).code, 0);
    let gone = dev.run(&["worker", "retire", "cook-1"]);
    assert!(gone.code == 66 && gone.stderr.contains("try:"), "{}", gone.stderr);
    assert_eq!(dev.run(&["worker", "show", "cook-1"]).code, 66);
}

#[test]
fn the_view_and_the_benchmark_run_against_a_server() {
    let dev = Dev::start();
    let few = ["bench", "--executions", "300", "-o", "json"];
    let asked = dev.run(&few);
    assert_eq!(asked.code, 64, "{}", asked.stderr);
    let measured = parsed(&dev.run(&[&few[..], &["--yes"]].concat()));
    assert!(measured["submit_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
    assert!(measured["drain_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
    let table = dev.run(&["top", "--take", "1"]);
    assert_eq!(table.code, 0, "{}", table.stderr);
    assert!(!table.stdout.contains('\u{1b}'), "no escapes into a pipe: {}", table.stdout);
    assert!(table.stdout.contains("flowfabric-bench"), "{}", table.stdout);
    let lines = dev.run(&["top", "--take", "2", "--interval", "10ms", "-o", "jsonl"]);
    let last: Value = serde_json::from_str(lines.stdout.lines().last().unwrap_or_default())
        .expect("one line of JSON");
    assert_eq!(last["lanes"][0]["counts"]["completed"], 300);
    assert_eq!(dev.run(&["bench", "--claim", "0", "--yes"]).code, 64);
    let away = command::run(&["--url", "http://127.0.0.1:9", "bench", "--yes"], &[]);
    assert_eq!(away.code, 69, "{}", away.stderr);
}
