//! Nobody writes under a lease that is known to have ended.
//!
//! The histories are in real time. So a write whose call came after the answer that ended its
//! lease must have been refused.

use std::collections::HashMap;

use super::{Kind, Report};
use crate::history::{Entry, Op, Outcome, Phase};

pub fn check(history: &[Entry], report: &mut Report) {
    // The lowest epoch that may still write, by execution.
    let mut floor: HashMap<&str, u64> = HashMap::new();
    // Whether an operation's lease was over when it was first called. A repeat is told the first
    // outcome, whatever has happened since.
    let mut stale: HashMap<&str, bool> = HashMap::new();
    for entry in history {
        if let Some(lease) = entry.op.lease() {
            let over = floor.get(lease.id.as_str()).is_some_and(|floor| lease.epoch < *floor);
            match entry.phase {
                Phase::Invoke => {
                    stale.entry(&entry.op_id).or_insert(over);
                }
                Phase::Ok if stale.get(entry.op_id.as_str()) == Some(&true) => {
                    let (id, epoch) = (&lease.id, lease.epoch);
                    let text = format!("{id}: {} wrote under ended epoch {epoch}", entry.op_id);
                    report.add(Kind::DoubleAccepted, text);
                }
                _ => {}
            }
        }
        if entry.phase == Phase::Ok {
            for (id, lowest) in raised(entry) {
                let floor = floor.entry(id).or_default();
                *floor = lowest.max(*floor);
            }
        }
    }
}

/// The executions whose older leases an accepted operation ended, and the first epoch that lives.
fn raised(entry: &Entry) -> Vec<(&str, u64)> {
    match (&entry.op, &entry.result) {
        (Op::Claim { .. }, Some(Outcome::Granted { grants })) => {
            grants.iter().map(|grant| (grant.lease.id.as_str(), grant.lease.epoch)).collect()
        }
        (Op::Revoke { id }, Some(Outcome::Revoked { epoch })) => vec![(id, *epoch)],
        (Op::Cancel { id }, _) => vec![(id, u64::MAX)],
        (Op::Suspend { lease, .. }, Some(Outcome::Suspended { .. })) => {
            vec![(&lease.id, lease.epoch + 1)]
        }
        (Op::Complete { lease, .. } | Op::Fail { lease, .. } | Op::GiveUp(lease), _) => {
            vec![(&lease.id, lease.epoch + 1)]
        }
        _ => Vec::new(),
    }
}
