//! `cargo xtask test`: everything that must hold, in order, stopping at the first thing that does
//! not.

use std::time::Instant;

use crate::postgres::{self, Server};
use crate::process::{cargo, no_arguments, run as run_command, run_cargo};
use crate::{deny, examples, quickstart, tidy};

/// The servers that tests need. They end with this value, however the steps end.
#[derive(Default)]
struct Servers {
    postgres: Option<Server>,
}

type Step = (&'static str, fn(&mut Servers) -> Result<(), String>);

const STEPS: [Step; 9] = [
    ("format", |_| run_cargo(&["fmt", "--all", "--check"])),
    ("clippy", |_| {
        run_cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
    }),
    ("dependencies", |_| deny::check()),
    ("servers", Servers::start),
    ("tests", |servers| servers.test(&["--workspace"])),
    ("mutants", |servers| {
        servers.test(&["--package", "ff-conformance", "--features", "mutants", "--test", "mutants"])
    }),
    ("tidy", |_| tidy::run(&[])),
    ("quickstart", |_| quickstart::check()),
    ("examples", |_| examples::check()),
];

impl Servers {
    fn start(&mut self) -> Result<(), String> {
        self.postgres = Some(Server::start()?);
        // Looked for once and in time, before many tests would install it at the same moment.
        ff_testkit::clock::find_or_install().map(drop).map_err(|error| format!("{error:#}"))
    }

    /// `cargo test`, told where the servers are.
    fn test(&self, args: &[&str]) -> Result<(), String> {
        let mut command = cargo();
        command.arg("test").args(args);
        if let Some(server) = &self.postgres {
            command.env(postgres::URL, &server.url);
        }
        run_command(&mut command, &format!("cargo test {}", args.join(" ")))
    }
}

pub fn run(args: &[String]) -> Result<(), String> {
    no_arguments(args)?;
    let start = Instant::now();
    let mut servers = Servers::default();
    for (name, step) in STEPS {
        eprintln!("── {name}");
        let step_start = Instant::now();
        step(&mut servers).map_err(|error| format!("{name}: {error}"))?;
        eprintln!("── {name}: ok in {:.1} s", step_start.elapsed().as_secs_f64());
    }
    eprintln!("── everything holds, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
