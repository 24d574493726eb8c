//! The run over PostgreSQL: floors and workloads by turns, so that a noisy neighbour slows both.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::domain;
use crate::measure::{MemoryWatch, fdatasync_rate, median, percentile};
use crate::postgres_floor::Floor;
use crate::postgres_server::{Readers, Server};
use crate::report::{Bar, Line, Report, Unit};
use crate::scale;
use crate::workload::{
    BATCH, Backend, Bed, Latencies, MANY, PAYLOAD_BYTES, Probe, SIXTEEN, Work, thousands,
};

/// With so many waiting, a lane counts as short.
const SHORT: usize = 10_000;
/// How many jobs the grouped loop claims and completes at a time.
const GROUP: usize = 100;
/// The database of the engine that does nothing.
const IDLE: &str = "idle";
/// How long its statements are counted at least: it looks around only from time to time.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// A claim may find that what is left is just being claimed by others.
const WAIT: Duration = Duration::from_secs(1);

/// How much is measured.
struct Scale {
    rounds: usize,
    /// The length of a round that counts what fits into it.
    time: Duration,
    batched: usize,
    drained: usize,
    drained_by_sixteen: usize,
    drained_by_floor: usize,
    claimed: usize,
    probes: usize,
    waiting: usize,
    domain: domain::Scale,
    /// How long a reader holds its snapshot, and how long is drained with and without readers.
    held: Duration,
    /// How long a round of a drain may take.
    patience: Duration,
    patience_with_backlog: Duration,
}

const QUICK: Scale = Scale {
    rounds: 3,
    time: Duration::from_millis(800),
    batched: 20_000,
    drained: 10_000,
    drained_by_sixteen: 3_000,
    drained_by_floor: 20_000,
    claimed: 4_000,
    probes: 150,
    waiting: 100_000,
    domain: domain::QUICK,
    held: Duration::from_secs(10),
    patience: Duration::from_millis(1500),
    patience_with_backlog: Duration::from_secs(5),
};

const FULL: Scale = Scale {
    rounds: 5,
    time: Duration::from_millis(2000),
    batched: 50_000,
    drained: 20_000,
    drained_by_sixteen: 20_000,
    drained_by_floor: 50_000,
    claimed: 5_000,
    probes: 500,
    waiting: 1_000_000,
    domain: domain::FULL,
    held: Duration::from_secs(60),
    patience: Duration::from_secs(20),
    patience_with_backlog: Duration::from_secs(240),
};

struct Run {
    runtime: Runtime,
    server: Server,
    scale: &'static Scale,
    payload: Vec<u8>,
    flushes: Vec<f64>,
    pgbench: Vec<f64>,
    grouped_insert: Vec<f64>,
    grouped_drain: Vec<f64>,
    lines: Vec<Line>,
    began: Instant,
}

struct Idle {
    bed: Bed,
    waiting: JoinHandle<Result<()>>,
    before: f64,
    since: Instant,
}

#[async_trait]
impl Backend for PostgresBackend {
    async fn close(&self) {
        self.close().await;
    }
}

/// Everything, as a report.
pub(crate) fn measure(target: &Path, quick: bool, only: Option<&str>) -> Result<Report> {
    let began = Instant::now();
    let folder = target.join("bench");
    let server = Server::start(&folder)?;
    server.prepare_pgbench()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let payload: Vec<u8> =
        std::iter::repeat_with(|| fastrand::u8(..)).take(PAYLOAD_BYTES).collect();
    let mut run = Run {
        runtime,
        server,
        scale: if quick { &QUICK } else { &FULL },
        payload,
        flushes: Vec::new(),
        pgbench: Vec::new(),
        grouped_insert: Vec::new(),
        grouped_drain: Vec::new(),
        lines: Vec::new(),
        began,
    };
    run.all(&folder, only)?;
    run.report(quick)
}

impl Run {
    fn all(&mut self, folder: &Path, only: Option<&str>) -> Result<()> {
        // Its statements are counted while the others are at work.
        let idle = self.begin_idle()?;
        for part in crate::parts(only) {
            self.machine(folder)?;
            self.part(part)?;
        }
        if only.is_none() { self.end_idle(idle) } else { Ok(()) }
    }

    fn part(&mut self, part: &str) -> Result<()> {
        match part {
            "submit" => self.submit_each(),
            "batches" => self.submit_batches(),
            "sixteen" => self.drain_by_sixteen(),
            "drain" => self.drain_by_many(),
            // What the SDK and the server add is the same on every store.
            "sdk" | "http" => Ok(()),
            "end" => self.end_to_end(),
            "idle" => self.latencies(),
            "domain" => self.domain(),
            "scale" => self.scale(),
            _ => {
                let rate = self.backlog()?;
                self.held_snapshot(rate)
            }
        }
    }

    fn say(&self, what: &str) {
        eprintln!("[{:5.1} s] {what}", self.began.elapsed().as_secs_f64());
    }

    fn bed(&self, name: &str) -> Result<Bed> {
        self.bed_at(&self.server.database(name)?)
    }

    fn bed_at(&self, url: &str) -> Result<Bed> {
        Ok(Bed::new(self.runtime.block_on(PostgresBackend::connect(url))?, &self.payload))
    }

    /// Later workloads must not share the server with the remains of earlier ones.
    fn discard(&self, bed: Bed, name: &str) -> Result<()> {
        self.runtime.block_on(bed.close());
        self.server.remove(name)
    }

    fn floor(&self) -> Result<Floor> {
        let url = self.server.database("floor")?;
        self.runtime.block_on(Floor::open(&url, &self.payload))
    }

    fn discard_floor(&self, floor: Floor) -> Result<()> {
        self.runtime.block_on(floor.close())?;
        self.server.remove("floor")
    }

    /// What the disk and the server can do by themselves.
    fn machine(&mut self, folder: &Path) -> Result<()> {
        self.say("fdatasync and pgbench");
        self.flushes.push(fdatasync_rate(folder, self.scale.time / 2)?);
        self.pgbench.push(self.server.pgbench_rate(self.scale.time)?);
        Ok(())
    }

    fn submit_each(&mut self) -> Result<()> {
        self.say("submit one at a time");
        let (bed, mut floor) = (self.bed("each")?, self.floor()?);
        let (mut rates, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds {
            floors.push(self.runtime.block_on(floor.insert_single(self.scale.time))?);
            rates.push(self.runtime.block_on(bed.submit_each(16, self.scale.time))?);
        }
        self.discard(bed, "each")?;
        self.discard_floor(floor)?;
        let line =
            Line::new("submit, one at a time from 16 tasks", Unit::PerSecond, median(&rates));
        self.lines
            .push(line.floor("insert from 16 connections", median(&floors)).bar(Bar::AtLeast(0.5)));
        Ok(())
    }

    fn submit_batches(&mut self) -> Result<()> {
        self.say("submit in batches");
        let (bed, mut floor) = (self.bed("batch")?, self.floor()?);
        let (mut rates, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds {
            floors.push(self.runtime.block_on(floor.insert_grouped(self.scale.batched))?);
            let submit = bed.submit_batches(self.scale.batched, BATCH);
            rates.push(self.runtime.block_on(submit)?);
        }
        self.discard(bed, "batch")?;
        self.discard_floor(floor)?;
        let line = Line::new("submit, batches of 1,000, one task", Unit::PerSecond, median(&rates));
        self.lines.push(line.floor("insert, by 1,000", median(&floors)).bar(Bar::AtLeast(0.4)));
        self.grouped_insert = floors;
        Ok(())
    }

    fn drain_by_sixteen(&mut self) -> Result<()> {
        self.say("drain, 16 in flight");
        let (bed, mut floor) = (self.bed("sixteen")?, self.floor()?);
        let count = self.scale.drained_by_sixteen;
        let total = count * self.scale.rounds;
        self.runtime.block_on(floor.fill(total))?;
        self.runtime.block_on(bed.submit_batches(total, BATCH))?;
        let (mut rates, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds {
            floors.push(self.runtime.block_on(floor.drain(1, count, self.scale.time))?);
            let work = Work { count, wait: WAIT, limit: self.scale.patience };
            rates.push(self.runtime.block_on(bed.drain(SIXTEEN, work))?.rate);
        }
        self.discard(bed, "sixteen")?;
        self.discard_floor(floor)?;
        let name = "drain, 16 in flight (1 worker x 16)";
        let line = Line::new(name, Unit::PerSecond, median(&rates));
        let name = "claim+complete, one at a time";
        self.lines.push(line.floor(name, median(&floors)).bar(Bar::AtLeast(2.0)));
        Ok(())
    }

    fn drain_by_many(&mut self) -> Result<()> {
        self.say("drain, 256 in flight");
        let (bed, mut floor) = (self.bed("many")?, self.floor()?);
        let (count, raw) = (self.scale.drained, self.scale.drained_by_floor);
        self.runtime.block_on(floor.fill(raw * self.scale.rounds))?;
        self.runtime.block_on(bed.submit_batches(count * self.scale.rounds, BATCH))?;
        let (mut rates, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds {
            let limit = self.scale.patience;
            floors.push(self.runtime.block_on(floor.drain(GROUP, raw, limit))?);
            let work = Work { count, wait: WAIT, limit };
            rates.push(self.runtime.block_on(bed.drain(MANY, work))?.rate);
        }
        self.discard(bed, "many")?;
        self.discard_floor(floor)?;
        let name = "drain, 256 in flight (16 workers x 16)";
        let line = Line::new(name, Unit::PerSecond, median(&rates));
        let name = "claim+complete, by 100";
        self.lines.push(line.floor(name, median(&floors)).bar(Bar::AtLeast(0.35)));
        self.grouped_drain = floors;
        Ok(())
    }

    fn end_to_end(&mut self) -> Result<()> {
        self.say("end to end");
        let bed = self.bed("end")?;
        let mut rates = Vec::new();
        for _ in 0..self.scale.rounds {
            rates.push(self.runtime.block_on(bed.end_to_end(MANY, self.scale.drained))?);
        }
        self.discard(bed, "end")?;
        let both = 1.0 / median(&self.grouped_insert) + 1.0 / median(&self.grouped_drain);
        let name = "submit by 100, claim, complete (16 x 16)";
        let line = Line::new(name, Unit::PerSecond, median(&rates));
        self.lines.push(line.floor("insert by 1,000, claim, complete by 100", 1.0 / both));
        Ok(())
    }

    fn latencies(&mut self) -> Result<()> {
        self.say("latencies at rest");
        let bed = self.bed("rest")?;
        let rest = Duration::from_millis(5);
        let (mut raw, mut engine) = (Vec::new(), Vec::new());
        let mut probe = self.runtime.block_on(async { Probe::new(bed.clone()) });
        for _ in 0..10 {
            // The first few warm caches up.
            self.runtime.block_on(probe.once(rest))?;
        }
        // The speed of a disk that others use changes within seconds: many short turns.
        for _ in 0..self.scale.probes / 10 {
            raw.push(self.server.pgbench_latency(50)?);
            for _ in 0..10 {
                engine.push(self.runtime.block_on(probe.once(rest))?);
            }
        }
        drop(probe);
        self.discard(bed, "rest")?;
        let of = |part: fn(&Latencies) -> f64| engine.iter().map(part).collect::<Vec<_>>();
        let (submit, start, complete) = (of(|l| l.submit), of(|l| l.start), of(|l| l.complete));
        let lone = median(&raw);
        let mut line = |name: &str, value: f64, bar: Option<Bar>| {
            let line = Line::new(name, Unit::Micros, value).floor("one pgbench transaction", lone);
            self.lines.push(Line { bar, ..line });
        };
        line("one submit alone, p50", median(&submit), None);
        line("one complete alone, p50", median(&complete), None);
        line("submit to start, idle engine, p50", median(&start), Some(Bar::AtMost(5.0)));
        line("submit to start, idle engine, p99", percentile(&start, 0.99), None);
        Ok(())
    }

    /// Graphs, steps, waits and streams.
    fn domain(&mut self) -> Result<()> {
        self.say("flows, steps, signals, cancellations and frames");
        let bed = self.bed("domain")?;
        self.lines.extend(domain::measure(&self.runtime, &bed, self.scale.domain)?);
        self.discard(bed, "domain")
    }

    /// Flows far larger than usual.
    fn scale(&mut self) -> Result<()> {
        self.say("very wide, deep and large flows");
        let url = self.server.database("scale")?;
        let options = PostgresOptions { engine: scale::config(), ..PostgresOptions::new(url) };
        let bed = Bed::new(self.runtime.block_on(PostgresBackend::open(options))?, &self.payload);
        self.lines.extend(scale::measure(&self.runtime, &bed)?);
        self.discard(bed, "scale")
    }

    /// An engine that has worked, has nothing to do any more and has a worker that waits. It rests
    /// in a database of its own while the workloads run in theirs.
    fn begin_idle(&self) -> Result<Option<Idle>> {
        self.say("leaving an engine idle");
        let url = self.server.database(IDLE)?;
        if !self.server.count_statements(IDLE)? {
            return Ok(None);
        }
        let bed = self.bed_at(&url)?;
        self.runtime.block_on(bed.end_to_end(SIXTEEN, 100))?;
        let worker = bed.clone();
        let waiting = self.runtime.spawn(async move { worker.starve(Duration::MAX / 2).await });
        std::thread::sleep(Duration::from_secs(1));
        let before = self.server.statements(IDLE)?;
        Ok(Some(Idle { bed, waiting, before, since: Instant::now() }))
    }

    fn end_idle(&mut self, idle: Option<Idle>) -> Result<()> {
        let mut line = Line::new("statements, idle engine, one worker", Unit::PerMinute, f64::NAN);
        line.bar = Some(Bar::ValueAtMost(10.0));
        match idle {
            Some(Idle { bed, waiting, before, since }) => {
                std::thread::sleep(IDLE_TIME.saturating_sub(since.elapsed()));
                let ran = self.server.statements(IDLE)? - before;
                line.value = ran * 60.0 / since.elapsed().as_secs_f64();
                ensure!(!waiting.is_finished(), "the idle engine's worker has gone");
                waiting.abort();
                self.runtime.block_on(bed.close());
            }
            None => line.waived = Some("n/a: the server has no pg_stat_statements".into()),
        }
        self.lines.push(line);
        self.server.remove(IDLE)
    }

    /// Returns the rate at which the long lane was drained.
    fn backlog(&mut self) -> Result<f64> {
        let waiting = self.scale.waiting;
        self.say(&format!("preparing {waiting} waiting executions"));
        let (long, short) = (self.bed("long")?, self.bed("short")?);
        let half = self.scale.claimed / 2;
        self.runtime.block_on(long.submit_batches(waiting, BATCH))?;
        self.runtime.block_on(short.submit_batches(SHORT + half, BATCH))?;
        self.say("claims from a long and from a short lane");
        let (mut of_long, mut of_short) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds.max(4) {
            of_short.push(self.runtime.block_on(short.claim_only(MANY, self.scale.claimed))?);
            self.runtime.block_on(short.submit_batches(self.scale.claimed, BATCH))?;
            of_long.push(self.runtime.block_on(long.claim_only(MANY, self.scale.claimed))?);
        }
        self.discard(short, "short")?;
        let taken = self.scale.rounds.max(4) * self.scale.claimed;
        let name = format!("claim, {} waiting (16 workers x 16)", thousands(waiting));
        let line = Line::new(name, Unit::PerSecond, median(&of_long));
        self.lines
            .push(line.floor("claim, 10,000 waiting", median(&of_short)).bar(Bar::AtLeast(0.8)));

        self.say("draining the long lane");
        let watch = MemoryWatch::start();
        let work =
            Work { count: waiting - taken, wait: WAIT, limit: self.scale.patience_with_backlog };
        let drained = self.runtime.block_on(long.drain(MANY, work))?;
        let memory = watch.stop();
        self.discard(long, "long")?;
        let mut name = format!("drain of {} (16 workers x 16)", thousands(waiting));
        if drained.count < work.count {
            name += &format!(", stopped after {}", thousands(drained.count));
        }
        let line = Line::new(name, Unit::PerSecond, drained.rate);
        self.lines.push(line.floor("claim+complete, by 100", median(&self.grouped_drain)));
        let name = format!("resident memory while draining {}", thousands(waiting));
        self.lines.push(Line::new(name, Unit::Megabytes, memory));
        Ok(drained.rate)
    }

    /// The drain without readers is measured before and after, for half the time each, because a
    /// drain this long cannot take turns with another.
    fn held_snapshot(&mut self, rate: f64) -> Result<()> {
        let held = self.scale.held;
        let before = self.sustained(rate, held / 2, false)?;
        let under = self.sustained(rate, held, true)?;
        let after = self.sustained(rate, held / 2, false)?;
        let name = format!("drain, 3 snapshots held for {} s (16 x 16)", held.as_secs());
        let line = Line::new(name, Unit::PerSecond, under);
        let free = f64::midpoint(before, after);
        self.lines.push(line.floor("without them", free).bar(Bar::AtLeast(0.7)));
        Ok(())
    }

    /// The rate at which a lane is drained for long enough that what is dead and may not be removed
    /// piles up.
    fn sustained(&self, rate: f64, time: Duration, with_readers: bool) -> Result<f64> {
        // More than fits into the time at the rate that was seen, so that the lane lasts.
        let count = (rate * time.as_secs_f64() * 1.5) as usize;
        let readers = if with_readers { "with readers" } else { "without readers" };
        self.say(&format!("draining {count} for {} s {readers}", time.as_secs()));
        let url = self.server.database("held")?;
        let bed = self.bed_at(&url)?;
        self.runtime.block_on(bed.submit_batches(count, BATCH))?;
        let work = Work { count, wait: WAIT, limit: time };
        let drained = self.runtime.block_on(async {
            let readers = match with_readers {
                true => Some(Readers::start(&url, self.scale.held).await?),
                false => None,
            };
            let drained = bed.drain(MANY, work).await?;
            if let Some(readers) = readers {
                readers.stop().await?;
            }
            anyhow::Ok(drained)
        })?;
        self.discard(bed, "held")?;
        Ok(drained.rate)
    }

    fn report(mut self, quick: bool) -> Result<Report> {
        let name = "pgbench simple-update, 16 clients (the server)";
        self.lines.insert(0, Line::new(name, Unit::PerSecond, median(&self.pgbench)));
        let name = "fdatasync after 4 KiB (the disk)";
        self.lines.insert(0, Line::new(name, Unit::PerSecond, median(&self.flushes)));
        let mut title = format!(
            "PostgreSQL {}, fsync=on, synchronous_commit=on, full_page_writes=on, Unix socket, \
             payloads of {PAYLOAD_BYTES} bytes; medians of {} rounds, {:.0} s in all",
            self.server.version()?,
            self.scale.rounds,
            self.began.elapsed().as_secs_f64(),
        );
        if quick {
            title += "\nquick: 100,000 waiting executions instead of 1,000,000, snapshots held \
                      for 10 s instead of 60";
        }
        Ok(Report { title, lines: self.lines })
    }
}
