//! Running cargo, and the few things that every subcommand needs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs this program, at the root of the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    forget_this_package(&mut command);
    command
}

/// Runs cargo with its output shown; an exit code other than zero is an error.
pub fn run_cargo(args: &[&str]) -> Result<(), String> {
    run(cargo().args(args), &format!("cargo {}", args.join(" ")))
}

/// Runs a command with its output shown; an exit code other than zero is an error.
pub fn run(command: &mut Command, shown: &str) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown} failed ({status})")) }
}

/// What cargo says about xtask to xtask is no business of the cargo that it starts: the build of
/// some crates looks at it, and they would be built anew for each way of starting.
pub fn forget_this_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// Refuses arguments where none are understood.
pub fn no_arguments(args: &[String]) -> Result<(), String> {
    match args.first() {
        Some(arg) => Err(format!("unexpected argument {arg:?}")),
        None => Ok(()),
    }
}
