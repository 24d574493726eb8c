//! `cargo xtask chaos [postgres | http | large | mutants]`: runs the crash harness in release mode,
//! on SQLite unless told otherwise. The program knows its flags. `mutants` builds known bugs in,
//! one after the other, and wants each of them found.

use crate::process::run_cargo;

pub fn run(args: &[String]) -> Result<(), String> {
    if args.first().is_some_and(|word| word == "mutants") {
        return run_cargo(&[
            "test",
            "--release",
            "--package",
            "ff-chaos",
            "--features",
            "mutants",
            "--test",
            "mutants",
            "--",
            "--nocapture",
        ]);
    }
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
