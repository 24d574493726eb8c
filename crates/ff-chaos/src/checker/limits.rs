//! What is used of a budget and what is held of it never exceed its limit together, and nothing is
//! held once nobody runs.

use super::{Kind, Report};
use crate::evidence::Evidence;
use crate::history::{Outcome, Standing};

pub fn check(evidence: &Evidence, report: &mut Report) {
    let seen = evidence.history.iter().filter_map(|entry| match &entry.result {
        Some(Outcome::Budget(standing)) => Some(standing),
        _ => None,
    });
    for Standing { used, reserved, hard } in seen.chain(&evidence.budget) {
        if used + reserved > *hard {
            let text = format!("the budget stood at {used} used and {reserved} held of {hard}");
            report.add(Kind::DoubleAccepted, text);
        }
    }
    let over = evidence.executions.values().all(|execution| execution.state.is_finished());
    if let Some(left) = evidence.budget.filter(|left| over && left.reserved > 0) {
        report.add(Kind::Stuck, format!("nobody runs, and {} are still held", left.reserved));
    }
}
