//! `cargo xtask chaos`: runs the crash harness in release mode. The program knows its flags.

use crate::process::run_cargo;

pub fn run(args: &[String]) -> Result<(), String> {
    let mut all = vec!["run", "--release", "--package", "ff-chaos", "--", "run"];
    all.extend(args.iter().map(String::as_str));
    run_cargo(&all)
}
