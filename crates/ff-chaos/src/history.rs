//! What clients write down: one JSON line per call and per answer, in files that survive a kill.
//!
//! The order of the lines is real time: a call is written down before it is made, and an answer
//! after it has arrived. Processes that follow each other take the same seat, so that their files
//! do; those that run at the same time have different seats and are told apart by the host's clock.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

mod ops;

pub use ops::{Grant, Lease, Op, Outcome, Standing, Sweep, Work};

/// One line: a call, or what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub proc: String,
    /// Names one logical operation; a retry reuses it.
    pub op_id: String,
    #[serde(flatten)]
    pub op: Op,
    pub phase: Phase,
    /// By the host's clock, which all processes share; it never runs backwards within a file.
    pub t_mono_ns: u64,
    pub result: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Invoke,
    /// Accepted.
    Ok,
    /// Refused: it did not happen.
    Fail,
    /// Nobody knows whether it happened.
    Info,
}

/// An append-only file of JSON lines. Each line is one write, so a kill cannot mix two.
pub struct Journal {
    file: File,
}

impl Journal {
    pub fn append_to(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        if file.metadata()?.len() > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            // A kill may have torn the last line; the next one must not continue it.
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self { file })
    }

    /// A client that cannot write down what it does must not do it.
    pub fn write<T: Serialize>(&self, line: &T) {
        let mut bytes = serde_json::to_vec(line).expect("history lines are plain data");
        bytes.push(b'\n');
        (&self.file).write_all(&bytes).expect("the history can be written");
    }
}

/// What a journal holds, and how many of its lines a kill has torn.
#[derive(Debug)]
pub struct Journalled<T> {
    pub lines: Vec<T>,
    pub torn: usize,
}

pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Journalled<T>> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let mut journalled = Journalled { lines: Vec::new(), torn: 0 };
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(line) => journalled.lines.push(line),
            Err(_) => journalled.torn += 1,
        }
    }
    Ok(journalled)
}

/// One process of a run: the seat that it takes, and the how manyth it is there, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sitting {
    pub seat: String,
    pub round: u32,
}

impl Sitting {
    /// The process that is about to write its history here.
    pub fn next(dir: &Path, seat: &str) -> Self {
        let sitting = |round| Self { seat: seat.to_owned(), round };
        let free = (1..).map(sitting).find(|sitting| !sitting.path(dir).exists());
        free.unwrap_or_else(|| sitting(u32::MAX))
    }

    /// Whoever had the seat before.
    pub fn before(&self) -> Option<Self> {
        let round = self.round.checked_sub(1).filter(|round| *round > 0)?;
        Some(Self { seat: self.seat.clone(), round })
    }

    pub fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{PREFIX}{}.{:06}.jsonl", self.seat, self.round))
    }
}

impl fmt::Display for Sitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.seat, self.round)
    }
}

const PREFIX: &str = "history.";

/// Every seat that somebody has taken.
pub fn seats(dir: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut seats = BTreeSet::new();
    for entry in fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let seat = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.'));
        seats.extend(seat.map(|(seat, _)| seat.to_owned()));
    }
    Ok(seats)
}

/// The histories of all processes as one, in real time.
pub fn read_all(dir: &Path) -> anyhow::Result<Journalled<Entry>> {
    let mut all = Journalled { lines: Vec::new(), torn: 0 };
    for seat in seats(dir)? {
        let mut latest = 0;
        for round in 1..Sitting::next(dir, &seat).round {
            let mut one = read::<Entry>(&Sitting { seat: seat.clone(), round }.path(dir))?;
            for line in &mut one.lines {
                // The order of a seat's lines is certain, whatever the host's clock did.
                latest = line.t_mono_ns.max(latest);
                line.t_mono_ns = latest;
            }
            all.lines.extend(one.lines);
            all.torn += one.torn;
        }
    }
    all.lines.sort_by_key(|line| line.t_mono_ns);
    Ok(all)
}

/// The operations whose last call has neither been accepted nor refused, in order.
pub fn unresolved(history: &[Entry]) -> Vec<(String, Op)> {
    let mut order: Vec<&Entry> = Vec::new();
    let mut open: HashMap<&str, bool> = HashMap::new();
    for entry in history {
        let unknown = matches!(entry.phase, Phase::Invoke | Phase::Info);
        if open.insert(&entry.op_id, unknown).is_none() {
            order.push(entry);
        }
    }
    let open = order.into_iter().filter(|entry| open[entry.op_id.as_str()]);
    open.map(|entry| (entry.op_id.clone(), entry.op.clone())).collect()
}

/// Writes one process's history.
pub struct Recorder {
    journal: Journal,
    name: String,
    next: AtomicU64,
    latest: AtomicU64,
}

impl Recorder {
    pub fn open(dir: &Path, sitting: &Sitting) -> io::Result<Self> {
        Ok(Self {
            journal: Journal::append_to(&sitting.path(dir))?,
            name: sitting.to_string(),
            next: AtomicU64::new(0),
            latest: AtomicU64::new(0),
        })
    }

    pub fn next_op_id(&self) -> String {
        format!("{}-{}", self.name, self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub fn write(&self, op_id: &str, op: &Op, phase: Phase, result: Option<Outcome>) {
        self.journal.write(&Entry {
            proc: self.name.clone(),
            op_id: op_id.to_owned(),
            op: op.clone(),
            phase,
            t_mono_ns: self.now(),
            result,
        });
    }

    fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

/// FNV-1a: enough to tell whether bytes are the same bytes.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
