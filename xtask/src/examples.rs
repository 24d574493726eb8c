//! The examples: each is run, and must end well and say what it promises.

use ff_testkit::postgres::{Cluster, ClusterOptions};

use crate::process::cargo;

/// The name of each example and the last line that it prints.
const EXAMPLES: &[(&str, &str)] = &[
    ("hello", "Hello, Ada!"),
    ("checkout", "charge-1 and parcel-7 after 3 attempts, charged once"),
    ("approval", "\"On leases\" is published, says Ada"),
    ("agent", "The answer after 3 thoughts: forty-two."),
    ("fanout", "quick and sure say 42"),
    ("report", "3 reports in three weeks"),
    ("transaction", "One order, one letter: Thank you."),
];

/// Runs them all. Those that need a PostgreSQL are told of one that keeps what it was given: the
/// engine takes no other unless it is told to, and an example does not say that.
pub fn check() -> Result<(), String> {
    let cluster = Cluster::start(ClusterOptions { durable: true, ..ClusterOptions::default() });
    let cluster = cluster.map_err(|error| format!("a private PostgreSQL: {error:#}"))?;
    for (name, last) in EXAMPLES {
        check_one(name, last, &cluster.url())
            .map_err(|error| format!("example {name}: {error}"))?;
        eprintln!("   {name}: {last}");
    }
    Ok(())
}

fn check_one(name: &str, last: &str, database: &str) -> Result<(), String> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "flowfabric", "--example", name]);
    command.env("DATABASE_URL", database);
    let output = command.output().map_err(|error| error.to_string())?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("it failed ({})\n{stdout}{stderr}", output.status));
    }
    match stdout.lines().next_back() {
        Some(line) if line == last => Ok(()),
        other => Err(format!("it ends with {other:?} instead of {last:?}")),
    }
}
