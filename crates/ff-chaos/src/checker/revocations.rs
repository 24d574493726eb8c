//! A revoked token does nothing any more, and slow clients do not keep honest ones from an answer.

use std::collections::HashMap;

use uuid::Uuid;

use super::{Kind, Report};
use crate::evidence::Evidence;
use crate::history::{Outcome, Phase};
use crate::http::revoked::{Line, seat};

/// What a server says when it turns a request away because of others.
const TURNED_AWAY: [&str; 5] = [
    "overloaded",
    "request_timeout",
    "too_many_streams",
    "too_many_requests",
    "rate_limit_exceeded",
];

/// What was seen of revoked tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revocations {
    pub tokens: usize,
    /// Requests that were accepted before or soon after.
    pub accepted: usize,
    /// Requests that were made later than a revoked token may act, all of them refused.
    pub late: usize,
}

/// Wants everything that a token did to be over so many milliseconds after its revocation was
/// acknowledged, and every other client to have been let in.
pub fn check(
    lines: &[Line],
    evidence: &Evidence,
    patience_ms: i64,
    report: &mut Report,
) -> Revocations {
    let mut revoked: HashMap<Uuid, i64> = HashMap::new();
    for line in lines {
        if let Line::Revoked { token, at } = line {
            revoked.insert(*token, *at);
        }
    }
    for line in lines {
        let Line::Shown { token, wait, at } = line else { continue };
        let late = revoked.get(token).map(|revoked| at - revoked).filter(|ms| *ms > patience_ms);
        if let Some(late) = late {
            let text = format!("{wait}: {token} was shown an event {late} ms after its end");
            report.add(Kind::Trespass, text);
        }
    }
    let ends: HashMap<String, i64> =
        revoked.iter().map(|(token, at)| (seat(*token), at + patience_ms)).collect();
    let mut seen = Revocations { tokens: revoked.len(), ..Revocations::default() };
    let mut asked: HashMap<&str, i64> = HashMap::new();
    for entry in &evidence.history {
        let Some((seat, _)) = entry.proc.rsplit_once('-') else { continue };
        let end = ends.get(seat);
        if end.is_none() && !seat.starts_with("token-") {
            turned_away(entry.result.as_ref(), &entry.op_id, report);
            continue;
        }
        let now = i64::try_from(entry.t_mono_ns / 1_000_000).unwrap_or(i64::MAX);
        match entry.phase {
            Phase::Invoke => {
                asked.insert(&entry.op_id, now);
                seen.late += usize::from(end.is_some_and(|end| now > *end));
            }
            Phase::Ok => {
                seen.accepted += 1;
                let when = asked.get(&*entry.op_id).copied().unwrap_or(now);
                if end.is_some_and(|end| when > *end) {
                    let text = format!("{} was accepted from a revoked token", entry.op_id);
                    report.add(Kind::Trespass, text);
                }
            }
            Phase::Fail | Phase::Info => {}
        }
    }
    seen
}

fn turned_away(outcome: Option<&Outcome>, op_id: &str, report: &mut Report) {
    if let Some(Outcome::Error { code }) = outcome
        && TURNED_AWAY.contains(&&**code)
    {
        report.add(Kind::TurnedAway, format!("{op_id} was turned away: {code}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Entry, Op};

    fn entry(proc: &str, op_id: &str, phase: Phase, at_ms: u64, code: Option<&str>) -> Entry {
        let op = Op::Claim { worker: "w".into() };
        let result = code.map(|code| Outcome::Error { code: code.into() });
        let t_mono_ns = at_ms * 1_000_000;
        Entry { proc: proc.into(), op_id: op_id.into(), op, phase, t_mono_ns, result }
    }

    fn judged(lines: &[Line], history: Vec<Entry>) -> (Report, Revocations) {
        let evidence = Evidence { history, ..Evidence::default() };
        let mut report = Report::default();
        let seen = check(lines, &evidence, 1_000, &mut report);
        (report, seen)
    }

    #[test]
    fn what_a_token_does_in_time_is_fine() {
        let token = Uuid::from_u128(7);
        let own = format!("{}-1", seat(token));
        let lines = [
            Line::Revoked { token, at: 5_000 },
            Line::Shown { token, wait: "events".into(), at: 5_900 },
        ];
        let (report, seen) = judged(
            &lines,
            vec![
                entry(&own, "a", Phase::Invoke, 5_900, None),
                entry(&own, "a", Phase::Ok, 9_000, None),
                entry(&own, "b", Phase::Invoke, 6_100, None),
                entry(&own, "b", Phase::Fail, 6_200, Some("unauthorized")),
            ],
        );
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        assert_eq!(seen, Revocations { tokens: 1, accepted: 1, late: 1 });
    }

    #[test]
    fn trespasses_are_found() {
        let token = Uuid::from_u128(7);
        let own = format!("{}-1", seat(token));
        let revoked = Line::Revoked { token, at: 5_000 };
        let shown = Line::Shown { token, wait: "tail".into(), at: 6_001 };
        let (report, _) = judged(&[revoked.clone(), shown], Vec::new());
        assert_eq!(report.count(Kind::Trespass), 1);
        let late = vec![
            entry(&own, "a", Phase::Invoke, 6_001, None),
            entry(&own, "a", Phase::Ok, 6_002, None),
        ];
        let (report, _) = judged(&[revoked], late);
        assert_eq!(report.count(Kind::Trespass), 1);
    }

    #[test]
    fn honest_clients_that_are_turned_away_are_found() {
        let turned = entry("everybody-1", "a", Phase::Info, 1, Some("overloaded"));
        let busy = entry("everybody-1", "b", Phase::Info, 1, Some("busy"));
        let (report, _) = judged(&[], vec![turned, busy]);
        assert_eq!(report.count(Kind::TurnedAway), 1);
    }
}
