//! Which runs are made up for, and which wait for others: pure functions over tables.

use crate::contracts::{MissedPolicy, OverlapPolicy};
use crate::types::TimestampMs;

/// A run that is no later than this counts as on time.
pub(super) const ON_TIME_MS: u64 = 60_000;

/// So many of a schedule that is due every second can be on time.
const ON_TIME_RUNS: usize = 61;

/// How many due times a look must see to apply the policy.
pub(super) fn reach(missed: MissedPolicy) -> usize {
    match missed {
        MissedPolicy::Skip => ON_TIME_RUNS,
        MissedPolicy::Latest => 1,
        MissedPolicy::All { max } => (max as usize).max(1),
    }
}

/// Which of the newest due times are run. `late_ms` is how long ago one should have started.
pub(super) fn made_up(
    missed: MissedPolicy,
    mut dues: Vec<TimestampMs>,
    late_ms: impl Fn(TimestampMs) -> u64,
) -> Vec<TimestampMs> {
    if missed == MissedPolicy::Skip {
        dues.retain(|due| late_ms(*due) <= ON_TIME_MS);
    }
    dues.split_off(dues.len().saturating_sub(reach(missed)))
}

/// What becomes of runs that are due together, given what was there before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub start: Vec<TimestampMs>,
    /// Those that run are cancelled before anything is started.
    pub cancel_running: bool,
    /// The one that waits for those that run.
    pub buffered: Option<TimestampMs>,
    pub left_out: Vec<TimestampMs>,
}

/// Takes the runs one after the other, as if each had come alone. A run that waited comes first
/// once nothing runs any more.
pub(super) fn overlap(
    policy: OverlapPolicy,
    running: bool,
    buffered: Option<TimestampMs>,
    dues: &[TimestampMs],
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut running = running;
    for due in buffered.iter().chain(dues) {
        match policy {
            OverlapPolicy::Allow => verdict.start.push(*due),
            _ if !running => {
                verdict.start.push(*due);
                running = true;
            }
            OverlapPolicy::Skip => verdict.left_out.push(*due),
            OverlapPolicy::BufferOne if verdict.buffered.is_none() => verdict.buffered = Some(*due),
            OverlapPolicy::BufferOne => verdict.left_out.push(*due),
            OverlapPolicy::CancelRunning => {
                // What was to be started a moment ago is not worth starting.
                verdict.left_out.append(&mut verdict.start);
                verdict.start.push(*due);
                verdict.cancel_running = true;
            }
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(times: &[i64]) -> Vec<TimestampMs> {
        times.iter().map(|at| TimestampMs(*at)).collect()
    }

    #[test]
    fn missed_table() {
        let (skip, latest, two) =
            (MissedPolicy::Skip, MissedPolicy::Latest, MissedPolicy::All { max: 2 });
        let minute = ON_TIME_MS as i64;
        for (policy, dues, now, run) in [
            (skip, &[][..], 0, &[][..]),
            (skip, &[1], 1, &[1]),
            (skip, &[1], 1 + minute, &[1]),
            (skip, &[1], 2 + minute, &[]),
            (skip, &[1, 2, 3], 2 + minute, &[2, 3]),
            (latest, &[1], i64::MAX, &[1]),
            (latest, &[1, 2, 3], i64::MAX, &[3]),
            (two, &[1], i64::MAX, &[1]),
            (two, &[1, 2, 3], 3, &[2, 3]),
            (MissedPolicy::All { max: 0 }, &[1, 2, 3], 3, &[3]),
        ] {
            let made_up = made_up(policy, at(dues), |due| now.abs_diff(due.0));
            assert_eq!(made_up, at(run), "{policy:?} {dues:?} {now}");
        }
    }

    #[test]
    fn overlap_table() {
        use OverlapPolicy::{Allow, BufferOne, CancelRunning, Skip};
        // policy, running, buffered, due; started, cancelling, buffered, left out
        for (policy, running, before, dues, start, cancel, after, out) in [
            (Allow, true, None, &[1, 2][..], &[1, 2][..], false, None, &[][..]),
            (Allow, true, Some(0), &[1], &[0, 1], false, None, &[]),
            (Skip, false, None, &[1], &[1], false, None, &[]),
            (Skip, true, None, &[1], &[], false, None, &[1]),
            (Skip, false, None, &[1, 2, 3], &[1], false, None, &[2, 3]),
            (BufferOne, false, None, &[1], &[1], false, None, &[]),
            (BufferOne, true, None, &[1], &[], false, Some(1), &[]),
            (BufferOne, true, Some(1), &[2], &[], false, Some(1), &[2]),
            (BufferOne, true, Some(1), &[], &[], false, Some(1), &[]),
            (BufferOne, false, Some(1), &[], &[1], false, None, &[]),
            (BufferOne, false, Some(1), &[2], &[1], false, Some(2), &[]),
            (BufferOne, false, None, &[1, 2, 3], &[1], false, Some(2), &[3]),
            (CancelRunning, false, None, &[1], &[1], false, None, &[]),
            (CancelRunning, true, None, &[1], &[1], true, None, &[]),
            (CancelRunning, true, None, &[1, 2], &[2], true, None, &[1]),
            (CancelRunning, false, None, &[1, 2], &[2], true, None, &[1]),
            // The policy was another when it began to wait.
            (Skip, true, Some(1), &[2], &[], false, None, &[1, 2]),
            (Skip, false, Some(1), &[2], &[1], false, None, &[2]),
        ] {
            let verdict = overlap(policy, running, before.map(TimestampMs), &at(dues));
            let expected = Verdict {
                start: at(start),
                cancel_running: cancel,
                buffered: after.map(TimestampMs),
                left_out: at(out),
            };
            assert_eq!(verdict, expected, "{policy:?} {running} {before:?} {dues:?}");
        }
    }
}
