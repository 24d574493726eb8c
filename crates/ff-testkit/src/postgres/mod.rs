//! A private PostgreSQL: its own folder, port and socket, and nothing of it left afterwards.
//!
//! ```no_run
//! use ff_testkit::postgres::{Cluster, ClusterOptions};
//! let mut cluster = Cluster::start(ClusterOptions::default())?;
//! let url = cluster.database("orders")?;
//! cluster.kill()?;
//! cluster.restart()?;
//! # anyhow::Ok(())
//! ```
//!
//! A cluster ends when it is dropped. When the process that started it is killed, a small shell
//! notices and does the same.

mod account;
mod binaries;
mod restore;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use account::Account;
use binaries::Binaries;
use server::{Failure, Server};

use crate::clock::WallClock;
use crate::packages;

/// Ports that somebody else may take before the server does are tried this often.
const PORTS_TRIED: usize = 10;

/// Below the range from which the system takes ports for outgoing connections. A client that tries
/// to reach a stopped server on a port inside that range may be given the very port as its own.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// Whether commits survive a crash of the machine. Without it everything is much faster.
    pub durable: bool,
    /// Settings of the server; they win over those that are chosen here.
    pub settings: Vec<(String, String)>,
    /// Whether the write-ahead log is archived, which a point-in-time restore needs.
    pub archive: bool,
    /// Whether the server has a clock of its own, which [`Cluster::clock`] sets.
    pub own_clock: bool,
    /// Where the temporary folder is made, for those who care about the disk.
    pub folder: Option<PathBuf>,
}

pub struct Cluster {
    binaries: Binaries,
    account: Option<Account>,
    settings: Vec<(String, String)>,
    port: u16,
    server: Option<Server>,
    clock: Option<WallClock>,
    folder: TempDir,
    /// Apart and short, because the path of a socket may have about a hundred bytes.
    sockets: TempDir,
}

impl Cluster {
    /// Makes a cluster and returns once it accepts connections.
    pub fn start(options: ClusterOptions) -> anyhow::Result<Self> {
        let binaries = binaries::find_or_install()?;
        // PostgreSQL refuses to run as root.
        let account = if packages::is_root()? { Some(account::unprivileged()?) } else { None };
        let parent = options.folder.unwrap_or_else(std::env::temp_dir);
        fs::create_dir_all(&parent).with_context(|| format!("making {}", parent.display()))?;
        let folder = temporary(&parent.canonicalize()?, account)?;
        let sockets = temporary(&std::env::temp_dir(), account)?;
        let settings = chosen(options.durable, sockets.path());
        let clock = if options.own_clock { Some(WallClock::new()?) } else { None };
        let mut cluster =
            Self { binaries, account, settings, port: 0, server: None, clock, folder, sockets };
        if options.archive {
            cluster.settings.extend(cluster.archiving()?);
        }
        cluster.settings.extend(options.settings);
        cluster.initialise()?;
        cluster.start_on_some_port()?;
        Ok(cluster)
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The same database through the Unix socket.
    pub fn socket_url(&self) -> String {
        let host = encoded(&self.sockets.path().to_string_lossy());
        format!("postgres://postgres@{host}:{}/postgres", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A program that came with the server, for example `pgbench`.
    pub fn bin(&self, name: &str) -> PathBuf {
        self.binaries.path(name)
    }

    /// What the server has said so far.
    pub fn log(&self) -> PathBuf {
        server::log_in(self.folder.path())
    }

    /// The process id of the server's first process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// The server's own clock, if it was started with one.
    pub fn clock(&self) -> Option<&WallClock> {
        self.clock.as_ref()
    }

    /// Makes a database and returns its URL.
    pub fn database(&self, name: &str) -> anyhow::Result<String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        ensure!(!name.is_empty() && name.chars().all(plain), "{name:?} is not a plain name");
        self.psql(&self.url(), &format!("CREATE DATABASE \"{name}\""))?;
        Ok(self.url_of(name))
    }

    /// Runs SQL and returns what it printed: rows as lines, columns separated by `|`.
    pub fn psql(&self, url: &str, sql: &str) -> anyhow::Result<String> {
        let mut command = Command::new(self.bin("psql"));
        command.args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet"]);
        command.args(["--set", "ON_ERROR_STOP=1", "--command", sql, url]);
        let output = command.stdin(Stdio::null()).output().context("starting psql")?;
        let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        ensure!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(text)
    }

    /// Ends every process of the server at once, as a crash of its machine would.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.server.take().context("the server does not run")?.kill()
    }

    /// Starts a server that was killed or stopped, on the same data and port, and returns once it
    /// has recovered and accepts connections.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        ensure!(self.server.is_none(), "the server still runs");
        self.launch().map_err(Failure::into_error)
    }

    /// Ends the server in order: connections are closed, everything is written.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.server.take().context("the server does not run")?.stop()
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn initialise(&self) -> anyhow::Result<()> {
        let mut command = self.command("initdb");
        command.arg("--pgdata").arg(self.data());
        command.args(["--username=postgres", "--auth=trust", "--no-sync", "--no-instructions"]);
        command.args(["--encoding=UTF8", "--locale=C"]);
        let output = command.stdin(Stdio::null()).output().context("starting initdb")?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match closed_ancestor(self.folder.path()).filter(|_| self.account.is_some()) {
            Some(closed) => bail!("{said}others may not enter {}", closed.display()),
            None => bail!("initdb failed: {said}"),
        }
    }

    fn start_on_some_port(&mut self) -> anyhow::Result<()> {
        let mut last = None;
        for _ in 0..PORTS_TRIED {
            self.port = free_port()?;
            match self.launch() {
                Ok(()) => return Ok(()),
                Err(Failure::PortTaken(error)) => last = Some(error),
                Err(other) => return Err(other.into_error()),
            }
        }
        Err(last.context("no port was tried")?)
    }

    fn launch(&mut self) -> Result<(), Failure> {
        let mut command = self.command("postgres");
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        command.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let mut ready = Command::new(self.bin("pg_isready"));
        // The socket is ours alone, whoever may listen on the port.
        ready.arg("--quiet").arg("--host").arg(self.sockets.path());
        ready.arg("--port").arg(self.port.to_string());
        let folders = [self.folder.path(), self.sockets.path()];
        self.server = Some(Server::start(command, ready, folders)?);
        Ok(())
    }

    /// One of the server's programs, to be run as the account that owns its files.
    fn command(&self, name: &str) -> Command {
        self.as_account(Command::new(self.bin(name)))
    }

    fn as_account(&self, mut command: Command) -> Command {
        command.env("LC_ALL", "C").current_dir(self.folder.path());
        if let Some(account) = self.account {
            account.run(&mut command);
        }
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let pid = server.pid();
            server.abandon();
            if let Some(clock) = &self.clock {
                clock.clean_up(pid);
            }
        }
    }
}

fn chosen(durable: bool, sockets: &Path) -> Vec<(String, String)> {
    let durability = if durable { "on" } else { "off" };
    let sockets = sockets.to_string_lossy();
    let settings = [
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", &*sockets),
        ("max_connections", "200"),
        ("shared_buffers", "256MB"),
        // In files below the data, so that a kill leaves nothing in the system.
        ("dynamic_shared_memory_type", "mmap"),
        ("fsync", durability),
        ("synchronous_commit", durability),
        ("full_page_writes", durability),
    ];
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// A folder that the server's account owns.
fn temporary(parent: &Path, account: Option<Account>) -> anyhow::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("ff-postgres-").tempdir_in(parent);
    let folder = folder.with_context(|| format!("a folder in {}", parent.display()))?;
    if let Some(account) = account {
        account.own(folder.path())?;
    }
    Ok(folder)
}

/// A folder on the way that only its owner may pass.
fn closed_ancestor(folder: &Path) -> Option<&Path> {
    use std::os::unix::fs::PermissionsExt as _;
    let closed = |path: &&Path| {
        fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 == 0)
    };
    folder.ancestors().skip(1).find(closed)
}

fn free_port() -> anyhow::Result<u16> {
    for _ in 0..1_000 {
        let port = fastrand::u16(PORTS);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {PORTS:?} is free")
}

/// Text as it may stand for the host in a URL.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_folder_becomes_a_host() {
        assert_eq!(encoded("/tmp/ff-A b.1"), "%2Ftmp%2Fff-A%20b.1");
    }

    #[test]
    fn durability_is_all_or_nothing() {
        for (durable, value) in [(true, "on"), (false, "off")] {
            let settings = chosen(durable, Path::new("/tmp"));
            for name in ["fsync", "synchronous_commit", "full_page_writes"] {
                assert!(settings.contains(&(name.to_owned(), value.to_owned())), "{name}");
            }
        }
    }

    #[test]
    fn ports_are_free_and_not_the_systems() {
        let port = free_port().unwrap();
        assert!(PORTS.contains(&port));
    }
}
