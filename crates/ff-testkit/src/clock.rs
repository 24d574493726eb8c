//! A wall clock that a test sets while a real process runs, by libfaketime.
//!
//! ```no_run
//! let clock = ff_testkit::clock::WallClock::new()?;
//! let mut command = std::process::Command::new("date");
//! clock.preload(&mut command);
//! clock.set_offset(-90)?;
//! # anyhow::Ok(())
//! ```
//!
//! Only the wall clock is set: sleeps and time-outs count real seconds.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::packages;

const PACKAGE: &str = "libfaketime";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// Debian has a folder for each architecture below the first one.
const FOLDERS: [&str; 3] = ["/usr/lib", "/usr/lib64", "/usr/local/lib"];
const MISSING: &str = "libfaketime is needed, for tests with clocks that are set, and \
    faketime/libfaketimeMT.so.1 was found neither in /usr/lib, /usr/lib64, /usr/local/lib nor in a \
    folder of the first. Install the package `libfaketime` (Debian, Ubuntu: `apt-get install \
    libfaketime`; Fedora too)";
/// Where the library keeps what the processes of one program share.
const SHARED: &str = "/dev/shm";

/// The wall clock of the processes that were started with it.
pub struct WallClock {
    library: PathBuf,
    /// Has the file with the offset, and lets every account read it.
    folder: TempDir,
}

impl WallClock {
    /// A clock that is right, until it is set.
    pub fn new() -> anyhow::Result<Self> {
        let library = find_or_install()?;
        let folder = tempfile::Builder::new().prefix("ff-clock-").tempdir();
        let folder = folder.context("a folder for the clock's offset")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let clock = Self { library, folder };
        clock.set_offset(0)?;
        Ok(clock)
    }

    /// Lets a program and its children read this clock.
    pub fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("FAKETIME_TIMESTAMP_FILE", self.file());
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Sets it so many seconds before (negative) or after the machine's clock.
    pub fn set_offset(&self, seconds: i64) -> anyhow::Result<()> {
        // Replaced as a whole, because processes read it all the time.
        let next = self.folder.path().join("next");
        fs::write(&next, format!("{seconds:+}s\n")).context("writing the clock's offset")?;
        fs::set_permissions(&next, fs::Permissions::from_mode(0o644))?;
        fs::rename(&next, self.file()).context("writing the clock's offset")
    }

    /// Removes what the library leaves behind of a program that was killed.
    pub fn clean_up(&self, pid: u32) {
        for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
            // It is not there if the program has ended by itself.
            let _ = fs::remove_file(Path::new(SHARED).join(name));
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }
}

/// Makes sure that the library is there; what installs it names the package.
pub fn find_or_install() -> anyhow::Result<PathBuf> {
    if let Some(found) = find(&FOLDERS.map(Path::new)) {
        return Ok(found);
    }
    if !packages::can_install()? {
        bail!(MISSING);
    }
    packages::install(PACKAGE).context(MISSING)?;
    find(&FOLDERS.map(Path::new)).context(MISSING)
}

fn find(folders: &[&Path]) -> Option<PathBuf> {
    let below = fs::read_dir(folders.first()?).into_iter().flatten().filter_map(Result::ok);
    let below = below.map(|entry| entry.path());
    let all = folders.iter().map(|folder| folder.to_path_buf()).chain(below);
    all.map(|folder| folder.join(LIBRARY)).find(|library| library.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_below_an_architecture() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(find(&[root.path()]), None);
        let library = root.path().join("some-linux-gnu").join(LIBRARY);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::write(&library, "").unwrap();
        assert_eq!(find(&[root.path()]), Some(library));
    }

    #[test]
    fn a_running_program_sees_each_step() {
        let clock = WallClock::new().unwrap();
        let seconds = || {
            let mut date = Command::new("date");
            clock.preload(&mut date);
            let output = date.arg("+%s").output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse::<i64>().unwrap()
        };
        let right = seconds();
        clock.set_offset(-9_000).unwrap();
        assert!(seconds() < right - 8_000);
        clock.set_offset(9_000).unwrap();
        assert!(seconds() >= right + 9_000);
    }
}
