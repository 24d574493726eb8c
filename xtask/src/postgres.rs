//! `cargo xtask postgres <command>`: runs a command with a private PostgreSQL.

use std::process::Command;

use ff_testkit::postgres::{Cluster, ClusterOptions};

use crate::process::{forget_this_package, run as run_command};

/// The variable that names the server to the tests.
pub const URL: &str = "FF_PG_TEST_URL";

/// The server that tests use: a private one that ends with this value, or the one that the
/// environment names.
pub struct Server {
    pub url: String,
    _private: Option<Cluster>,
}

impl Server {
    pub fn start() -> Result<Self, String> {
        if let Some(url) = std::env::var(URL).ok().filter(|url| !url.is_empty()) {
            eprintln!("   {URL} is set: using that server");
            return Ok(Self { url, _private: None });
        }
        let cluster = Cluster::start(ClusterOptions::default());
        let cluster = cluster.map_err(|error| format!("a private PostgreSQL: {error:#}"))?;
        eprintln!("   a private PostgreSQL at {}", cluster.url());
        Ok(Self { url: cluster.url(), _private: Some(cluster) })
    }
}

pub fn run(args: &[String]) -> Result<(), String> {
    let (program, rest) = args
        .split_first()
        .ok_or("name a command, for example `cargo xtask postgres psql` or `... cargo test`")?;
    let server = Server::start()?;
    let mut command = Command::new(program);
    forget_this_package(&mut command);
    run_command(command.args(rest).env(URL, &server.url), &args.join(" "))
}
