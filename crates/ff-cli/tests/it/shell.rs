//! What a shell does with the command: limits and formats, pipes that close, names that are wrong.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::command::{self, Dev, Ran};

fn parsed(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

/// Suspends one execution that waits for a signal.
fn suspend(dev: &Dev, number: usize) {
    assert_eq!(dev.run(&["run", "start", "ask", "--lane", "waits"]).code, 0);
    let claim = json!({"lanes": ["waits"], "worker_id": "w", "worker_instance_id": "w-1"});
    let handle = dev.post("/v1/claims", &claim)["executions"][0]["handle"].clone();
    let key = "answer";
    let waitpoint_id = format!("0193b3c4-0000-7000-8000-00000000000{number}");
    let fresh = json!({"type": "fresh", "waitpoint_id": waitpoint_id, "waitpoint_key": key,
                       "token": {}});
    let condition = json!({"type": "single", "waitpoint_key": key});
    let suspension = json!({"condition": condition, "waitpoints": [fresh]});
    dev.post("/v1/leases/suspend", &json!({"handle": handle, "suspension": suspension}));
}

#[test]
fn limits_hold_in_every_format() {
    let dev = Dev::start();
    let work = json!({"lane_id": "quiet", "execution_kind": "k"});
    let flow = json!({"nodes": [{"name": "only", "work": work}]}).to_string();
    for number in 0..3 {
        assert_eq!(dev.run(&["flow", "submit", &flow]).code, 0);
        suspend(&dev, number);
    }
    let lists = [("run", "executions"), ("flow", "flows"), ("waitpoint", "waitpoints")];
    for (noun, name) in lists {
        let ls = |format: &str| dev.run(&[noun, "ls", "--limit", "2", "-o", format]);
        let table = ls("table");
        assert_eq!(table.stdout.lines().count(), 3, "{noun}, and a head: {}", table.stdout);
        let json = parsed(&ls("json"));
        assert_eq!(json[name].as_array().map(Vec::len), Some(2), "{noun}: {json}");
        assert_eq!(ls("jsonl").stdout.lines().count(), 2, "{noun}");
    }
    let all = dev.run(&["run", "ls", "--limit", "0", "-o", "jsonl"]);
    assert_eq!(all.stdout.lines().count(), 6, "{}", all.stdout);
}

#[test]
fn counts_show_every_state_that_there_is() {
    let dev = Dev::start();
    let node = |name: &str, kind: &str| {
        let work = json!({"lane_id": "demo", "execution_kind": kind});
        json!({"name": name, "work": work})
    };
    let nodes = [node("bad", "unknown-kind"), node("after", "echo")];
    let graph = json!({"nodes": nodes, "edges": [{"from": "bad", "to": "after"}]}).to_string();
    let ended = dev.run(&["flow", "submit", &graph, "--wait"]);
    assert_eq!(ended.code, 2, "it fails: {}", ended.stderr);
    let counts = dev.run(&["lane", "counts"]);
    let mut lines = counts.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (head, row) = (lines.next().expect("a head"), lines.next().expect("a lane"));
    let count = |state| row[head.iter().position(|one| *one == state).expect(state)];
    assert_eq!((count("FAILED"), count("SKIPPED"), count("WAITING")), ("1", "1", "0"));
    let top = dev.run(&["top", "--take", "1"]);
    assert!(top.stdout.contains("SKIPPED"), "{}", top.stdout);
    let top = parsed(&dev.run(&["top", "--take", "1", "-o", "json"]));
    let lane = &top["lanes"][0]["counts"];
    assert_eq!((&lane["skipped"], &lane["rate_limited"]), (&json!(1), &json!(0)), "{top}");
}

/// The exit code and what is said on the other channel, when the reader of one is gone.
fn into_closed_pipe(mut command: Command, closed: &str) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = match closed {
        "stdout" => command.stdout(writer).stderr(Stdio::piped()),
        _ => command.stderr(writer).stdout(Stdio::piped()),
    };
    let output = output.output().expect("the command runs");
    let other = if closed == "stdout" { output.stderr } else { output.stdout };
    (output.status.code(), String::from_utf8_lossy(&other).into_owned())
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let dev = Dev::start();
    assert_eq!(dev.run(&["run", "start", "k", "--lane", "quiet"]).code, 0);
    let commands: [&[&str]; 12] = [
        &["completions", "bash"],
        &["completions", "zsh"],
        &["--help"],
        &["--version"],
        &["config", "show"],
        &["run", "ls"],
        &["run", "ls", "-o", "jsonl"],
        &["lane", "counts", "-o", "json"],
        &["events", "--all", "--take", "1"],
        &["top", "--take", "1"],
        &["doctor"],
        &["token", "ls"],
    ];
    for args in commands {
        let (code, told) = into_closed_pipe(dev.command(args), "stdout");
        assert_eq!(code, Some(0), "{args:?}: {told}");
        assert!(!told.contains("panicked") && !told.contains("error"), "{args:?}: {told}");
    }
    let talking: [(&[&str], i32); 4] = [
        (&["lane", "pause", "quiet"], 0),
        (&["waitpoint", "ls"], 0),
        (&["run", "show", "{fp:0}:0193b3c4-0000-7000-8000-000000000001"], 66),
        (&["run", "cancel", "--kind", "k"], 64),
    ];
    for (args, expected) in talking {
        let (code, _) = into_closed_pipe(dev.command(args), "stderr");
        assert_eq!(code, Some(expected), "{args:?}");
    }
}

#[test]
fn doctor_creates_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let typo = folder.path().join("typo");
    let ran = command::run(&["doctor", "--data", typo.to_str().expect("a plain path")], &[]);
    assert_eq!(ran.code, 66, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("there is no database at"), "{}", ran.stderr);
    assert!(!typo.exists(), "nothing was made");
    // A database of an older program is left as it is, and so is its folder.
    std::fs::create_dir(&typo).expect("a folder");
    let path = typo.join("flowfabric.db");
    let old = ff_backend_sqlite::rusqlite::Connection::open(&path).expect("a database");
    old.execute_batch("PRAGMA user_version = 1; CREATE TABLE ff_meta (x)").expect("written");
    drop(old);
    let before = std::fs::read(&path).expect("bytes");
    let ran = command::run(&["doctor", "--data", typo.to_str().expect("a plain path")], &[]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("flowfabric migrate"), "{}", ran.stderr);
    assert_eq!(std::fs::read(&path).expect("bytes"), before);
    assert_eq!(std::fs::read_dir(&typo).expect("a folder").count(), 1, "nothing was made");
}

#[test]
fn doctor_asks_the_server_that_is_named() {
    let dev = Dev::start();
    assert_eq!(dev.run(&["run", "start", "k", "--lane", "quiet"]).code, 0);
    let ran = dev.run(&["doctor", "-o", "json"]);
    let checks = parsed(&ran);
    let of = |name: &str| {
        let mut checks = checks["checks"].as_array().expect("checks").iter();
        checks.find(|one| one["check"] == name).expect(name)["found"].clone()
    };
    assert_eq!(of("ready"), "ok");
    assert_eq!(of("backlog"), "1 waiting, 0 active");
    assert_eq!(of("durability"), "power_loss");
    assert_eq!(of("paused lanes"), "none");
    let repair = dev.run(&["doctor", "--repair"]);
    assert_eq!(repair.code, 64, "a server's store is not mended behind its back");
    let gone = command::run(&["doctor"], &[("FF_URL", "http://127.0.0.1:9")]);
    assert_eq!(gone.code, 69, "{}", gone.stderr);
}
