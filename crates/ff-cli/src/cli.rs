//! The command line.

use clap::{Args, Parser, Subcommand};
use ff_api::Span;

use crate::output::Format;

/// Durable execution in one binary: submit work, let workers lease it, and lose nothing.
#[derive(Parser)]
#[command(name = "flowfabric", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub server: Server,
    /// How data is written to stdout.
    #[arg(short, long, global = true, value_enum, default_value = "table", env = "FF_OUTPUT")]
    pub output: Format,
    #[command(subcommand)]
    pub command: Command,
}

/// Which server to talk to, and as whom.
#[derive(Args)]
pub struct Server {
    /// Where the server is; `http://127.0.0.1:7411` if nothing is said.
    #[arg(long, global = true, env = "FF_URL")]
    pub url: Option<String>,
    /// A token of the server. In the environment it does not show in the list of processes.
    #[arg(long, global = true, env = "FF_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    #[arg(short, long, global = true, env = "FF_NAMESPACE")]
    pub namespace: Option<String>,
}

impl Server {
    pub fn url(&self) -> &str {
        self.url.as_deref().unwrap_or("http://127.0.0.1:7411")
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Run an engine, its server and a demo worker on this machine.
    Dev(crate::commands::dev::Dev),
    /// Run a server.
    Serve(crate::commands::serve::Serve),
    /// Bring a database's schema up to date.
    Migrate(crate::commands::migrate::Migrate),
    /// Check the server at --url or FF_URL, or a store on this machine.
    Doctor(crate::commands::doctor::Doctor),
    /// The configuration that a server would run with.
    #[command(subcommand)]
    Config(crate::commands::config::Config),
    /// Start, watch and operate executions.
    #[command(subcommand)]
    Run(crate::commands::run::Run),
    /// Graphs of executions.
    #[command(subcommand)]
    Flow(crate::commands::flow::Flow),
    /// Work that is submitted by itself.
    #[command(subcommand)]
    Schedule(crate::commands::schedule::Schedule),
    /// One action on every execution that matches.
    #[command(subcommand)]
    Bulk(crate::commands::bulk::Bulk),
    /// Lanes and what waits in them.
    #[command(subcommand)]
    Lane(crate::commands::lane::Lane),
    /// Who is there to do the work.
    #[command(subcommand)]
    Worker(crate::commands::worker::Worker),
    /// How much may be used, and how much is.
    #[command(subcommand)]
    Budget(crate::commands::budget::Budget),
    /// How fast, how many at once, and whose turn it is.
    #[command(subcommand)]
    Quota(crate::commands::quota::Quota),
    /// Who is waited for.
    #[command(subcommand)]
    Waitpoint(crate::commands::waitpoint::Waitpoint),
    /// Tokens of the server.
    #[command(subcommand)]
    Token(crate::commands::token::Token),
    /// Receivers outside that are told of events.
    #[command(subcommand)]
    Webhook(crate::commands::webhook::Webhook),
    /// Follow the log.
    Events(crate::commands::events::Events),
    /// Watch lanes, workers and failures.
    Top(crate::commands::top::Top),
    /// Measure how much work a running server takes and hands out.
    Bench(crate::commands::bench::Bench),
    /// Print the completions of a shell.
    Completions { shell: clap_complete::Shell },
}

/// A duration as people write it.
pub fn span(text: &str) -> Result<Span, String> {
    text.parse().map_err(|error: ff_api::SpanError| error.to_string())
}

/// `key=value`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("{text:?} is not of the form key=value"))?;
    Ok((key.to_owned(), value.to_owned()))
}
