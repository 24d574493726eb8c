//! What a server says of itself while it runs, and that it says no secrets.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::command;

/// A server that does not outlive a test that fails.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const TOKEN: &str = "ff_canary-token-0123456789abcdef0123456789";

#[test]
fn a_server_logs_json_without_secrets_and_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let data = data.to_str().expect("a plain path");
    let mut child = command::command(
        &["serve", "--listen", "127.0.0.1:0", "--data", data],
        &[("FF_ROOT_TOKEN", TOKEN), ("FF_LOG", "debug"), ("FF_LISTENN", "typo")],
    )
    .stderr(Stdio::piped())
    .spawn()
    .expect("the command runs");
    let stderr = child.stderr.take().expect("its stderr");
    let mut child = Ends(child);
    let mut stderr = BufReader::new(stderr);
    let mut log = String::new();
    let address = loop {
        let mut line = String::new();
        assert!(stderr.read_line(&mut line).expect("a line") > 0, "it ended: {log}");
        log += &line;
        let told: Value = serde_json::from_str(&line).expect("JSON from the first line on");
        if told["message"] == "listening" {
            break told["address"].as_str().expect("an address").to_owned();
        }
    };
    let url = format!("http://{address}");
    let ask = |args: &[&str]| command::run(args, &[("FF_URL", &url), ("FF_TOKEN", TOKEN)]);
    let input = "\"canary-payload\"";
    let started = ask(&["run", "start", "kind", "--input", input, "-o", "json"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    let started: Value = serde_json::from_str(&started.stdout).expect("JSON");
    let id = started["execution_id"].as_str().expect("an id");
    let refused = ask(&["run", "replay", id]);
    assert_eq!(refused.code, 1);
    let why = "error: the execution has not ended, or it was cancelled: ";
    assert!(refused.stderr.starts_with(why) && refused.stderr.contains("try:"));
    assert!(refused.stderr.contains("use `resubmit` (execution_not_terminal)"));

    // The sweeper has something to do when the server is told to end.
    for delay in ["300ms", "400ms", "500ms"] {
        assert_eq!(ask(&["run", "start", "kind", "--delay", delay]).code, 0);
    }

    let told = Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status();
    assert!(told.expect("kill runs").success());
    assert!(child.0.wait().expect("it ends").success(), "it drains and ends well");
    stderr.read_to_string(&mut log).expect("the rest");
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    assert!(lines.iter().any(|line| line["message"] == "listening" && line["level"] == "INFO"));
    assert!(lines.iter().any(|line| line["route"] == "submit"), "requests are told: {log}");
    let strange = |line: &Value| line["message"].as_str().is_some_and(|m| m.contains("LISTENN"));
    assert!(lines.iter().any(strange), "a setting that there is not: {log}");
    assert!(!log.contains("canary"), "{log}");
    let is_bad = |line: &&Value| line["level"] == "WARN" || line["level"] == "ERROR";
    let bad: Vec<_> = lines.iter().filter(is_bad).filter(|line| !strange(line)).collect();
    assert!(bad.is_empty(), "an ordinary end is nothing to warn of: {bad:?}");
}

#[test]
fn a_server_that_cannot_start_says_so_in_its_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    let listen = ["serve", "--listen", "192.0.2.1:1", "--insecure", "--data", data];
    let ran = command::run(&listen, &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let lines: Vec<Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).expect("one object")).collect();
    let last = lines.last().expect("a line");
    assert_eq!(last["level"], "ERROR", "{last}");
    assert!(last["message"].as_str().is_some_and(|m| m.contains("192.0.2.1:1")), "{last}");
}

#[test]
fn a_level_that_nobody_knows_is_refused() {
    let ran = command::run(&["serve", "--log", "loud"], &[]);
    assert!(ran.code == 64 && ran.stderr.contains("say off, error, warn"), "{}", ran.stderr);
}

/// SIGHUP ends most programs. This one reads again what can be read again.
#[test]
fn a_server_that_is_sent_sighup_reads_its_settings_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    let file = folder.path().join("settings.toml");
    let path = file.to_str().expect("a plain path");
    std::fs::write(&file, "log = \"info\"\n").expect("a file");
    let args = ["serve", "--listen", "127.0.0.1:0", "--data", data, "--config", path];
    let child = command::command(&args, &[("FF_ROOT_TOKEN", TOKEN)])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut child = Ends(child);
    let mut stderr = BufReader::new(child.0.stderr.take().expect("its stderr"));
    let mut read_until = |mark: &str| {
        let mut log = String::new();
        while !log.contains(mark) {
            let read = stderr.read_line(&mut log).expect("a line");
            assert!(read > 0, "it ended: {log}");
        }
        log
    };
    let listening = read_until("\"listening\"");
    let last = listening.lines().last().expect("a line");
    let told: Value = serde_json::from_str(last).expect("JSON");
    let url = format!("http://{}", told["address"].as_str().expect("an address"));
    let send = |signal: &str| {
        let sent = Command::new("kill").args([signal, &child.0.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    };
    std::fs::write(&file, "log = \"debug\"\n").expect("a file");
    send("-HUP");
    read_until("the level of the log was read again");
    // A file that cannot be read changes nothing.
    std::fs::write(&file, "log = \"loud\"\n").expect("a file");
    send("-HUP");
    read_until("the settings cannot be read");
    let listed = command::run(&["run", "ls"], &[("FF_URL", &url), ("FF_TOKEN", TOKEN)]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    read_until("list_executions");
    send("-TERM");
    assert!(child.0.wait().expect("it ends").success());
}
