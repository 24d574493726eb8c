//! `cargo xtask bench <store>`: runs the benchmark in release mode. The program knows its flags.

use crate::process::run_cargo;

pub fn run(args: &[String]) -> Result<(), String> {
    if args.is_empty() {
        return Err("name a store, for example `cargo xtask bench sqlite --quick`".into());
    }
    let mut all = vec!["run", "--release", "--package", "ff-bench", "--bin", "ff-bench", "--"];
    all.extend(args.iter().map(String::as_str));
    run_cargo(&all)
}
