//! What SQLite can do without the engine: the plainest job table that one would write by hand.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ff_backend_sqlite::rusqlite::{Connection, params};

use crate::measure::{micros, per_second};

/// How many jobs the grouped loop puts into one transaction.
pub(crate) const GROUP: usize = 100;

/// Settings that decide how fast SQLite is, read from the engine's own writing connection.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub page_size: i64,
    pub cache_size: i64,
    pub synchronous: i64,
    pub checkpoint_pages: i64,
    pub log_bytes: i64,
    pub journal_mode: String,
}

impl Settings {
    pub(crate) fn read(
        connection: &Connection,
    ) -> Result<Self, ff_backend_sqlite::rusqlite::Error> {
        let number = |name: &str| {
            connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0))
        };
        Ok(Self {
            page_size: number("page_size")?,
            cache_size: number("cache_size")?,
            synchronous: number("synchronous")?,
            checkpoint_pages: number("wal_autocheckpoint")?,
            log_bytes: number("journal_size_limit")?,
            journal_mode: connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?,
        })
    }
}

/// One table of jobs on one connection.
pub(crate) struct Floor {
    connection: Connection,
    payload: Vec<u8>,
    created: i64,
}

impl Floor {
    pub(crate) fn open(path: &Path, settings: &Settings, payload: Vec<u8>) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(&format!(
            "PRAGMA page_size = {}; PRAGMA journal_mode = {}; PRAGMA synchronous = {}; \
             PRAGMA cache_size = {}; PRAGMA wal_autocheckpoint = {}; \
             PRAGMA journal_size_limit = {};",
            settings.page_size,
            settings.journal_mode,
            settings.synchronous,
            settings.cache_size,
            settings.checkpoint_pages,
            settings.log_bytes,
        ))?;
        connection.execute_batch(
            "CREATE TABLE jobs (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, \
             lane TEXT NOT NULL, priority INTEGER NOT NULL, created INTEGER NOT NULL, \
             payload BLOB NOT NULL); \
             CREATE INDEX jobs_claim ON jobs (lane, priority DESC, created, id) WHERE state = 0;",
        )?;
        let same = Settings::read(&connection)?;
        ensure!(same.synchronous == settings.synchronous && same.page_size == settings.page_size);
        Ok(Self { connection, payload, created: 0 })
    }

    /// Jobs inserted per second, in groups.
    pub(crate) fn insert_grouped(&mut self, count: usize) -> Result<f64> {
        let start = Instant::now();
        for group in groups(count) {
            self.run("BEGIN IMMEDIATE")?;
            for _ in 0..group {
                self.insert()?;
            }
            self.run("COMMIT")?;
        }
        Ok(per_second(count, start))
    }

    /// Jobs inserted per second, each in a transaction of its own.
    pub(crate) fn insert_single(&mut self, time: Duration) -> Result<f64> {
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < time {
            self.insert()?;
            count += 1;
        }
        Ok(per_second(count, start))
    }

    /// Jobs claimed and completed per second; a group is claimed in one transaction and completed
    /// in another.
    pub(crate) fn drain_grouped(&self, count: usize) -> Result<f64> {
        let start = Instant::now();
        for group in groups(count) {
            let claimed = self.claim(group)?;
            ensure!(claimed.len() == group, "the floor's table ran dry");
            self.run("BEGIN IMMEDIATE")?;
            for id in claimed {
                self.complete(id)?;
            }
            self.run("COMMIT")?;
        }
        Ok(per_second(count, start))
    }

    /// The same, one job at a time.
    pub(crate) fn drain_single(&self, time: Duration) -> Result<f64> {
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < time {
            for id in self.claim(1)? {
                self.complete(id)?;
                count += 1;
            }
        }
        Ok(per_second(count, start))
    }

    /// How long one insert takes to be safe, in microseconds.
    pub(crate) fn lone_commit(&mut self) -> Result<f64> {
        let start = Instant::now();
        self.insert()?;
        Ok(micros(start.elapsed()))
    }

    fn insert(&mut self) -> Result<()> {
        self.created += 1;
        let sql = "INSERT INTO jobs (state, lane, priority, created, payload) \
                   VALUES (0, 'bench', 0, ?1, ?2)";
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.execute(params![self.created, self.payload])?;
        Ok(())
    }

    fn claim(&self, max: usize) -> Result<Vec<i64>> {
        let sql = "UPDATE jobs SET state = 1 WHERE id IN (SELECT id FROM jobs \
                   WHERE state = 0 AND lane = 'bench' ORDER BY priority DESC, created, id \
                   LIMIT ?1) RETURNING id, payload";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([max as i64])?;
        let mut ids = Vec::with_capacity(max);
        while let Some(row) = rows.next()? {
            let payload: Vec<u8> = row.get(1)?;
            ensure!(payload.len() == self.payload.len(), "a payload changed its length");
            ids.push(row.get(0)?);
        }
        Ok(ids)
    }

    fn complete(&self, id: i64) -> Result<()> {
        let sql = "UPDATE jobs SET state = 2 WHERE id = ?1 AND state = 1";
        let changed = self.connection.prepare_cached(sql)?.execute([id])?;
        ensure!(changed == 1, "a job was not there to complete");
        Ok(())
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

fn groups(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(GROUP).map(move |done| GROUP.min(count - done))
}
