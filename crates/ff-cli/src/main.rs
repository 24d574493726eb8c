//! The command `flowfabric`.

mod cli;
mod client;
mod commands;
mod failure;
mod log;
mod output;
mod progress;
mod sse;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use client::Client;
use commands::Session;
use failure::{Exit, Failure};
use output::Output;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Help and version are no mistakes.
            return if error.use_stderr() { code(Exit::Usage) } else { ExitCode::SUCCESS };
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ran = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(Failure::new(Exit::Failure, error.to_string())),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            code(failure.exit)
        }
    }
}

fn code(exit: Exit) -> ExitCode {
    ExitCode::from(exit as u8)
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let output = Output { format: cli.output };
    let server = cli.server;
    let session = || {
        let (token, namespace) = (server.token.clone(), server.namespace.clone());
        let client = Client::new(server.url(), token, namespace)?;
        Ok::<_, Failure>(Session { client, output })
    };
    match cli.command {
        Command::Dev(dev) => dev.run().await,
        Command::Serve(serve) => serve.run().await,
        Command::Migrate(migrate) => migrate.run(output).await,
        Command::Doctor(doctor) => match doctor.asks_server(&server) {
            true => doctor.ask(&session()?).await,
            false => doctor.run(output).await,
        },
        Command::Config(config) => config.run(output),
        Command::Run(run) => run.run(&session()?).await,
        Command::Flow(flow) => flow.run(&session()?).await,
        Command::Worker(worker) => worker.run(&session()?).await,
        Command::Budget(budget) => budget.run(&session()?).await,
        Command::Quota(quota) => quota.run(&session()?).await,
        Command::Waitpoint(waitpoint) => waitpoint.run(&session()?).await,
        Command::Top(top) => top.run(&session()?).await,
        Command::Bench(bench) => bench.run(server, output).await,
        Command::Schedule(schedule) => schedule.run(&session()?).await,
        Command::Bulk(bulk) => bulk.run(&session()?).await,
        Command::Lane(lane) => lane.run(&session()?).await,
        Command::Token(token) => token.run(&session()?).await,
        Command::Webhook(webhook) => webhook.run(&session()?).await,
        Command::Events(events) => events.run(&session()?).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "flowfabric", &mut script);
            output::write(&script)
        }
    }
}
