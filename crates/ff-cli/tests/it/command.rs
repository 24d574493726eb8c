//! Runs the built command, and a server of its own for it to talk to.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flowfabric");

pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Without whatever the caller's environment says about servers and settings.
pub fn command(args: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FF_")) {
        command.env_remove(name);
    }
    command.args(args).envs(environment.iter().copied()).stdin(Stdio::null());
    command
}

pub fn run(args: &[&str], environment: &[(&str, &str)]) -> Ran {
    ran(&mut command(args, environment))
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("the command runs");
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
    folder: tempfile::TempDir,
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
        Self { child, url, token, folder }
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_as(&self.token, args)
    }

    /// A command that would ask this server.
    pub fn command(&self, args: &[&str]) -> Command {
        command(args, &[("FF_URL", &self.url), ("FF_TOKEN", &self.token)])
    }

    /// What only workers say, and no command does.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        // Whoever came first has installed the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let request = reqwest::Client::new().post(format!("{}{path}", self.url));
            let sent = request.bearer_auth(&self.token).json(body).send().await;
            let answer = sent.expect("an answer");
            assert!(answer.status().is_success(), "{path}: {}", answer.status());
            answer.json().await.expect("JSON")
        })
    }

    /// Where its store is.
    pub fn database(&self) -> std::path::PathBuf {
        self.folder.path().join(".flowfabric/flowfabric.db")
    }

    /// Runs a script in which `flowfabric` is the built command, in an empty folder.
    pub fn shell(&self, script: &str) -> Ran {
        let folder = tempfile::tempdir().expect("a folder");
        let bin = Path::new(PROGRAM).parent().expect("a folder").display().to_string();
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FF_")) {
            shell.env_remove(name);
        }
        let environment = [("PATH", &path), ("FF_URL", &self.url), ("FF_TOKEN", &self.token)];
        shell.args(["-euc", script]).envs(environment).current_dir(folder.path());
        ran(shell.stdin(Stdio::null()))
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
