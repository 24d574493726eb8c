//! What clients write down: one JSON line per call and per answer, in files that survive a kill.
//!
//! The order of the lines is real time: a call is written down before it is made, an answer after
//! it has arrived, and the files of successive processes follow each other.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One line: a call, or what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub proc: String,
    /// Names one logical operation; a retry reuses it.
    pub op_id: String,
    #[serde(flatten)]
    pub op: Op,
    pub phase: Phase,
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", content = "args", rename_all = "snake_case")]
pub enum Op {
    Submit(Work),
    Claim {
        worker: String,
    },
    Renew(Lease),
    /// The result's bytes follow from `seed`; `result` is their hash.
    Complete {
        lease: Lease,
        seed: u64,
        result: u64,
    },
    Fail {
        lease: Lease,
        fatal: bool,
    },
    /// The holder gives up.
    GiveUp(Lease),
    /// An operator cancels.
    Cancel {
        id: String,
    },
    Revoke {
        id: String,
    },
    Replay {
        id: String,
    },
}

impl Op {
    /// The lease under which the operation writes, if it does.
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Renew(lease)
            | Self::Complete { lease, .. }
            | Self::Fail { lease, .. }
            | Self::GiveUp(lease) => Some(lease),
            _ => None,
        }
    }

    /// Whether asking again is promised to give the first outcome.
    pub fn is_repeatable(&self) -> bool {
        matches!(
            self,
            Self::Submit(_)
                | Self::Complete { .. }
                | Self::Fail { .. }
                | Self::GiveUp(_)
                | Self::Cancel { .. }
        )
    }
}

/// One piece of work as its submitter chose it. Everything but the names follows from `seed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub id: String,
    pub key: Option<String>,
    pub seed: u64,
    /// The hash of the payload.
    pub payload: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    pub id: String,
    pub epoch: u64,
    /// The handle in its text form.
    pub handle: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// This execution stands for the work.
    Accepted {
        id: String,
    },
    Granted {
        grants: Vec<Grant>,
    },
    Done,
    /// The lease stands until then, by the store's clock.
    Renewed {
        until: i64,
    },
    RetryScheduled {
        delay_until: i64,
    },
    FinallyFailed,
    Revoked {
        epoch: u64,
    },
    /// Accepted, but there was nothing to do.
    Unchanged,
    Error {
        code: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    pub lease: Lease,
    /// The hash of the payload that the worker was given.
    pub payload: u64,
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

/// The histories of a run: one file per process, numbered in order of time from 1.
pub fn path_of(dir: &Path, round: u32) -> PathBuf {
    dir.join(format!("history.{round:06}.jsonl"))
}

/// The number of the process that is about to write its history here.
pub fn next_round(dir: &Path) -> u32 {
    (1..).find(|round| !path_of(dir, *round).exists()).unwrap_or(u32::MAX)
}

pub fn read_all(dir: &Path) -> anyhow::Result<Journalled<Entry>> {
    let mut all = Journalled { lines: Vec::new(), torn: 0 };
    for round in 1..next_round(dir) {
        let one = read(&path_of(dir, round))?;
        all.lines.extend(one.lines);
        all.torn += one.torn;
    }
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
    round: u32,
    next: AtomicU64,
    started: Instant,
    started_at: Duration,
}

impl Recorder {
    pub fn open(dir: &Path, round: u32) -> io::Result<Self> {
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            journal: Journal::append_to(&path_of(dir, round))?,
            round,
            next: AtomicU64::new(0),
            started: Instant::now(),
            started_at,
        })
    }

    pub fn next_op_id(&self) -> String {
        format!("{}-{}", self.round, self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub fn write(&self, op_id: &str, op: &Op, phase: Phase, result: Option<Outcome>) {
        let since = self.started_at + self.started.elapsed();
        self.journal.write(&Entry {
            proc: format!("round-{}", self.round),
            op_id: op_id.to_owned(),
            op: op.clone(),
            phase,
            t_mono_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            result,
        });
    }
}

/// FNV-1a: enough to tell whether bytes are the same bytes.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_documented_shape_and_read_back() {
        let entry = Entry {
            proc: "round-1".into(),
            op_id: "1-0".into(),
            op: Op::Cancel { id: "x".into() },
            phase: Phase::Ok,
            t_mono_ns: u64::MAX,
            result: Some(Outcome::Done),
        };
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(
            text,
            r#"{"proc":"round-1","op_id":"1-0","op":"cancel","args":{"id":"x"},"#.to_owned()
                + r#""phase":"ok","t_mono_ns":18446744073709551615,"result":"done"}"#
        );
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
    }

    #[test]
    fn a_torn_line_harms_nothing_but_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        fs::write(&path, "1\n2\n{\"to").unwrap();
        Journal::append_to(&path).unwrap().write(&3);
        let journalled = read::<u32>(&path).unwrap();
        assert_eq!((journalled.lines, journalled.torn), (vec![1, 2, 3], 1));
    }

    #[test]
    fn only_the_last_call_decides_whether_an_operation_is_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::open(dir.path(), 1).unwrap();
        let op = |id: &str| Op::Cancel { id: id.into() };
        recorder.write("a", &op("a"), Phase::Invoke, None);
        recorder.write("b", &op("b"), Phase::Invoke, None);
        recorder.write("b", &op("b"), Phase::Info, None);
        recorder.write("c", &op("c"), Phase::Invoke, None);
        recorder.write("b", &op("b"), Phase::Invoke, None);
        recorder.write("b", &op("b"), Phase::Fail, None);
        recorder.write("c", &op("c"), Phase::Ok, None);
        let history = read_all(dir.path()).unwrap();
        let open: Vec<_> = unresolved(&history.lines).into_iter().map(|(id, _)| id).collect();
        assert_eq!(open, ["a"]);
    }
}
