//! Numbers: rates, percentiles, medians, resident memory and what the disk alone can do.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;

/// So many things since then, per second.
pub(crate) fn per_second(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64().max(1e-9)
}

pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value below which this share of all values lies; 0 if there are none.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let place = (share * last as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(0.0)
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// How often a second the disk accepts 4 KiB more and says that they are safe.
pub(crate) fn fdatasync_rate(folder: &Path, time: Duration) -> Result<f64> {
    let path = folder.join("flush");
    let mut file = File::create(&path)?;
    let block = [7; 4096];
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < time {
        file.write_all(&block)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = per_second(count, start);
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// Watches the resident memory of this process until it is stopped.
pub(crate) struct MemoryWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl MemoryWatch {
    pub(crate) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut most = resident_megabytes();
            while !stopped.load(Ordering::Relaxed) {
                most = most.max(resident_megabytes());
                std::thread::sleep(Duration::from_millis(50));
            }
            most
        });
        Self { stop, thread }
    }

    /// The most that was seen, in MB.
    pub(crate) fn stop(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(f64::NAN)
    }
}

/// `VmRSS`, which Linux gives in units of 1,024 bytes; not a number elsewhere.
fn resident_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(median(&values), 50.0);
        assert_eq!(percentile(&values, 0.99), 99.0);
        assert_eq!(percentile(&values, 1.0), 100.0);
        assert_eq!(median(&[]), 0.0);
    }
}
