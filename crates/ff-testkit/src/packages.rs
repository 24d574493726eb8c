//! Installs packages of the distribution that the tests need and the machine lacks.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Whether packages can be installed here: only root may, and only where there is apt.
pub(crate) fn can_install() -> anyhow::Result<bool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(is_root()? && in_path(&path, "apt-get").is_some())
}

pub(crate) fn install(package: &str) -> anyhow::Result<()> {
    eprintln!("installing the distribution's package `{package}`, which is missing");
    apt_get(&["update"])?;
    apt_get(&["install", "--yes", "--no-install-recommends", package])
}

pub(crate) fn in_path(path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

pub(crate) fn is_root() -> anyhow::Result<bool> {
    let output = Command::new("id").arg("-u").output().context("running `id -u`")?;
    ensure!(output.status.success(), "`id -u` failed: {}", output.status);
    Ok(output.stdout.trim_ascii() == b"0")
}

fn apt_get(args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-qq", "-o", "DPkg::Lock::Timeout=300"]);
    let output = command.args(args).output().context("starting apt-get")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "apt-get {} failed: {said}", args.join(" "));
    Ok(())
}
