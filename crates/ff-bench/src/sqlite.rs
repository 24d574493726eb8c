//! The run over SQLite: floors and workloads by turns, so that a noisy neighbour slows both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use async_trait::async_trait;
use ff_backend_sqlite::{SqliteBackend, SqliteOptions};
use ff_sdk::Client;
use tokio::runtime::Runtime;

use crate::domain;
use crate::http;
use crate::measure::{MemoryWatch, fdatasync_rate, median, percentile};
use crate::report::{Bar, Line, Report, Unit};
use crate::scale;
use crate::sdk;
use crate::sqlite_floor::{Floor, Settings};
use crate::workload::{
    BATCH, Backend, Bed, Latencies, MANY, PAYLOAD_BYTES, Probe, SIXTEEN, Work, thousands,
};

/// With so many waiting, a lane counts as short.
const SHORT: usize = 10_000;
const MEMORY_MB: f64 = 300.0;
const SETTLE: Duration = Duration::from_millis(100);

/// How much is measured.
struct Scale {
    rounds: usize,
    /// The length of a round that counts what fits into it.
    time: Duration,
    batched: usize,
    drained: usize,
    drained_by_sixteen: usize,
    claimed: usize,
    probes: usize,
    waiting: usize,
    domain: domain::Scale,
    /// How long a round of a drain may take.
    patience: Duration,
    patience_with_backlog: Duration,
}

const QUICK: Scale = Scale {
    rounds: 3,
    time: Duration::from_millis(1000),
    batched: 20_000,
    drained: 10_000,
    drained_by_sixteen: 5_000,
    claimed: 5_000,
    probes: 150,
    waiting: 100_000,
    domain: domain::QUICK,
    patience: Duration::from_secs(4),
    patience_with_backlog: Duration::from_secs(15),
};

/// Five rounds of 20,000 are the 100,000 executions of a drain.
const FULL: Scale = Scale {
    rounds: 5,
    time: Duration::from_millis(2000),
    batched: 50_000,
    drained: 20_000,
    drained_by_sixteen: 20_000,
    claimed: 5_000,
    probes: 500,
    waiting: 1_000_000,
    domain: domain::FULL,
    patience: Duration::from_secs(20),
    patience_with_backlog: Duration::from_secs(240),
};

struct Run {
    runtime: Runtime,
    folder: PathBuf,
    settings: Settings,
    scale: &'static Scale,
    payload: Vec<u8>,
    flushes: Vec<f64>,
    grouped_insert: Vec<f64>,
    grouped_drain: Vec<f64>,
    lines: Vec<Line>,
    began: Instant,
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn close(&self) {
        self.close().await;
    }
}

async fn open(path: &Path) -> Result<Arc<SqliteBackend>> {
    let path = path.to_str().context("the folder's name is not UTF-8")?;
    Ok(SqliteBackend::new(path).await?)
}

/// Everything, or one part of it, as a report.
pub(crate) fn measure(target: &Path, quick: bool, only: Option<&str>) -> Result<Report> {
    let scale = if quick { &QUICK } else { &FULL };
    let parent = target.join("bench");
    std::fs::create_dir_all(&parent)?;
    let folder = tempfile::tempdir_in(&parent).context("no folder for the databases")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let payload: Vec<u8> =
        std::iter::repeat_with(|| fastrand::u8(..)).take(PAYLOAD_BYTES).collect();
    let settings = runtime.block_on(async {
        let backend = open(&folder.path().join("settings.db")).await?;
        let read = |connection: &_| Ok((Settings::read(connection)?, Vec::new()));
        let (settings, _) = backend.submit_with(read).await?;
        backend.close().await;
        anyhow::Ok(settings)
    })?;
    let mut run = Run {
        runtime,
        folder: folder.path().to_owned(),
        settings,
        scale,
        payload,
        flushes: Vec::new(),
        grouped_insert: Vec::new(),
        grouped_drain: Vec::new(),
        lines: Vec::new(),
        began: Instant::now(),
    };
    for part in crate::parts(only) {
        run.flush()?;
        run.part(part)?;
    }
    Ok(run.report(quick))
}

impl Run {
    fn part(&mut self, part: &str) -> Result<()> {
        match part {
            "submit" => self.submit_each(),
            "batches" => self.submit_batches(),
            "sixteen" => self.drain_by_sixteen(),
            "drain" => self.drain_by_many(),
            "sdk" => self.drain_by_sdk(),
            "http" => self.through_http(),
            "end" => self.end_to_end(),
            "idle" => self.latencies(),
            "domain" => self.domain(),
            "scale" => self.scale(),
            _ => self.backlog(),
        }
    }

    fn say(&self, what: &str) {
        eprintln!("[{:5.1} s] {what}", self.began.elapsed().as_secs_f64());
    }

    fn bed(&self, name: &str) -> Result<Bed> {
        let path = self.folder.join(format!("{name}.db"));
        Ok(Bed::new(self.runtime.block_on(open(&path))?, &self.payload))
    }

    fn floor(&self, name: &str) -> Result<Floor> {
        let path = self.folder.join(format!("{name}-floor.db"));
        Floor::open(&path, &self.settings, self.payload.clone())
    }

    /// Later workloads must not share the disk with the remains of earlier ones.
    fn discard(&self, bed: Bed) {
        self.runtime.block_on(bed.close());
    }

    /// What one side does while nobody waits for it must not fall into the other side's time.
    fn settle(&self) {
        std::thread::sleep(SETTLE);
    }

    fn flush(&mut self) -> Result<()> {
        self.say("fdatasync");
        let rate = fdatasync_rate(&self.folder, self.scale.time / 2)?;
        self.flushes.push(rate);
        Ok(())
    }

    fn submit_each(&mut self) -> Result<()> {
        self.say("submit one at a time");
        let (bed, mut floor) = (self.bed("each")?, self.floor("each")?);
        let (mut rates, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds {
            self.settle();
            floors.push(floor.insert_single(self.scale.time)?);
            rates.push(self.runtime.block_on(bed.submit_each(16, self.scale.time))?);
        }
        self.discard(bed);
        let line =
            Line::new("submit, one at a time from 16 tasks", Unit::PerSecond, median(&rates));
        self.lines
            .push(line.floor("insert, one at a time", median(&floors)).bar(Bar::AtLeast(2.0)));
        Ok(())
    }

    fn submit_batches(&mut self) -> Result<()> {
        self.say("submit in batches");
        let (bed, mut floor) = (self.bed("batch")?, self.floor("batch")?);
        let (mut rates, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds {
            self.settle();
            floors.push(floor.insert_grouped(self.scale.batched)?);
            let submit = bed.submit_batches(self.scale.batched, BATCH);
            rates.push(self.runtime.block_on(submit)?);
        }
        self.discard(bed);
        let line = Line::new("submit, batches of 1,000, one task", Unit::PerSecond, median(&rates));
        self.lines.push(line.floor("insert, by 100", median(&floors)).bar(Bar::AtLeast(0.4)));
        self.grouped_insert = floors;
        Ok(())
    }

    fn drain_by_sixteen(&mut self) -> Result<()> {
        self.say("drain, 16 in flight");
        let (bed, mut floor) = (self.bed("sixteen")?, self.floor("sixteen")?);
        let count = self.scale.drained_by_sixteen;
        let total = count * self.scale.rounds;
        floor.insert_grouped(total)?;
        self.runtime.block_on(bed.submit_batches(total, BATCH))?;
        let (mut rates, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds {
            self.settle();
            floors.push(floor.drain_single(self.scale.time)?);
            let work = Work { count, wait: Duration::ZERO, limit: self.scale.patience };
            rates.push(self.runtime.block_on(bed.drain(SIXTEEN, work))?.rate);
        }
        self.discard(bed);
        let name = "drain, 16 in flight (1 worker x 16)";
        let line = Line::new(name, Unit::PerSecond, median(&rates));
        let name = "claim+complete, one at a time";
        self.lines.push(line.floor(name, median(&floors)).bar(Bar::AtLeast(5.0)));
        Ok(())
    }

    fn drain_by_many(&mut self) -> Result<()> {
        self.say("drain, 256 in flight");
        let (bed, mut floor) = (self.bed("many")?, self.floor("many")?);
        let count = self.scale.drained;
        let total = count * self.scale.rounds;
        floor.insert_grouped(total)?;
        self.runtime.block_on(bed.submit_batches(total, BATCH))?;
        let (mut rates, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds {
            self.settle();
            floors.push(floor.drain_grouped(count)?);
            let work = Work { count, wait: Duration::ZERO, limit: self.scale.patience };
            rates.push(self.runtime.block_on(bed.drain(MANY, work))?.rate);
        }
        self.discard(bed);
        let rate = median(&rates);
        let line = Line::new("drain, 256 in flight (16 workers x 16)", Unit::PerSecond, rate);
        let name = "claim+complete, by 100";
        self.lines.push(line.floor(name, median(&floors)).bar(Bar::AtLeast(0.3)));
        self.grouped_drain = floors;
        // The disk's rate is known for good only at the end; see `absolute`.
        let line = Line::new("the same, absolute", Unit::PerSecond, rate);
        self.lines.push(line.bar(Bar::ValueAtLeast(10_000.0)));
        Ok(())
    }

    fn drain_by_sdk(&mut self) -> Result<()> {
        self.say("drain by a worker of the SDK");
        let (raw, sdk) = (self.bed("raw")?, self.bed("sdk")?);
        let by_sixteen = "drain by the engine's calls (1 x 16)";
        let by_many = "drain by the engine's calls (16 x 16)";
        for (crew, count, floor) in [
            (SIXTEEN, self.scale.drained_by_sixteen, by_sixteen),
            (MANY, self.scale.drained, by_many),
        ] {
            let slots = crew.workers * crew.slots;
            let (mut rates, mut floors) = (Vec::new(), Vec::new());
            for _ in 0..self.scale.rounds {
                self.runtime.block_on(raw.submit_batches(count, BATCH))?;
                self.settle();
                let work = Work { count, wait: Duration::ZERO, limit: Duration::MAX };
                floors.push(self.runtime.block_on(raw.drain(crew, work))?.rate);
                self.runtime.block_on(sdk.submit_batches(count, BATCH))?;
                self.settle();
                let client = Client::embedded(sdk.backend());
                let drain = sdk::drain(client, sdk.backend(), slots, count);
                rates.push(self.runtime.block_on(drain)?);
            }
            let name = format!("drain by one SDK worker, {slots} in flight");
            let line = Line::new(name, Unit::PerSecond, median(&rates));
            self.lines.push(line.floor(floor, median(&floors)).bar(Bar::AtLeast(0.8)));
        }
        self.discard(raw);
        self.discard(sdk);
        Ok(())
    }

    fn through_http(&mut self) -> Result<()> {
        self.say("the same load through a server");
        let (raw, served) = (self.bed("embedded")?, self.bed("served")?);
        let (rounds, count) = (self.scale.rounds, self.scale.batched);
        let lines = self.runtime.block_on(http::measure(&raw, &served, rounds, count))?;
        self.lines.extend(lines);
        self.discard(raw);
        self.discard(served);
        Ok(())
    }

    /// The absolute bar holds where the disk is fast enough for it.
    fn absolute(&mut self, flush: f64) {
        let slow = (flush < 2000.0).then(|| format!("n/a: {flush:.0} fdatasync/s < 2,000"));
        for line in &mut self.lines {
            if matches!(line.bar, Some(Bar::ValueAtLeast(_))) {
                line.waived.clone_from(&slow);
            }
        }
    }

    fn end_to_end(&mut self) -> Result<()> {
        self.say("end to end");
        let bed = self.bed("end")?;
        let mut rates = Vec::new();
        for _ in 0..self.scale.rounds {
            rates.push(self.runtime.block_on(bed.end_to_end(MANY, self.scale.drained))?);
        }
        self.discard(bed);
        let both = 1.0 / median(&self.grouped_insert) + 1.0 / median(&self.grouped_drain);
        let name = "submit by 100, claim, complete (16 x 16)";
        let line = Line::new(name, Unit::PerSecond, median(&rates));
        self.lines.push(line.floor("insert, claim, complete, by 100", 1.0 / both));
        Ok(())
    }

    fn latencies(&mut self) -> Result<()> {
        self.say("latencies at rest");
        let (bed, mut floor) = (self.bed("idle")?, self.floor("idle")?);
        let rest = Duration::from_millis(5);
        let (mut raw, mut engine) = (Vec::new(), Vec::new());
        let mut probe = self.runtime.block_on(async { Probe::new(bed.clone()) });
        for round in 0..self.scale.probes + 10 {
            std::thread::sleep(rest);
            let commit = floor.lone_commit()?;
            let latencies = self.runtime.block_on(probe.once(rest))?;
            // The first few warm caches up.
            if round >= 10 {
                raw.push(commit);
                engine.push(latencies);
            }
        }
        drop(probe);
        self.discard(bed);
        let of = |part: fn(&Latencies) -> f64| engine.iter().map(part).collect::<Vec<_>>();
        let (submit, start, complete) = (of(|l| l.submit), of(|l| l.start), of(|l| l.complete));
        let commit = median(&raw);
        let mut line = |name: &str, value: f64, bar: Option<Bar>| {
            let line = Line::new(name, Unit::Micros, value).floor("one raw commit, p50", commit);
            self.lines.push(Line { bar, ..line });
        };
        line("one submit alone, p50", median(&submit), Some(Bar::AtMost(2.0)));
        line("one complete alone, p50", median(&complete), Some(Bar::AtMost(2.0)));
        line("submit to start, idle engine, p50", median(&start), Some(Bar::AtMost(3.0)));
        line("submit to start, idle engine, p99", percentile(&start, 0.99), None);
        Ok(())
    }

    /// Graphs, steps, waits and streams.
    fn domain(&mut self) -> Result<()> {
        self.say("flows, steps, signals, cancellations and frames");
        let bed = self.bed("domain")?;
        self.lines.extend(domain::measure(&self.runtime, &bed, self.scale.domain)?);
        self.discard(bed);
        Ok(())
    }

    /// Flows far larger than usual.
    fn scale(&mut self) -> Result<()> {
        self.say("very wide, deep and large flows");
        let path = self.folder.join("scale.db");
        let path = path.to_str().context("the folder's name is not UTF-8")?;
        let options = SqliteOptions { engine: scale::config(), ..SqliteOptions::new(path) };
        let bed = Bed::new(self.runtime.block_on(SqliteBackend::open(options))?, &self.payload);
        self.lines.extend(scale::measure(&self.runtime, &bed)?);
        self.discard(bed);
        Ok(())
    }

    fn backlog(&mut self) -> Result<()> {
        let waiting = self.scale.waiting;
        self.say(&format!("preparing {waiting} waiting executions"));
        let (long, short) = (self.bed("long")?, self.bed("short")?);
        let half = self.scale.claimed / 2;
        self.runtime.block_on(long.submit_batches(waiting, BATCH))?;
        self.runtime.block_on(short.submit_batches(SHORT + half, BATCH))?;
        self.say("claims from a long and from a short lane");
        let (mut of_long, mut of_short) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds.max(4) {
            self.settle();
            of_short.push(self.runtime.block_on(short.claim_only(MANY, self.scale.claimed))?);
            self.runtime.block_on(short.submit_batches(self.scale.claimed, BATCH))?;
            self.settle();
            of_long.push(self.runtime.block_on(long.claim_only(MANY, self.scale.claimed))?);
        }
        self.discard(short);
        let taken = self.scale.rounds.max(4) * self.scale.claimed;
        let name = format!("claim, {} waiting (16 workers x 16)", thousands(waiting));
        let line = Line::new(name, Unit::PerSecond, median(&of_long));
        self.lines
            .push(line.floor("claim, 10,000 waiting", median(&of_short)).bar(Bar::AtLeast(0.8)));

        self.say("draining the long lane");
        let watch = MemoryWatch::start();
        let work = Work {
            count: waiting - taken,
            wait: Duration::ZERO,
            limit: self.scale.patience_with_backlog,
        };
        let drained = self.runtime.block_on(long.drain(MANY, work))?;
        let memory = watch.stop();
        self.discard(long);
        let mut name = format!("drain of {} (16 workers x 16)", thousands(waiting));
        if drained.count < work.count {
            name += &format!(", stopped after {}", thousands(drained.count));
        }
        let line = Line::new(name, Unit::PerSecond, drained.rate);
        self.lines.push(line.floor("claim+complete, by 100", median(&self.grouped_drain)));
        let name = format!("resident memory while draining {}", thousands(waiting));
        let line = Line::new(name, Unit::Megabytes, memory);
        self.lines.push(line.bar(Bar::ValueAtMost(MEMORY_MB)));
        Ok(())
    }

    fn report(mut self, quick: bool) -> Report {
        let flush = median(&self.flushes);
        self.absolute(flush);
        let line = Line::new("fdatasync after 4 KiB (the disk)", Unit::PerSecond, flush);
        self.lines.insert(0, line);
        let Settings { journal_mode, synchronous, page_size, cache_size, .. } = &self.settings;
        let mut title = format!(
            "SQLite, journal_mode={journal_mode}, synchronous={synchronous}, \
             page_size={page_size}, cache_size={cache_size}, payloads of {PAYLOAD_BYTES} bytes; \
             medians of {} rounds, {:.0} s in all",
            self.scale.rounds,
            self.began.elapsed().as_secs_f64(),
        );
        if quick {
            title += "\nquick: 100,000 waiting executions instead of 1,000,000";
        }
        Report { title, lines: self.lines }
    }
}
