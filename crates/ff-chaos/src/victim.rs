//! What is killed. The harness knows only these three verbs.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

/// What a victim prints when it serves.
pub const UP: &str = "up";

pub trait Victim {
    /// Starts it and returns at once.
    fn start(&mut self, seed: u64) -> anyhow::Result<()>;

    /// Returns once it serves.
    fn wait_until_up(&mut self, patience: Duration) -> anyhow::Result<()>;

    /// Ends it without a chance to say or save anything. That it still ran is part of the deal.
    fn kill(&mut self) -> anyhow::Result<()>;
}

/// A process that holds the engine, its file and all its clients. It ends with its input, so that
/// it does not outlive a harness that is killed itself.
pub struct EmbeddedProcess {
    pub program: PathBuf,
    pub db: PathBuf,
    pub log: PathBuf,
    running: Option<Running>,
}

struct Running {
    child: Child,
    first_line: mpsc::Receiver<String>,
}

impl EmbeddedProcess {
    pub fn new(program: PathBuf, db: PathBuf, log: PathBuf) -> Self {
        Self { program, db, log, running: None }
    }
}

impl Victim for EmbeddedProcess {
    fn start(&mut self, seed: u64) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("child").arg("--db").arg(&self.db).arg("--log").arg(&self.log);
        command.arg("--seed").arg(seed.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the victim")?;
        let output = child.stdout.take().context("the victim has no output")?;
        self.running = Some(Running { child, first_line: first_line(output) });
        Ok(())
    }

    fn wait_until_up(&mut self, patience: Duration) -> anyhow::Result<()> {
        let running = self.running.as_mut().context("the victim was not started")?;
        let line = running.first_line.recv_timeout(patience);
        let line = line.context("the victim did not come up")?;
        ensure!(line.trim() == UP, "the victim said {line:?} instead of coming up");
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

impl Drop for EmbeddedProcess {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
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
