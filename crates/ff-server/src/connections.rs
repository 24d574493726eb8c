//! How many connections there may be, in all and from one address. A few more are kept for probes:
//! a server that is full must still be able to say that it is alive.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::block;
use crate::config::Config;

/// Connections beyond the limit, on which probes alone are answered.
const SPARE: usize = 64;
const SPARE_PER_ADDRESS: usize = 8;

pub struct Places {
    whole: Pool,
    spare: Pool,
}

/// The right to one connection, given back when it is dropped.
pub struct Admittance {
    whole: bool,
    _permit: OwnedSemaphorePermit,
    _address: Option<Counted>,
}

struct Pool {
    permits: Arc<Semaphore>,
    /// Only addresses with a connection, so it is bounded as they are.
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    per_address: usize,
}

struct Counted {
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Places {
    pub fn new(config: &Config) -> Self {
        Self {
            whole: Pool::new(affordable(config.connections), config.connections_per_address),
            spare: Pool::new(SPARE, SPARE_PER_ADDRESS),
        }
    }

    /// Takes in a connection. A trusted proxy speaks for many and has no limit of its own.
    pub fn enter(&self, peer: IpAddr, trusted: bool) -> Option<Admittance> {
        let enter = |pool: &Pool, whole| {
            let (permit, address) = pool.enter(peer, trusted)?;
            Some(Admittance { whole, _permit: permit, _address: address })
        };
        enter(&self.whole, true).or_else(|| enter(&self.spare, false))
    }
}

/// Files that are kept for the store, webhooks and probes.
const OTHER_FILES: usize = 192;

/// As many connections as the process may have files for: without one, accepting fails, and probes
/// are not answered either.
fn affordable(connections: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let Some(files) = open_files(&limits) else { return connections };
    let most = files.saturating_sub(OTHER_FILES).max(1);
    if most < connections {
        tracing::warn!(
            files,
            connections = most,
            "the process may open too few files for the setting `connections` = {connections}; \
             raise its limit (ulimit -n)"
        );
    }
    connections.min(most)
}

/// The soft limit on open files, as the kernel writes it.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Admittance {
    /// Whether everything is served on it, not probes alone.
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

impl Pool {
    fn new(permits: usize, per_address: usize) -> Self {
        let permits = Arc::new(Semaphore::new(permits));
        Self { permits, by_address: Arc::default(), per_address }
    }

    fn enter(
        &self,
        peer: IpAddr,
        trusted: bool,
    ) -> Option<(OwnedSemaphorePermit, Option<Counted>)> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        if trusted {
            return Some((permit, None));
        }
        let address = block(peer);
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= self.per_address {
            return None;
        }
        *count += 1;
        drop(counts);
        Some((permit, Some(Counted { by_address: self.by_address.clone(), address })))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_files_is_read() {
        let limits = "Limit        Soft Limit  Hard Limit  Units\n\
            Max processes   7   7   processes\nMax open files   1024   524288   files\n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(open_files("Max open files unlimited unlimited files"), None);
        assert_eq!(affordable(3), 3);
    }

    #[test]
    fn one_address_cannot_take_all() {
        let settings = Config { connections: 3, connections_per_address: 2, ..Config::default() };
        let places = Places::new(&settings);
        let enter = |peer: &str, trusted| {
            let admittance = places.enter(peer.parse().unwrap(), trusted)?;
            Some((admittance.is_whole(), admittance))
        };
        let mut held = Vec::new();
        for (peer, trusted, expected) in [
            ("1.1.1.1", false, true),
            ("::ffff:1.1.1.1", false, true),
            ("1.1.1.1", false, false),
            ("2.2.2.2", false, true),
            ("3.3.3.3", false, false),
            ("4.4.4.4", true, false),
        ] {
            let (whole, admittance) = enter(peer, trusted).unwrap();
            assert_eq!(whole, expected, "{peer}");
            held.push(admittance);
        }
        let spare: Vec<_> = (0..20).filter_map(|_| enter("1.1.1.1", false)).collect();
        assert_eq!(spare.len(), SPARE_PER_ADDRESS - 1);
        drop((held, spare));
        assert!(places.whole.by_address.lock().unwrap().is_empty());
        assert!(places.spare.by_address.lock().unwrap().is_empty());
        // A trusted proxy is not counted.
        let held: Vec<_> = (0..3).map(|_| enter("9.9.9.9", true).unwrap()).collect();
        assert!(held.iter().all(|(whole, _)| *whole));
    }
}
