//! How long work lay there after the worker that held it was killed.

use std::collections::HashMap;
use std::fmt;

use ff_core::contracts::EventType;

use crate::evidence::Evidence;
use crate::history::{Outcome, Phase};
use crate::workload::LEASE_MS;

/// What became of leases whose holder was killed, from its last sign of life on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reruns {
    /// Until the lease was taken back, in milliseconds, in ascending order.
    pub expiries: Vec<u64>,
    /// Until somebody else was given the work. It may have had to queue behind other work.
    pub grants: Vec<u64>,
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
        let mut reruns = Self::default();
        for event in &evidence.log {
            if event.event_type != EventType::LeaseExpired {
                continue;
            }
            let Some((holder, _)) = grants.get(&(&*event.id, event.epoch)) else { continue };
            let Some(gone) = gone.get(holder) else { continue };
            // What expired while its holder lived tells nothing about deaths.
            let expired = u64::try_from(event.at).unwrap_or_default() * 1_000_000;
            if expired <= *gone {
                continue;
            }
            reruns.expiries.push((expired - gone) / 1_000_000);
            let next = (1..4).find_map(|more| grants.get(&(&*event.id, event.epoch + more)));
            if let Some((_, next)) = next.filter(|(_, next)| next > gone) {
                reruns.grants.push((next - gone) / 1_000_000);
            }
        }
        reruns.expiries.sort_unstable();
        reruns.grants.sort_unstable();
        reruns
    }
}

/// The wait that so many percent did not exceed.
fn percentile(waits: &[u64], percent: usize) -> Option<u64> {
    let last = waits.len().checked_sub(1)?;
    waits.get(last * percent / 100).copied()
}

impl fmt::Display for Reruns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, waits) in [("lease taken back", &self.expiries), ("re-run", &self.grants)] {
            let count = waits.len();
            match (percentile(waits, 50), percentile(waits, 99)) {
                (Some(p50), Some(p99)) => writeln!(
                    f,
                    "worker death to {what}: p50 {p50} ms, p99 {p99} ms ({count} of {LEASE_MS} ms)"
                )?,
                _ => writeln!(f, "worker death to {what}: nobody died with work in hand")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let waits: Vec<u64> = (1..=100).collect();
        assert_eq!((percentile(&waits, 50), percentile(&waits, 99)), (Some(50), Some(99)));
        assert_eq!(percentile(&[], 50), None);
        assert!(Reruns::default().to_string().contains("nobody died"));
    }
}
