//! The private server of a run, what `pgbench` makes of it, and what is watched and held in it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ff_testkit::postgres::{Cluster, ClusterOptions};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;

/// The same for floors and engine. Commits are durable, which the cluster sees to.
const SETTINGS: [(&str, &str); 4] = [
    ("shared_buffers", "512MB"),
    ("max_wal_size", "4GB"),
    ("checkpoint_timeout", "15min"),
    ("max_connections", "200"),
];

/// Counts statements, but only in a database where it is switched on: elsewhere it would slow down
/// what is measured.
const COUNTER: [(&str, &str); 2] =
    [("shared_preload_libraries", "pg_stat_statements"), ("pg_stat_statements.track", "none")];

const PGBENCH: &str = "pgbench";

pub(crate) struct Server {
    cluster: Cluster,
    counts_statements: bool,
}

impl Server {
    /// A new server with its data in the folder.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut settings: Vec<_> = SETTINGS.map(own).into();
        let options = |settings: &[_]| ClusterOptions {
            durable: true,
            settings: settings.to_vec(),
            folder: Some(folder.to_owned()),
            ..ClusterOptions::default()
        };
        let plain = settings.clone();
        settings.extend(COUNTER.map(own));
        // Some distributions ship the library apart, and a server that misses it does not start.
        let (cluster, counts_statements) = match Cluster::start(options(&settings)) {
            Ok(cluster) => (cluster, true),
            Err(_) => (Cluster::start(options(&plain))?, false),
        };
        if counts_statements {
            cluster.psql(&cluster.socket_url(), "CREATE EXTENSION pg_stat_statements")?;
        }
        Ok(Self { cluster, counts_statements })
    }

    /// Makes a database and returns its URL, through the Unix socket.
    pub(crate) fn database(&self, name: &str) -> Result<String> {
        self.cluster.database(name)?;
        self.url(name)
    }

    fn url(&self, database: &str) -> Result<String> {
        let url = self.cluster.socket_url();
        let base = url.strip_suffix("postgres").context("the URL names another database")?;
        Ok(format!("{base}{database}"))
    }

    /// Removes a database with all that is left of it, so that nothing vacuums it later on.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.sql(&format!("DROP DATABASE \"{name}\" WITH (FORCE)")).map(drop)
    }

    pub(crate) fn version(&self) -> Result<String> {
        self.sql("SHOW server_version")
    }

    fn sql(&self, sql: &str) -> Result<String> {
        self.cluster.psql(&self.cluster.socket_url(), sql)
    }

    /// Makes the tables of `pgbench`, in a database of their own.
    pub(crate) fn prepare_pgbench(&self) -> Result<()> {
        let url = self.database(PGBENCH)?;
        self.pgbench_says(&["--initialize", "--quiet", "--scale=10", &url]).map(drop)
    }

    /// How many transactions per second 16 clients make of the kind "simple update".
    pub(crate) fn pgbench_rate(&self, time: Duration) -> Result<f64> {
        let time = format!("--time={}", time.as_secs().max(1));
        self.pgbench(&["--client=16", "--jobs=2", &time])
    }

    /// How long such a transaction takes when there is no other, in microseconds.
    pub(crate) fn pgbench_latency(&self, transactions: usize) -> Result<f64> {
        let transactions = format!("--transactions={transactions}");
        Ok(1e6 / self.pgbench(&["--client=1", &transactions])?)
    }

    /// Transactions per second, without the time that connecting takes.
    fn pgbench(&self, load: &[&str]) -> Result<f64> {
        let url = self.url(PGBENCH)?;
        let kind = ["--builtin=simple-update", "--protocol=prepared", "--no-vacuum"];
        let said = self.pgbench_says(&[&kind[..], load, &[&url]].concat())?;
        number_after(&said, "tps = ")
    }

    fn pgbench_says(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(self.cluster.bin(PGBENCH)).args(arguments).output()?;
        if !output.status.success() {
            bail!("pgbench failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Lets statements in this database be counted, by connections that come later. False if this
    /// server cannot.
    pub(crate) fn count_statements(&self, database: &str) -> Result<bool> {
        if self.counts_statements {
            let name = "pg_stat_statements.track";
            self.sql(&format!("ALTER DATABASE \"{database}\" SET {name} = 'top'"))?;
        }
        Ok(self.counts_statements)
    }

    /// How many statements have been run in the database.
    pub(crate) fn statements(&self, database: &str) -> Result<f64> {
        let sql = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
                   JOIN pg_database ON oid = dbid WHERE datname = ";
        Ok(self.sql(&format!("{sql}'{database}'"))?.parse()?)
    }
}

fn number_after(text: &str, label: &str) -> Result<f64> {
    let rest = text.split_once(label).with_context(|| format!("no {label:?} in {text:?}"))?.1;
    let number = rest.split_whitespace().next().unwrap_or_default();
    number.parse().with_context(|| format!("{number:?} is not a number"))
}

/// Three readers whose snapshots overlap: one is always old, and the server may remove nothing that
/// it could still see.
pub(crate) struct Readers {
    tasks: JoinSet<Result<()>>,
}

impl Readers {
    /// Returns when the first snapshot is held; the others follow at even distances.
    pub(crate) async fn start(url: &str, hold: Duration) -> Result<Self> {
        let mut tasks = JoinSet::new();
        let mut first = Some(snapshot(url).await?);
        for number in 0..3 {
            let (url, mut held) = (url.to_owned(), first.take());
            tasks.spawn(async move {
                tokio::time::sleep(hold / 3 * number).await;
                loop {
                    let mut reader = match held.take() {
                        Some(reader) => reader,
                        None => snapshot(&url).await?,
                    };
                    tokio::time::sleep(hold).await;
                    sqlx::query("COMMIT").execute(&mut reader).await?;
                    reader.close().await?;
                }
            });
        }
        Ok(Self { tasks })
    }

    /// Lets go, and makes sure that there was something to let go of.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        ensure!(self.tasks.len() == 3, "a reader ended early");
        self.tasks.shutdown().await;
        Ok(())
    }
}

/// A reader that has seen all executions and can go on seeing them as they were.
async fn snapshot(url: &str) -> Result<PgConnection> {
    let mut reader = PgConnection::connect(url).await?;
    sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ").execute(&mut reader).await?;
    sqlx::query("SELECT count(*) FROM ff_exec_core").execute(&mut reader).await?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_pgbench() {
        let said = "latency average = 0.250 ms\ntps = 4000.5 (without initial connection time)\n";
        assert_eq!(number_after(said, "latency average = ").unwrap(), 0.25);
        assert_eq!(number_after(said, "tps = ").unwrap(), 4000.5);
        assert!(number_after(said, "failures = ").is_err());
    }
}
