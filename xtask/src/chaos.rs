//! `cargo xtask chaos [postgres | http | large]`: runs the crash harness in release mode, on SQLite
//! unless told otherwise. The program knows its flags.

use crate::process::run_cargo;

pub fn run(args: &[String]) -> Result<(), String> {
    let (command, flags) = match args.split_first() {
        Some((store, flags)) if store == "postgres" => ("postgres", flags),
        Some((way, flags)) if way == "http" => ("http", flags),
        Some((way, flags)) if way == "large" => ("large", flags),
        Some((store, flags)) if store == "sqlite" => ("run", flags),
        _ => ("run", args),
    };
    let mut all = vec!["run", "--release", "--package", "ff-chaos", "--", command];
    all.extend(flags.iter().map(String::as_str));
    run_cargo(&all)
}
