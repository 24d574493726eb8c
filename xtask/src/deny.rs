//! `cargo xtask deny`: licences, bans, sources and advisories of the dependencies, as `deny.toml`
//! has them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{cargo, forget_this_package, root, run};

const VERSION: &str = "0.20.2";

/// A host that drops packets must not keep the tests waiting.
const FETCH_PATIENCE: Duration = Duration::from_secs(60);

/// For each check a configuration that it must refuse: one that refuses nothing checks nothing.
const SAMPLES: [(&str, &str); 4] = [
    ("licenses", "[licenses]\nallow = [\"Zlib\"]\n"),
    ("bans", "[bans]\ndeny = [{ crate = \"tokio\" }]\n"),
    ("bans", "[bans]\nmultiple-versions = \"deny\"\n"),
    ("sources", "[sources]\nunknown-registry = \"deny\"\nallow-registry = []\n"),
];

pub fn check() -> Result<(), String> {
    let tool = tool()?;
    // The lock file stays as it is; crates that are missing here are downloaded.
    let shown = "cargo deny check licenses bans sources";
    run(deny(&tool).args(["check", "licenses", "bans", "sources"]), shown)?;
    refuses_samples(&tool)?;
    advisories(&tool)
}

/// cargo-deny: the one on the path if it has the version that is asked for, or one that is built
/// under `target/` once. Without optimization that takes 46 seconds of processor time.
fn tool() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| root().join(dir));
    let tools = target.join("tools");
    let built = tools.join("bin/cargo-deny");
    if let Some(found) = [Path::new("cargo-deny"), &built].into_iter().find(|path| is_current(path))
    {
        return Ok(found.to_path_buf());
    }
    let mut install = cargo();
    install.args(["install", "cargo-deny", "--version", VERSION, "--locked", "--debug", "--root"]);
    run(install.arg(&tools), "cargo install cargo-deny")?;
    Ok(built)
}

fn is_current(tool: &Path) -> bool {
    let output = Command::new(tool).arg("--version").stderr(Stdio::null()).output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).trim() == format!("cargo-deny {VERSION}")
    })
}

fn deny(tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(root()).args(["--locked", "--log-level", "warn"]);
    forget_this_package(&mut command);
    command
}

fn refuses_samples(tool: &Path) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("ff-deny-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let outcome = SAMPLES.iter().try_for_each(|(check, text)| refuses(tool, &folder, check, text));
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn refuses(tool: &Path, folder: &Path, check: &str, text: &str) -> Result<(), String> {
    let config = folder.join("deny.toml");
    std::fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
    let mut command = deny(tool);
    command.arg("--config").arg(&config).args(["check", "--hide-inclusion-graph", check]);
    let output = command.output().map_err(|error| format!("cargo deny check {check}: {error}"))?;
    let told = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() && told.contains(&format!("{check} FAILED")) {
        return Ok(());
    }
    Err(format!("cargo deny check {check} must refuse this and has not:\n{text}\n{told}"))
}

/// Checks against the advisory database where there is one, fetched now or earlier.
fn advisories(tool: &Path) -> Result<(), String> {
    let fetched = fetch(tool);
    if fetched.is_err() && !has_database() {
        let why = fetched.err().unwrap_or_default();
        eprintln!("WARNING: KNOWN VULNERABILITIES WERE NOT LOOKED FOR.");
        eprintln!("WARNING: the advisory database is not here and cannot be fetched: {why}");
        eprintln!("WARNING: with a network, `cargo xtask deny` fetches it and checks against it.");
        return Ok(());
    }
    let shown = "cargo deny check advisories";
    run(deny(tool).args(["check", "--disable-fetch", "advisories"]), shown)
}

fn fetch(tool: &Path) -> Result<(), String> {
    let mut command = deny(tool);
    command.args(["fetch", "db"]).stdout(Stdio::null()).stderr(Stdio::null());
    // Git is never to ask for a name and a password.
    command.env("GIT_TERMINAL_PROMPT", "0");
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let start = Instant::now();
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("cargo deny fetch failed ({status})")),
            None if start.elapsed() > FETCH_PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", FETCH_PATIENCE.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Whether a database was fetched earlier, to where cargo-deny keeps it.
fn has_database() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let folders = home.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok());
    folders.is_some_and(|folders| {
        folders.flatten().any(|folder| folder.path().join("crates").is_dir())
    })
}
