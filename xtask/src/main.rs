//! `cargo xtask`: all automation of this project, one file per subcommand.

mod bench;
mod chaos;
mod deny;
mod docs;
mod examples;
mod postgres;
mod process;
mod quickstart;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <command>

  test                 everything: format, lints, dependencies, tests, mutants, tidy, the examples
  deny                 licences, bans, sources and advisories of the dependencies (deny.toml)
  tidy                 the style of the tree, as a test
  docs [--check]       writes docs/errors.md and docs/operations.md, or checks them
  quickstart           the quickstart, killed half-way, finished, and run once more
  examples             every example, with a private PostgreSQL for those that need one
  bench <store> [...]  measures a store; its flags are passed on
  chaos [store] [...]  kills processes under load again and again; arguments are passed on
  postgres <command>   runs a command with a private PostgreSQL, which FF_PG_TEST_URL names:
                       cargo xtask postgres cargo test -p ff-backend-postgres
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match command {
        "test" => test::run(rest),
        "deny" => process::no_arguments(rest).and_then(|()| deny::check()),
        "tidy" => tidy::run(rest),
        "docs" => docs::run(rest),
        "quickstart" => process::no_arguments(rest).and_then(|()| quickstart::check()),
        "examples" => process::no_arguments(rest).and_then(|()| examples::check()),
        "bench" => bench::run(rest),
        "chaos" => chaos::run(rest),
        "postgres" => postgres::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("there is no command {other:?}\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
