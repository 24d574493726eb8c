//! The quickstart example, killed half-way, run to the end, and run once more.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::cargo;

const EXECUTIONS: u64 = 10_000;
/// Early enough that the kill never comes after the end.
const KILL_AT: u64 = EXECUTIONS * 4 / 10;

pub fn check() -> Result<(), String> {
    let program = build()?;
    let folder = std::env::temp_dir().join(format!("flowfabric-quickstart-{}", std::process::id()));
    let outcome = kill_and_finish(&program, &folder);
    // What is left behind helps to understand a failure.
    if outcome.is_ok() {
        std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    }
    outcome.map_err(|error| format!("{error} (data in {})", folder.display()))
}

fn kill_and_finish(program: &Path, folder: &Path) -> Result<(), String> {
    let killed_at = run_and_kill(program, folder)?;
    let second = run(program, folder)?;
    let before = finished_before(&second)
        .ok_or_else(|| format!("the second run does not say what was finished:\n{second}"))?;
    if !(killed_at..EXECUTIONS).contains(&before) {
        return Err(format!("{killed_at} were acknowledged, {before} survived the kill"));
    }
    expect(&second, &format!("All {EXECUTIONS} executions are finished."))?;
    let third = run(program, folder)?;
    expect(&third, &format!("Nothing left to do: all {EXECUTIONS} executions are finished."))?;
    eprintln!("   killed at {killed_at} of {EXECUTIONS}; the next run finished the rest");
    Ok(())
}

/// Builds the example and returns its path, which cargo tells in its messages.
fn build() -> Result<PathBuf, String> {
    let args = ["build", "--package", "flowfabric", "--example", "quickstart"];
    let output = cargo()
        .args(args)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let program = messages.lines().filter_map(executable).next_back();
    program.filter(|_| output.status.success()).ok_or_else(|| "the build failed".into())
}

fn executable(message: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once("\"executable\":\"")?;
    let (path, _) = rest.split_once('"')?;
    Some(PathBuf::from(path))
}

fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(folder).arg("--executions").arg(EXECUTIONS.to_string());
    command
}

/// Kills the program, without warning, once it says that enough is finished. Returns how many were
/// acknowledged by then.
fn run_and_kill(program: &Path, folder: &Path) -> Result<u64, String> {
    let mut child = command(program, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let stderr = child.stderr.take().ok_or("no stderr")?;
    let mut finished = 0;
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        finished = line.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(finished);
        if finished >= KILL_AT {
            break;
        }
    }
    child.kill().map_err(|error| error.to_string())?;
    child.wait().map_err(|error| error.to_string())?;
    if finished < KILL_AT {
        return Err("the first run ended before it could be killed".into());
    }
    Ok(finished)
}

fn run(program: &Path, folder: &Path) -> Result<String, String> {
    let output = command(program, folder).output().map_err(|error| error.to_string())?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("the example failed ({})\n{stdout}{stderr}", output.status))
}

fn finished_before(output: &str) -> Option<u64> {
    let line = output.lines().find(|line| line.ends_with("were finished before this run."))?;
    line.split(' ').next()?.parse().ok()
}

fn expect(output: &str, line: &str) -> Result<(), String> {
    match output.lines().any(|found| found == line) {
        true => Ok(()),
        false => Err(format!("the example does not say {line:?}:\n{output}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_example_says_is_understood() {
        let output = "Opened x.\n7 of 9 executions were finished before this run.\n";
        assert_eq!(finished_before(output), Some(7));
        assert_eq!(finished_before("Opened x.\n"), None);
        assert!(expect(output, "Opened x.").is_ok());
        assert!(expect(output, "Opened").is_err());
    }

    #[test]
    fn the_path_comes_from_cargo() {
        let message = r#"{"reason":"compiler-artifact","executable":"/t/quickstart","fresh":true}"#;
        assert_eq!(executable(message), Some(PathBuf::from("/t/quickstart")));
        assert_eq!(executable(r#"{"executable":null}"#), None);
    }
}
