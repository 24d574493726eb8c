//! How long work lay there after the worker that held it was killed.

use std::collections::HashMap;
use std::fmt;

use ff_core::contracts::EventType;

use crate::evidence::Evidence;
use crate::history::{Outcome, Phase};
use crate::workload::LEASE_MS;

/// From the last sign of life of a killed process to the next grant of what it held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reruns {
    /// In milliseconds, in ascending order.
    pub waits: Vec<u64>,
}

impl Reruns {
    /// Leases that were never ended by their holder and expired after it was gone.
    pub fn of(evidence: &Evidence) -> Self {
        let mut gone: HashMap<&str, u64> = HashMap::new();
        let mut grants: HashMap<(&str, u64), (&str, u64)> = HashMap::new();
        for entry in &evidence.history {
            gone.insert(&entry.proc, entry.t_mono_ns);
            if let (Phase::Ok, Some(Outcome::Granted { grants: given })) =
                (entry.phase, &entry.result)
            {
                for grant in given {
                    let key = (&*grant.lease.id, grant.lease.epoch);
                    grants.insert(key, (&entry.proc, entry.t_mono_ns));
                }
            }
        }
        let mut waits = Vec::new();
        for event in &evidence.log {
            if event.event_type != EventType::LeaseExpired {
                continue;
            }
            let Some((holder, _)) = grants.get(&(&*event.id, event.epoch)) else { continue };
            let next = (1..4).find_map(|more| grants.get(&(&*event.id, event.epoch + more)));
            let (Some((_, next)), Some(gone)) = (next, gone.get(holder)) else { continue };
            // What expired while its holder lived tells nothing about deaths.
            let expired = u64::try_from(event.at).unwrap_or_default() * 1_000_000;
            if expired > *gone && next > gone {
                waits.push((next - gone) / 1_000_000);
            }
        }
        waits.sort_unstable();
        Self { waits }
    }

    /// The wait that so many percent did not exceed.
    pub fn percentile(&self, percent: usize) -> Option<u64> {
        let last = self.waits.len().checked_sub(1)?;
        self.waits.get(last * percent / 100).copied()
    }
}

impl fmt::Display for Reruns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(p50), Some(p99)) = (self.percentile(50), self.percentile(99)) else {
            return writeln!(f, "no lease outlived its holder");
        };
        let count = self.waits.len();
        writeln!(
            f,
            "worker death to re-run: p50 {p50} ms, p99 {p99} ms; {count} leases of {LEASE_MS} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let reruns = Reruns { waits: (1..=100).collect() };
        assert_eq!((reruns.percentile(50), reruns.percentile(99)), (Some(50), Some(99)));
        assert_eq!(Reruns::default().percentile(50), None);
        assert!(Reruns::default().to_string().contains("no lease"));
    }
}
