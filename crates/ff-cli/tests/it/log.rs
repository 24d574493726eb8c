//! What a server says of itself while it runs, and that it says no secrets.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command;

const TOKEN: &str = "ff_canary-token-0123456789abcdef0123456789";

#[test]
fn a_server_logs_json_without_secrets_and_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("a plain path");
    let mut child = command::command(
        &["serve", "--listen", "127.0.0.1:0", "--data", data],
        &[("FF_ROOT_TOKEN", TOKEN), ("FF_LOG", "debug")],
    )
    .stderr(Stdio::piped())
    .spawn()
    .expect("the command runs");
    let mut stderr = BufReader::new(child.stderr.take().expect("its stderr"));
    let mut log = String::new();
    let address = loop {
        let mut line = String::new();
        assert!(stderr.read_line(&mut line).expect("a line") > 0, "it ended: {log}");
        if let Some(rest) = line.strip_prefix("listening on ") {
            break rest.split(';').next().unwrap_or_default().to_owned();
        }
        log += &line;
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

    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(told.expect("kill runs").success());
    assert!(child.wait().expect("it ends").success(), "it drains and ends well");
    stderr.read_to_string(&mut log).expect("the rest");
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    assert!(lines.iter().any(|line| line["message"] == "listening" && line["level"] == "INFO"));
    assert!(lines.iter().any(|line| line["route"] == "submit"), "requests are told: {log}");
    assert!(!log.contains("canary"), "{log}");
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
    let mut child = command::command(&args, &[("FF_ROOT_TOKEN", TOKEN)])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut stderr = BufReader::new(child.stderr.take().expect("its stderr"));
    let mut read_until = |mark: &str| {
        let mut log = String::new();
        while !log.contains(mark) {
            let read = stderr.read_line(&mut log).expect("a line");
            assert!(read > 0, "it ended: {log}");
        }
        log
    };
    let listening = read_until("listening on ");
    let address = listening.split("listening on ").nth(1).and_then(|rest| rest.split(';').next());
    let url = format!("http://{}", address.expect("an address"));
    let send = |signal: &str| {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
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
    assert!(child.wait().expect("it ends").success());
}
