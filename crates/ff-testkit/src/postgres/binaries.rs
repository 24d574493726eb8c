//! Where the programs of PostgreSQL are, and how they come to a machine that has none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::packages::{self, in_path};

/// Debian and its kin keep each version in a folder of its own and out of the search path.
const VERSIONS: &str = "/usr/lib/postgresql";
const NEEDED: [&str; 4] = ["initdb", "postgres", "psql", "pg_isready"];

/// With this file in place the package installs the programs and starts no server of its own.
const NO_SERVER: (&str, &str) = (
    "/etc/postgresql-common/createcluster.d/no-server-of-its-own.conf",
    "create_main_cluster = false\n",
);

const MISSING: &str = "PostgreSQL's server programs (initdb, postgres, psql, pg_isready) are \
    needed and were found neither in the search path, nor in /usr/lib/postgresql/*/bin, nor where \
    pg_config points. Install the package `postgresql` (Debian, Ubuntu: `apt-get install \
    postgresql`), `postgresql-server` (Fedora) or `postgresql` (Homebrew)";

/// The folder that has all programs of one version.
#[derive(Debug)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

pub fn find_or_install() -> anyhow::Result<Binaries> {
    if let Some(found) = find() {
        return Ok(found);
    }
    if !packages::can_install()? {
        bail!(MISSING);
    }
    install().context(MISSING)?;
    find().context(MISSING)
}

fn find() -> Option<Binaries> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // What is in the search path is often a link to the folder where the rest is.
    let linked = in_path(&path, "initdb").and_then(|program| program.canonicalize().ok());
    let linked = linked.and_then(|program| Some(program.parent()?.to_owned()));
    let candidates = [linked, newest(Path::new(VERSIONS)), configured()];
    let folder = candidates.into_iter().flatten().find(|folder| is_complete(folder))?;
    Some(Binaries { folder })
}

fn is_complete(folder: &Path) -> bool {
    NEEDED.iter().all(|name| folder.join(name).is_file())
}

/// The complete installation with the highest version.
fn newest(versions: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(versions).ok()?.filter_map(Result::ok);
    let folders = entries.map(|entry| entry.path().join("bin")).filter(|bin| is_complete(bin));
    folders.max_by_key(|bin| bin.parent().map(version))
}

/// A folder's name as numbers, so that 9.6 comes before 15.
fn version(folder: &Path) -> Vec<u32> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').map_while(|part| part.parse().ok()).collect()
}

fn configured() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}

fn install() -> anyhow::Result<()> {
    let (path, text) = (Path::new(NO_SERVER.0), NO_SERVER.1);
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    packages::install("postgresql")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(folder: &Path, programs: &[&str]) {
        fs::create_dir_all(folder).unwrap();
        for program in programs {
            fs::write(folder.join(program), "").unwrap();
        }
    }

    #[test]
    fn the_newest_complete_version_is_taken() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(newest(root.path()), None);
        assert_eq!(newest(&root.path().join("absent")), None);
        for name in ["9.6", "15", "8"] {
            installation(&root.path().join(name).join("bin"), &NEEDED);
        }
        // Only the client programs.
        installation(&root.path().join("17").join("bin"), &["psql", "pg_isready"]);
        assert_eq!(newest(root.path()), Some(root.path().join("15/bin")));
    }

    #[test]
    fn programs_are_found_in_the_search_path() {
        let root = tempfile::tempdir().unwrap();
        let (empty, full) = (root.path().join("a"), root.path().join("b"));
        installation(&empty, &[]);
        installation(&full, &["initdb"]);
        let path = std::env::join_paths([&empty, &full]).unwrap();
        assert_eq!(in_path(&path, "initdb"), Some(full.join("initdb")));
        assert_eq!(in_path(&path, "postgres"), None);
    }

    #[test]
    fn versions_are_numbers() {
        let of = |name: &str| version(Path::new(name));
        assert!(of("/x/15") > of("/x/9.6") && of("/x/9.6") > of("/x/9.5"));
        assert!(of("/x/devel") < of("/x/8"));
    }
}
