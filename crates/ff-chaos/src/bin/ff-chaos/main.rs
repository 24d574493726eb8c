//! The command: `run`, `postgres`, `http` and `large` kill and judge; the others are what they
//! kill.

mod http;
mod large;
mod options;
mod postgres;
mod sqlite;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use ff_chaos::checker::Report;
use ff_chaos::harness::Plan;
use ff_chaos::victim::UP;
use ff_chaos::workload::{self, Load};
use tokio::runtime::Runtime;

use options::Options;

pub const USAGE: &str = "usage:
  ff-chaos run --kills N --seed S [--dir DIR] [--min-ms A] [--max-ms B]
  ff-chaos postgres --engine-kills N --worker-kills M --server-kills K --seed S
                    [--dir DIR] [--min-ms A] [--max-ms B] [--lossy yes]
  ff-chaos http --store sqlite|postgres --server-kills N --worker-kills M --seed S
                [--dir DIR] [--min-ms A] [--max-ms B] [--revoked-ms C]
  ff-chaos large --width N --depth M --kills K --seed S [--dir DIR] [--min-ms A] [--max-ms B]
  ff-chaos child --log DIR --seed N --db PATH   (ends with its standard input)
  ff-chaos child --log DIR --seed N --url URL --seat NAME --role everybody|workers";

/// A report of everything would be as long as the history.
const SHOWN_VIOLATIONS: usize = 20;

fn main() -> ExitCode {
    match start() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ff-chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<bool> {
    #[cfg(feature = "mutants")]
    build_a_bug_in()?;
    let mut words = std::env::args().skip(1);
    let command = words.next().context(USAGE)?;
    let options = Options::parse(words)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match command.as_str() {
        "run" => run(&runtime, &options, (20, 400), sqlite::kill_and_judge),
        "postgres" => run(&runtime, &options, (50, 900), postgres::kill_and_judge),
        "http" => run(&runtime, &options, (50, 600), http::kill_and_judge),
        "large" => run(&runtime, &options, (100, 900), large::kill_and_judge),
        "large-child" => runtime.block_on(ending_with_input(large::child(&options))),
        "http-server" => runtime.block_on(ending_with_input(http::serve(&options))),
        "http-revoked" => runtime.block_on(ending_with_input(http::play_revoked(&options))),
        "http-slow" => runtime.block_on(ending_with_input(http::play_slow(&options))),
        "http-client" => runtime.block_on(ending_with_input(http::play(&options))),
        "child" => runtime.block_on(child(&options)).map(|()| true),
        other => bail!("there is no command {other:?}\n{USAGE}"),
    }
}

/// `FF_CHAOS_MUTANT` names a known bug, for this process and those that it starts.
#[cfg(feature = "mutants")]
fn build_a_bug_in() -> anyhow::Result<()> {
    use ff_core::mutants::{Mutant, activate_everywhere};

    let Ok(name) = std::env::var("FF_CHAOS_MUTANT") else { return Ok(()) };
    let mutant = Mutant::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name);
    activate_everywhere(mutant.with_context(|| format!("there is no mutant {name:?}"))?);
    Ok(())
}

async fn child(options: &Options) -> anyhow::Result<()> {
    let log: std::path::PathBuf = options.required("log")?;
    let seed = options.required("seed")?;
    end_with_input();
    if options.has("url") {
        let (backend, load) =
            (postgres::open_child(options).await?, postgres::load(options, seed)?);
        println!("{UP}");
        return workload::run_until_killed(backend, &log, load).await;
    }
    let backend = sqlite::open(&options.required::<std::path::PathBuf>("db")?).await?;
    println!("{UP}");
    workload::run_until_killed(backend, &log, Load::alone(seed)).await
}

async fn ending_with_input(
    playing: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<bool> {
    end_with_input();
    playing.await.map(|()| true)
}

/// A child must not outlive a harness that is killed itself.
fn end_with_input() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
}

type KillAndJudge = fn(&Runtime, &Path, &Options, Plan) -> anyhow::Result<Report>;

/// Everything that a failed run leaves behind is kept.
fn run(
    runtime: &Runtime,
    options: &Options,
    lifetime_ms: (u64, u64),
    kill_and_judge: KillAndJudge,
) -> anyhow::Result<bool> {
    let plan = Plan {
        seed: options.or("seed", 1)?,
        lifetime_ms: (options.or("min-ms", lifetime_ms.0)?, options.or("max-ms", lifetime_ms.1)?),
    };
    ensure!(plan.lifetime_ms.0 <= plan.lifetime_ms.1, "--min-ms is more than --max-ms");
    let parent = options.or("dir", std::env::temp_dir())?;
    std::fs::create_dir_all(&parent)?;
    let dir = tempfile::Builder::new().prefix("ff-chaos-").tempdir_in(parent)?;
    let outcome = kill_and_judge(runtime, dir.path(), options, plan);
    if let Ok(report) = &outcome {
        for violation in report.violations.iter().take(SHOWN_VIOLATIONS) {
            eprintln!("{:?}: {}", violation.kind, violation.text);
        }
        print!("{report}");
        if report.passed() {
            return Ok(true);
        }
    }
    eprintln!("seed {}, everything is kept in {}", plan.seed, dir.keep().display());
    outcome.map(|_| false)
}
