//! What is used of a limit and what is held of it never exceed it together, nothing is held once
//! nobody runs, what was reported is counted once, and a rate is never exceeded.

use std::collections::HashMap;

use ff_core::contracts::EventType;

use super::{Kind, Report};
use crate::evidence::Evidence;
use crate::history::{Entry, Op, Outcome, Phase, Standing};
use crate::workload::limits::{METERED, RATE};

pub fn check(evidence: &Evidence, report: &mut Report) {
    let seen = evidence.history.iter().filter_map(|entry| match &entry.result {
        Some(Outcome::Limit(standing)) => Some(standing),
        _ => None,
    });
    for Standing { used, reserved, hard } in seen.chain(evidence.limits.values()) {
        if used.saturating_add(*reserved) > *hard {
            let text = format!("a limit stood at {used} used and {reserved} held of {hard}");
            report.add(Kind::DoubleAccepted, text);
        }
    }
    let over = evidence.executions.values().all(|execution| execution.state.is_finished());
    for (name, left) in evidence.limits.iter().filter(|(_, left)| over && left.reserved > 0) {
        let text = format!("nobody runs, and {} of the {name} are still held", left.reserved);
        report.add(Kind::Stuck, text);
    }
    if let Some(ledger) = evidence.limits.get("ledger") {
        conserved(&evidence.history, ledger, report);
    }
    rate(evidence, report);
}

/// What became of the reports of one execution under one key.
#[derive(Default)]
struct Reported {
    applied: Vec<u64>,
    /// Somebody was told that it had been counted before.
    repeated: bool,
    /// What those said whose answer is not known, or was that it had been counted before.
    perhaps: Vec<u64>,
}

/// The ledger holds the sum of what was acknowledged, and what was not at most once.
fn conserved(history: &[Entry], ledger: &Standing, report: &mut Report) {
    let mut keys: HashMap<(&str, &str), Reported> = HashMap::new();
    for (amount, phase, outcome, key) in reports(history) {
        let reported = keys.entry(key).or_default();
        match (phase, outcome) {
            (Some(Phase::Ok), Some(Outcome::Done)) => reported.applied.push(amount),
            (Some(Phase::Ok), _) => reported.repeated = true,
            (Some(Phase::Fail), _) => {}
            _ => reported.perhaps.push(amount),
        }
    }
    let (mut least, mut most) = (0, 0);
    for ((id, key), reported) in &keys {
        let (applied, perhaps) = (&reported.applied, &reported.perhaps);
        match applied[..] {
            [] if reported.repeated && perhaps.is_empty() => {
                let text = format!("{id}: {key} was counted before anybody had reported it");
                report.add(Kind::DoubleAccepted, text);
            }
            [] => {
                let fewest = perhaps.iter().min().copied().filter(|_| reported.repeated);
                least += fewest.unwrap_or(0);
                most += perhaps.iter().max().copied().unwrap_or(0);
            }
            [amount] => (least, most) = (least + amount, most + amount),
            _ => {
                report.add(Kind::DoubleAccepted, format!("{id}: {key} was counted twice"));
            }
        }
    }
    if !(least..=most).contains(&ledger.used) {
        let text = format!("{least} to {most} were reported, the ledger holds {}", ledger.used);
        let kind = if ledger.used < least { Kind::Lost } else { Kind::DoubleAccepted };
        report.add(kind, text);
    }
}

type Call<'e> = (u64, Option<Phase>, Option<&'e Outcome>, (&'e str, &'e str));

/// Every report, with the last that is known of it.
fn reports(history: &[Entry]) -> Vec<Call<'_>> {
    let mut order: Vec<&str> = Vec::new();
    let mut calls: HashMap<&str, Call<'_>> = HashMap::new();
    for entry in history {
        let Op::Report { lease, key, amount } = &entry.op else { continue };
        let call = calls.entry(&entry.op_id).or_insert_with(|| {
            order.push(&entry.op_id);
            (*amount, None, None, (&lease.id, key))
        });
        if entry.phase != Phase::Invoke {
            (call.1, call.2) = (Some(entry.phase), entry.result.as_ref());
        }
    }
    order.into_iter().filter_map(|op_id| calls.remove(op_id)).collect()
}

/// No window of the rate's length has more claims than the rate allows.
fn rate(evidence: &Evidence, report: &mut Report) {
    let metered = |id: &str| evidence.executions.get(id).is_some_and(|one| one.kind == METERED);
    let claims = evidence.log.iter().filter(|event| event.event_type == EventType::Claimed);
    let mut times: Vec<i64> =
        claims.filter(|event| metered(&event.id)).map(|event| event.at).collect();
    times.sort_unstable();
    let (limit, window) = (RATE.limit as usize, RATE.window_ms.cast_signed());
    let later = times.iter().skip(limit);
    if let Some((first, _)) = times.iter().zip(later).find(|(first, last)| *last - *first < window)
    {
        let text = format!("more than {limit} claims within {window} ms from {first} on");
        report.add(Kind::DoubleAccepted, text);
    }
}
