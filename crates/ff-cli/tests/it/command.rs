//! Runs the built command, and a server of its own for it to talk to.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_flowfabric");

pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Without whatever the caller's environment says about servers and settings.
fn command(args: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FF_")) {
        command.env_remove(name);
    }
    command.args(args).envs(environment.iter().copied()).stdin(Stdio::null());
    command
}

pub fn run(args: &[&str], environment: &[(&str, &str)]) -> Ran {
    let output = command(args, environment).output().expect("the command runs");
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// `flowfabric dev` in a folder of its own, on a free port.
pub struct Dev {
    child: Child,
    url: String,
    token: String,
    _folder: tempfile::TempDir,
}

impl Dev {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = command(&["dev", "--listen", "127.0.0.1:0"], &[])
            .current_dir(folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut lines = BufReader::new(child.stderr.take().expect("its stderr")).lines();
        let word = |line: &str, name: &str| {
            let words = line.split_whitespace();
            words.filter_map(|word| word.strip_prefix(name)).next().map(str::to_owned)
        };
        let (url, token) = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some((word(&line, "FF_URL=")?, word(&line, "FF_TOKEN=")?)))
            .expect("it says where it is");
        // Somebody must go on reading, or it would stop when the pipe is full.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url, token, _folder: folder }
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_as(&self.token, args)
    }

    pub fn run_as(&self, token: &str, args: &[&str]) -> Ran {
        run(args, &[("FF_URL", &self.url), ("FF_TOKEN", token)])
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
