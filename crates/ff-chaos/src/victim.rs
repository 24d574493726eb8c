//! What is killed. The harness knows only these three verbs.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ff_testkit::postgres::Cluster;

/// What a victim prints when it serves.
pub const UP: &str = "up";

pub trait Victim {
    /// Starts it. Whether it serves already is for `wait_until_up` to find out.
    fn start(&mut self, seed: u64) -> anyhow::Result<()>;

    /// Returns once it serves.
    fn wait_until_up(&mut self, patience: Duration) -> anyhow::Result<()>;

    /// Ends it without a chance to say or save anything. That it still ran is part of the deal.
    fn kill(&mut self) -> anyhow::Result<()>;
}

/// A process that holds an engine and its clients. It ends with its input, so that it does not
/// outlive a harness that is killed itself.
pub struct ChildProcess {
    program: PathBuf,
    /// All but the seed.
    args: Vec<OsString>,
    running: Option<Running>,
}

struct Running {
    child: Child,
    first_line: mpsc::Receiver<String>,
    is_up: bool,
}

impl ChildProcess {
    pub fn new(program: PathBuf, args: Vec<OsString>) -> Self {
        Self { program, args, running: None }
    }
}

impl Victim for ChildProcess {
    fn start(&mut self, seed: u64) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).arg("--seed").arg(seed.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the victim")?;
        let output = child.stdout.take().context("the victim has no output")?;
        self.running = Some(Running { child, first_line: first_line(output), is_up: false });
        Ok(())
    }

    fn wait_until_up(&mut self, patience: Duration) -> anyhow::Result<()> {
        let running = self.running.as_mut().context("the victim was not started")?;
        if !running.is_up {
            let line = running.first_line.recv_timeout(patience);
            let line = line.context("the victim did not come up")?;
            ensure!(line.trim() == UP, "the victim said {line:?} instead of coming up");
            running.is_up = true;
        }
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        let mut running = self.running.take().context("the victim was not started")?;
        if let Some(status) = running.child.try_wait()? {
            bail!("the victim ended by itself: {status}");
        }
        running.child.kill()?;
        running.child.wait()?;
        Ok(())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

/// A server of whose data several processes live.
impl Victim for Cluster {
    fn start(&mut self, _seed: u64) -> anyhow::Result<()> {
        if self.pid().is_none() { self.restart() } else { Ok(()) }
    }

    fn wait_until_up(&mut self, _patience: Duration) -> anyhow::Result<()> {
        ensure!(self.pid().is_some(), "the server was not started");
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        Cluster::kill(self)
    }
}

/// Reads on a thread, because a pipe cannot be read with patience.
fn first_line(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, line) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = BufReader::new(output).read_line(&mut text);
        let _ = sender.send(text);
    });
    line
}
