//! `ff-bench sqlite|postgres [--quick] [--check] [--only PART] [--json PATH]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ff_bench::run(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("ff-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}
