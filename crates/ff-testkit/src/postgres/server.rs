//! One running server: its processes, from the first to the last.

use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

/// Recovery after a crash included.
const PATIENCE_TO_START: Duration = Duration::from_secs(60);
const PATIENCE_TO_STOP: Duration = Duration::from_secs(60);
const PATIENCE_TO_ABANDON: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);
const SHOWN_LINES: usize = 20;

/// Waits for the end of its input, which comes with the end of whoever holds the other end, and
/// then cleans up after it.
const WATCHDOG: &str =
    r#"read -r _; kill -QUIT "$1" && sleep 1; kill -KILL "$1"; rm -rf "$2" "$3""#;

/// Why a server did not start.
pub enum Failure {
    PortTaken(anyhow::Error),
    Other(anyhow::Error),
}

impl Failure {
    pub fn into_error(self) -> anyhow::Error {
        match self {
            Self::PortTaken(error) | Self::Other(error) => error,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

pub fn log_in(folder: &Path) -> PathBuf {
    folder.join("log")
}

pub struct Server {
    postmaster: Child,
    watchdog: Child,
}

impl Server {
    /// Starts `postgres` as our own child and returns once `ready` succeeds. The two folders are
    /// the data's and the sockets'; the log is in the first.
    pub fn start(
        mut postgres: Command,
        mut ready: Command,
        folders: [&Path; 2],
    ) -> Result<Self, Failure> {
        let log = log_in(folders[0]);
        let before = fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let file = OpenOptions::new().create(true).append(true).open(&log);
        let file = file.context("opening the server's log")?;
        let copy = file.try_clone().context("opening the server's log")?;
        postgres.stdin(Stdio::null()).stdout(file).stderr(copy);
        let postmaster = postgres.spawn().context("starting postgres")?;
        let watchdog = watch(&postmaster, folders)?;
        let mut server = Self { postmaster, watchdog };
        match server.wait_until_ready(&mut ready) {
            Ok(()) => Ok(server),
            Err(error) => {
                server.abandon();
                let said = fs::read(&log).unwrap_or_default();
                let said = String::from_utf8_lossy(said.get(before as usize..).unwrap_or_default());
                let taken = said.contains("Address already in use");
                let error = error.context(format!("PostgreSQL's log ends with\n{}", tail(&said)));
                Err(if taken { Failure::PortTaken(error) } else { Failure::Other(error) })
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.postmaster.id()
    }

    fn wait_until_ready(&mut self, ready: &mut Command) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE_TO_START;
        while !ready.status().context("starting pg_isready")?.success() {
            if let Some(status) = self.postmaster.try_wait()? {
                bail!("the server ended by itself: {status}");
            }
            if Instant::now() > deadline {
                bail!("the server accepts no connections after {PATIENCE_TO_START:?}");
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends all its processes at once, without a chance to say or save anything.
    ///
    /// Each of them is the leader of a session of its own, so no group has them all. The first one
    /// is stopped while its children are looked up, so that no more are born.
    pub fn kill(mut self) -> anyhow::Result<()> {
        end(&mut self.watchdog)?;
        let first = self.postmaster.id();
        signal("STOP", &[first])?;
        let mut all = children_of(first);
        all.push(first);
        signal("KILL", &all)?;
        self.postmaster.wait().context("waiting for the server's end")?;
        let deadline = Instant::now() + PATIENCE_TO_STOP;
        while all.iter().any(|pid| process(*pid).is_some()) {
            if Instant::now() > deadline {
                bail!("processes of the server survive being killed");
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Closes all connections, writes everything and ends.
    pub fn stop(mut self) -> anyhow::Result<()> {
        signal("INT", &[self.postmaster.id()])?;
        if self.ends_within(PATIENCE_TO_STOP)? {
            return end(&mut self.watchdog);
        }
        self.kill()?;
        Err(anyhow!("the server did not stop in {PATIENCE_TO_STOP:?} and was killed"))
    }

    /// Ends it soon and writes nothing: nobody will ask for the data again.
    pub fn abandon(mut self) {
        let asked = signal("QUIT", &[self.postmaster.id()]);
        if asked.is_ok() && self.ends_within(PATIENCE_TO_ABANDON).unwrap_or(false) {
            let _ = end(&mut self.watchdog);
        } else {
            let _ = self.kill();
        }
    }

    fn ends_within(&mut self, patience: Duration) -> anyhow::Result<bool> {
        let deadline = Instant::now() + patience;
        while self.postmaster.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
        Ok(true)
    }
}

/// Its input is held by this process alone, however that ends. It has a group of its own, because
/// an interrupt from the keyboard goes to the whole group of ours.
fn watch(postmaster: &Child, folders: [&Path; 2]) -> anyhow::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", WATCHDOG, "watchdog"]).arg(postmaster.id().to_string()).args(folders);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).current_dir("/").spawn().context("starting the watchdog")
}

fn end(child: &mut Child) -> anyhow::Result<()> {
    child.kill().and_then(|()| child.wait()).map(drop).context("ending the watchdog")
}

fn signal(name: &str, pids: &[u32]) -> anyhow::Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", r#"kill -s "$@" 2>/dev/null"#, "kill", name]);
    command.args(pids.iter().map(ToString::to_string));
    // One that has ended meanwhile is no error: what counts is checked afterwards.
    command.status().map(drop).with_context(|| format!("sending {name}"))
}

/// The children of a process. On systems without `/proc` none are found; there the server's
/// processes end by themselves soon after the first one.
fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| process(*pid).is_some_and(|process| process.parent == parent)).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
}

/// A living process. One that has ended and that nobody has asked about yet is not living.
fn process(pid: u32) -> Option<Process> {
    parse_stat(&fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat"))).ok()?)
}

/// `pid (name) state parent ...`, where the name may hold anything.
fn parse_stat(stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(Process { parent })
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read() {
        assert_eq!(parse_stat("7 (a) b) (c) S 3 7 7 0"), Some(Process { parent: 3 }));
        assert_eq!(parse_stat("7 (a) Z 3 7"), None);
        assert_eq!(parse_stat("torn"), None);
    }

    #[test]
    fn only_the_end_of_a_log_is_shown() {
        let log: Vec<String> = (0..100).map(|line| line.to_string()).collect();
        assert!(tail(&log.join("\n")).starts_with("80\n81"));
        assert_eq!(tail("a"), "a");
    }
}
