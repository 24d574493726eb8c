//! Every command of `docs/http.md` works.

use std::process::Command;

use crate::server::Server;

const PAGE: &str = include_str!("../../../../docs/http.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_work() {
    let server = Server::start().await;
    let blocks: Vec<&str> = PAGE.split("```sh\n").skip(1).collect();
    assert!(blocks.len() >= 6);
    let script: String = blocks.iter().map(|block| block.split("```").next().unwrap()).collect();
    let url = format!("http://{}", server.client.address);
    let token = server.client.token.clone().unwrap();
    let run = tokio::task::spawn_blocking(move || {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &script]);
        bash.env("FF_URL", url).env("FF_TOKEN", token).output().unwrap()
    });
    let output = run.await.unwrap();
    let (said, told) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{said}");
    assert!(said.contains("event: submitted") && said.contains("\"duplicate\""), "{said}");
    server.stop().await;
}

/// The page has every code and setting that the code has.
#[test]
fn the_page_is_complete() {
    for (code, status, retry, meaning) in ff_server::CODES {
        let retry = if *retry { "yes" } else { "no" };
        let row = format!("| `{code}` | {status} | {retry} | {meaning} |");
        assert!(PAGE.contains(&row), "{row}");
    }
    for shown in ff_server::Config::default().shown() {
        assert!(PAGE.contains(&format!("`{}`", shown.key)), "{}", shown.key);
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{}` |", shown.key)));
        let default = row.and_then(|row| row.split('|').nth(2)).map(str::trim).unwrap_or_default();
        let default = match default.strip_suffix(" MiB").and_then(|mib| mib.parse::<u64>().ok()) {
            Some(mib) => (mib * 1024 * 1024).to_string(),
            None => default.trim_matches('`').to_owned(),
        };
        // Some defaults are told in words.
        if !default.contains(' ') && !default.is_empty() && !shown.value.is_empty() {
            assert_eq!(default, shown.value, "{}", shown.key);
        }
    }
}
