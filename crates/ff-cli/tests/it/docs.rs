//! Every command on the page about the command line is run.

use crate::command::Dev;

const PAGE: &str = include_str!("../../../../docs/cli.md");

#[test]
fn the_commands_of_the_page_work() {
    let dev = Dev::start();
    let scripts: Vec<&str> = PAGE
        .split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert!(scripts.len() >= 5, "the page has {} scripts", scripts.len());
    for script in scripts {
        let ran = dev.shell(script);
        assert_eq!(ran.code, 0, "{script}\n{}{}", ran.stdout, ran.stderr);
    }
}
