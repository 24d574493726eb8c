//! `cargo xtask test`: everything that must hold, in order, stopping at the first thing that does
//! not.

use std::time::Instant;

use crate::process::{no_arguments, run_cargo};
use crate::{quickstart, tidy};

type Step = (&'static str, fn() -> Result<(), String>);

const STEPS: [Step; 6] = [
    ("format", || run_cargo(&["fmt", "--all", "--check"])),
    ("clippy", || {
        run_cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
    }),
    ("tests", || run_cargo(&["test", "--workspace"])),
    ("mutants", || {
        let package = ["test", "--package", "ff-conformance", "--features", "mutants"];
        run_cargo(&[&package[..], &["--test", "mutants"]].concat())
    }),
    ("tidy", || tidy::run(&[])),
    ("quickstart", quickstart::check),
];

pub fn run(args: &[String]) -> Result<(), String> {
    no_arguments(args)?;
    let start = Instant::now();
    for (name, step) in STEPS {
        eprintln!("── {name}");
        let step_start = Instant::now();
        step().map_err(|error| format!("{name}: {error}"))?;
        eprintln!("── {name}: ok in {:.1} s", step_start.elapsed().as_secs_f64());
    }
    eprintln!("── everything holds, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
