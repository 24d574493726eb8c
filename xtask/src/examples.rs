//! The examples: each is run, and must end well and say what it promises.

use crate::process::cargo;

/// The name of each example and the last line that it prints.
const EXAMPLES: &[(&str, &str)] = &[
    ("hello", "Hello, Ada!"),
    ("checkout", "charge-1 and parcel-7 after 3 attempts, charged once"),
    ("approval", "\"On leases\" is published, says Ada"),
    ("agent", "The answer after 3 thoughts: forty-two."),
];

pub fn check() -> Result<(), String> {
    for (name, last) in EXAMPLES {
        check_one(name, last).map_err(|error| format!("example {name}: {error}"))?;
        eprintln!("   {name}: {last}");
    }
    Ok(())
}

fn check_one(name: &str, last: &str) -> Result<(), String> {
    let args = ["run", "--quiet", "--package", "flowfabric", "--example", name];
    let output = cargo().args(args).output().map_err(|error| error.to_string())?;
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
