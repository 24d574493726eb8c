//! The command as a user runs it: against a real server, by exit code, stdout and stderr.

mod attack;
mod command;
mod docs;
mod doctor;
mod log;
mod nouns;
mod shell;

use command::Dev;
use serde_json::Value;

#[test]
fn work_is_started_watched_and_ended_from_the_shell() {
    let dev = Dev::start();
    let ran =
        dev.run(&["run", "start", "echo", "--lane", "demo", "--input", "{\"a\": 1}", "--wait"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "{\"a\":1}\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("waiting for the end of"), "{}", ran.stderr);

    let listed = dev.run(&["run", "ls", "-o", "jsonl", "--state", "completed"]);
    let one: Value = serde_json::from_str(listed.stdout.trim()).expect("one line of JSON");
    let id = one["execution_id"].as_str().expect("an id");
    assert_eq!(one["execution_kind"], "echo");
    let table = dev.run(&["run", "ls"]);
    assert!(table.stdout.contains(id), "ids are never cut: {}", table.stdout);

    let shown = dev.run(&["run", "show", id, "--events", "-o", "json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let types: Vec<_> = shown["events"].as_array().expect("events").iter().collect();
    let types: Vec<_> = types.iter().filter_map(|event| event["event_type"].as_str()).collect();
    assert_eq!(types, ["submitted", "claimed", "completed"]);

    let tail = dev.run(&["run", "tail", id]);
    assert_eq!((tail.code, tail.stdout.lines().count()), (0, 3));
    let events = dev.run(&["events", "--all", "--take", "2", "-o", "jsonl"]);
    assert_eq!((events.code, events.stdout.lines().count()), (0, 2), "{}", events.stderr);
    dev.run(&["lane", "pause", "audited"]);
    let audit = dev.run(&["--namespace", "*", "events", "--audit", "-o", "jsonl"]);
    let last: serde_json::Value = serde_json::from_str(audit.stdout.lines().last().unwrap_or("{}"))
        .unwrap_or_else(|error| panic!("{error}: {}", audit.stderr));
    assert_eq!((&last["event_type"], &last["by"]), (&"lane_paused".into(), &"root".into()));
    assert_eq!(last["actor"]["remote"], "127.0.0.1");
}

#[test]
fn a_run_that_cannot_be_read_is_listed_as_such() {
    let dev = Dev::start();
    let start = |lane| dev.run(&["run", "start", "k", "--lane", lane, "--delay", "1h"]);
    assert_eq!((start("whole").code, start("damaged").code), (0, 0));
    let file = ff_backend_sqlite::rusqlite::Connection::open(dev.database()).expect("its file");
    file.busy_timeout(std::time::Duration::from_secs(30)).expect("a setting");
    let damage = "UPDATE ff_exec_core SET lifecycle_phase = 'bogus' WHERE lane_id = 'damaged'";
    assert_eq!(file.execute(damage, []).expect("written"), 1);
    let listed = dev.run(&["run", "ls"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let line = |lane: &str| listed.stdout.lines().find(|line| line.contains(lane)).expect("a line");
    assert!(line("damaged").contains("unreadable"), "{}", listed.stdout);
    assert!(line("whole").contains("delayed"), "{}", listed.stdout);
}

#[test]
fn exit_codes_say_what_happened() {
    let dev = Dev::start();
    let failed = dev.run(&["run", "start", "unknown-kind", "--lane", "demo", "--wait"]);
    assert_eq!(failed.code, 2, "{}", failed.stderr);
    assert!(failed.stderr.contains("has failed") && failed.stderr.contains("try:"));
    assert_eq!(failed.stdout, "");

    let started = dev.run(&["run", "start", "later", "--delay", "1h", "-o", "json"]);
    let started: Value = serde_json::from_str(&started.stdout).expect("JSON");
    let id = started["execution_id"].as_str().expect("an id");
    let open = dev.run(&["run", "result", id]);
    assert_eq!(open.code, 124, "{}", open.stderr);
    let why = dev.run(&["run", "why", id]);
    assert_eq!(why.code, 0);
    assert!(why.stdout.contains("that can change at"), "{}", why.stdout);
    assert_eq!(dev.run(&["run", "priority", id, "7"]).code, 1, "it is not eligible yet");
    assert_eq!(dev.run(&["run", "retry", id]).code, 0);
    assert_eq!(dev.run(&["run", "priority", id, "7"]).code, 0);
    assert_eq!(dev.run(&["run", "tag", id, "app.team=a"]).code, 0);
    let tagged = dev.run(&["run", "ls", "--tag", "app.team=a", "-o", "jsonl"]);
    assert_eq!(tagged.stdout.lines().count(), 1);
    assert_eq!(dev.run(&["run", "cancel", id]).code, 0);
    let ended = dev.run(&["run", "result", id]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);

    let missing = "{fp:0}:0193b3c4-0000-7000-8000-000000000001";
    assert_eq!(dev.run(&["run", "show", missing]).code, 66);
    assert_eq!(dev.run(&["run", "frobnicate"]).code, 64);
    assert_eq!(dev.run(&["run", "start", "echo", "--input", "not json"]).code, 64);
    assert_eq!(dev.run_as("ff_wrong", &["run", "ls"]).code, 77);
}

#[test]
fn many_are_cancelled_only_with_a_yes() {
    let dev = Dev::start();
    for _ in 0..3 {
        assert_eq!(dev.run(&["run", "start", "report", "--lane", "quiet"]).code, 0);
    }
    let matching = ["run", "cancel", "--kind", "report"];
    let dry = dev.run(&[&matching[..], &["--dry-run", "-o", "json"]].concat());
    let dry: Value = serde_json::from_str(&dry.stdout).expect("JSON");
    assert_eq!(dry["would_cancel"], 3);
    let asked = dev.run(&matching);
    assert_eq!(asked.code, 64, "{}", asked.stderr);
    assert!(asked.stderr.contains("3 executions") && asked.stderr.contains("--yes"));
    let done = dev.run(&[&matching[..], &["--yes", "-o", "json"]].concat());
    let done: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!((&done["matched"], &done["cancelled"]), (&3.into(), &3.into()));
    assert_eq!(dev.run(&["run", "cancel"]).code, 64, "not everything by mistake");
}

#[test]
fn bulk_operations_say_how_many_and_wait_for_a_yes() {
    let dev = Dev::start();
    for _ in 0..3 {
        assert_eq!(dev.run(&["run", "start", "report", "--lane", "quiet"]).code, 0);
    }
    let preview = dev.run(&["bulk", "preview", "--kind", "report", "-o", "json"]);
    let preview: Value = serde_json::from_str(&preview.stdout).expect("JSON");
    assert_eq!(preview["matched"], 3);
    let retag = ["bulk", "retag", "team.name=ops", "--kind", "report"];
    let asked = dev.run(&retag);
    assert_eq!(asked.code, 64, "{}", asked.stderr);
    assert!(asked.stderr.contains("This retags 3 executions"), "{}", asked.stderr);
    let done = dev.run(&[&retag[..], &["--yes", "-o", "json"]].concat());
    let done: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!((&done["state"], &done["changed"]), (&"finished".into(), &3.into()));
    let tagged = dev.run(&["run", "ls", "--tag", "team.name=ops", "-o", "jsonl"]);
    assert_eq!(tagged.stdout.lines().count(), 3);

    let id = done["bulk_id"].as_str().expect("an id");
    assert_eq!(dev.run(&["bulk", "show", id]).code, 0);
    assert!(dev.run(&["bulk", "ls"]).stdout.contains(id));
    assert_eq!(dev.run(&["bulk", "failures", id]).code, 0);
    assert_eq!(dev.run(&["bulk", "stop", id]).code, 0);
    assert_eq!(dev.run(&["bulk", "replay", "--yes"]).code, 64, "not everything by mistake");
}

#[test]
fn schedules_are_made_and_driven_from_the_shell() {
    let dev = Dev::start();
    let put = ["schedule", "put", "nightly", "--kind", "echo", "--lane", "demo"];
    let timing = ["--cron", "30 3 * * *", "--zone", "Europe/Berlin", "--missed", "3"];
    let made = dev.run(&[&put[..], &timing, &["--input", "{\"a\": 1}", "-o", "json"]].concat());
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.contains("created"), "{}", made.stdout);
    assert_eq!(dev.run(&put).code, 64, "it says when it is due, or it is none");
    assert!(dev.run(&["schedule", "ls"]).stdout.contains("nightly"));
    let shown = dev.run(&["schedule", "show", "nightly", "--upcoming", "2", "-o", "json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(shown["upcoming"].as_array().map(Vec::len), Some(2));
    assert_eq!(dev.run(&["schedule", "pause", "nightly", "--reason", "lunch"]).code, 0);
    let run = dev.run(&["schedule", "trigger", "nightly", "-o", "json"]);
    let run: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let id = run["execution_id"].as_str().expect("an id");
    let result = dev.run(&["run", "result", id, "--wait", "20s"]);
    assert_eq!((result.code, result.stdout.as_str()), (0, "{\"a\":1}\n"), "{}", result.stderr);
    assert_eq!(dev.run(&["schedule", "resume", "nightly"]).code, 0);
    let range = ["--from", "2026-03-01T00:00:00Z", "--until", "2026-03-03T00:00:00Z"];
    let made_up = dev.run(&[&["schedule", "backfill", "nightly"][..], &range].concat());
    assert!(made_up.stdout.contains('2'), "{} {}", made_up.stdout, made_up.stderr);
    assert_eq!(dev.run(&["schedule", "rm", "nightly", "--yes"]).code, 0);
    assert_eq!(dev.run(&["schedule", "show", "nightly"]).code, 66);
    let preview = dev.run(&["schedule", "preview", "--every", "15m", "-o", "json"]);
    let preview: Value = serde_json::from_str(&preview.stdout).expect("JSON");
    assert_eq!(preview["upcoming"].as_array().map(Vec::len), Some(5));
}

#[test]
fn lanes_are_paused_and_resumed() {
    let dev = Dev::start();
    assert_eq!(dev.run(&["run", "start", "echo", "--lane", "demo", "--wait"]).code, 0);
    assert_eq!(dev.run(&["lane", "pause", "demo", "--reason", "lunch"]).code, 0);
    let lanes = dev.run(&["lane", "ls", "-o", "json"]);
    let lanes: Value = serde_json::from_str(&lanes.stdout).expect("JSON");
    assert_eq!(lanes["lanes"][0]["paused_reason"], "lunch");
    let started =
        dev.run(&["run", "start", "echo", "--lane", "demo", "--wait", "--timeout", "100ms"]);
    assert_eq!(started.code, 124, "{}", started.stderr);
    assert_eq!(dev.run(&["lane", "resume", "demo"]).code, 0);
    let ran = dev.run(&["run", "start", "echo", "--lane", "demo", "--wait"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(dev.run(&["lane", "counts"]).code, 0);
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_so() {
    let ran = command::run(&["--url", "http://127.0.0.1:9", "run", "ls"], &[]);
    assert_eq!(ran.code, 69, "{}", ran.stderr);
    assert!(ran.stderr.contains("flowfabric dev"), "{}", ran.stderr);
}

#[test]
fn settings_and_stores_are_looked_at_without_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let data = data.to_str().expect("a plain path");
    let shown = command::run(
        &["config", "show", "--origin", "--listen", "127.0.0.1:1", "-o", "json"],
        &[("FF_REQUESTS", "7")],
    );
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let of = |key: &str| {
        let settings = shown["settings"].as_array().expect("settings");
        settings.iter().find(|setting| setting["key"] == key).expect("the setting").clone()
    };
    assert_eq!(
        (&of("listen")["origin"], &of("requests")["origin"]),
        (&"flag".into(), &"FF_REQUESTS".into())
    );
    assert_eq!(command::run(&["config", "show", "--set", "nonsense=1"], &[]).code, 64);

    let migrated = command::run(&["migrate", "--data", data], &[]);
    assert_eq!(migrated.code, 0, "{}", migrated.stderr);
    let doctor = command::run(&["doctor", "--data", data, "-o", "json"], &[]);
    assert_eq!(doctor.code, 0, "{} {}", doctor.stdout, doctor.stderr);
    let checks: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    assert!(checks["checks"].as_array().is_some_and(|checks| checks.len() >= 6));
    assert_eq!(command::run(&["completions", "bash"], &[]).code, 0);
}

#[test]
fn webhooks_are_kept_from_the_shell() {
    let dev = Dev::start();
    let add = ["webhook", "add", "https://hook.invalid/x", "--type", "failed", "-o", "json"];
    let added = dev.run(&add);
    let made: Value = serde_json::from_str(&added.stdout).expect("JSON");
    assert!(made["secret"].as_str().expect("a secret").starts_with("whsec_"));
    assert!(added.stderr.contains("not shown again"), "{}", added.stderr);
    let id = made["webhook_id"].as_str().expect("an id");
    assert_eq!(dev.run(&["webhook", "pause", id]).code, 0);
    let listed = dev.run(&["webhook", "ls"]);
    assert!(listed.stdout.contains(id) && listed.stdout.contains("paused"), "{}", listed.stdout);
    assert!(!listed.stdout.contains("whsec_"));
    assert_eq!(dev.run(&["webhook", "resume", id]).code, 0);
    assert_eq!(dev.run(&["webhook", "deliveries", id, "-o", "jsonl"]).stdout, "");
    assert_eq!(dev.run(&["webhook", "rm", id]).code, 0);
    assert_eq!(dev.run(&["webhook", "show", id]).code, 66);
    let inside = dev.run(&["webhook", "add", "http://169.254.169.254/"]);
    assert_ne!(inside.code, 0, "{}", inside.stdout);
}
