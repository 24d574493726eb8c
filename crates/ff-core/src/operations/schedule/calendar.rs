//! When a schedule is due, and when its runs start: pure functions of its definition.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::contracts::{PutScheduleArgs, Timing};
use crate::cron::{Cron, Zone};
use crate::engine_error::EngineError;
use crate::types::TimestampMs;

/// A schedule's definition, ready to be asked.
#[derive(Debug)]
pub(crate) struct Calendar {
    clockwork: Clockwork,
    starts_at: Option<TimestampMs>,
    ends_at: Option<TimestampMs>,
    jitter_ms: u64,
    /// What makes the jitter of one schedule differ from another's.
    seed: Uuid,
}

#[derive(Debug)]
enum Clockwork {
    Cron(Box<Cron>, Zone),
    Interval { every_ms: i64, anchor: TimestampMs },
}

impl Calendar {
    pub fn of(
        definition: &PutScheduleArgs,
        seed: Uuid,
        created_at: TimestampMs,
    ) -> Result<Self, EngineError> {
        let clockwork = match &definition.timing {
            Timing::Cron { expression, time_zone } => {
                let invalid =
                    |error: &dyn std::error::Error| EngineError::invalid(error.to_string());
                let cron = expression.parse::<Cron>().map_err(|error| invalid(&error))?;
                let zone = Zone::parse(time_zone).map_err(|error| invalid(&error))?;
                Clockwork::Cron(Box::new(cron), zone)
            }
            Timing::Interval { every_ms, anchor } => Clockwork::Interval {
                every_ms: i64::try_from(*every_ms).unwrap_or(i64::MAX).max(1),
                anchor: anchor.unwrap_or(created_at),
            },
        };
        Ok(Self {
            clockwork,
            starts_at: definition.starts_at,
            ends_at: definition.ends_at,
            jitter_ms: definition.jitter_ms,
            seed,
        })
    }

    /// The first due time after an instant.
    pub fn next_after(&self, after: TimestampMs) -> Option<TimestampMs> {
        let before_start = self.starts_at.map(|at| TimestampMs(at.0.saturating_sub(1)));
        let after = before_start.map_or(after, |start| after.max(start));
        let next = match &self.clockwork {
            Clockwork::Cron(cron, zone) => cron.next_after(zone, after)?,
            Clockwork::Interval { every_ms, anchor } => {
                let periods = after.0.checked_sub(anchor.0)?.div_euclid(*every_ms) + 1;
                TimestampMs(anchor.0.checked_add(periods.checked_mul(*every_ms)?)?)
            }
        };
        Some(next).filter(|next| self.ends_at.is_none_or(|end| *next < end))
    }

    /// The next so many due times after an instant.
    pub fn upcoming(&self, after: TimestampMs, count: usize) -> Vec<TimestampMs> {
        std::iter::successors(self.next_after(after), |due| self.next_after(*due))
            .take(count)
            .collect()
    }

    /// How many due times there are between two instants, both left out, and at most so many.
    pub fn count(&self, after: TimestampMs, until: TimestampMs, most: usize) -> usize {
        std::iter::successors(self.next_after(after), |due| self.next_after(*due))
            .take_while(|due| *due < until)
            .take(most)
            .count()
    }

    /// When the run of a due time starts: as much later as chance says, but before the next one is
    /// due, so that runs start in the order in which they are due.
    pub fn start_of(&self, due: TimestampMs) -> TimestampMs {
        if self.jitter_ms == 0 {
            return due;
        }
        let room = self.next_after(due).map_or(u64::MAX, |next| next.0.abs_diff(due.0));
        let hash = Sha256::new()
            .chain_update("jitter")
            .chain_update(self.seed)
            .chain_update(due.0.to_be_bytes())
            .finalize();
        let (bits, _) = hash.as_slice().split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        due.after_ms(u64::from_be_bytes(*bits) % self.jitter_ms.saturating_add(1).min(room))
    }

    /// The newest so many due times after one instant and not after another, oldest first, and
    /// whether there were older ones.
    pub fn newest(
        &self,
        after: TimestampMs,
        until: TimestampMs,
        count: usize,
    ) -> (Vec<TimestampMs>, bool) {
        let due_from = |after| {
            let dues = std::iter::successors(self.next_after(after), |due| self.next_after(*due));
            dues.take_while(move |due| *due <= until)
        };
        // Usually few have come due.
        let few = 2 * count + 16;
        let mut dues: Vec<_> = due_from(after).take(few).collect();
        if dues.len() < few {
            let older = dues.len().saturating_sub(count);
            return (dues.split_off(older), older > 0);
        }
        // Halves the time between until exactly so many are left behind it.
        let (mut enough, mut too_few) = (dues[0].0, until.0);
        while too_few - enough > 1 {
            let middle = enough + (too_few - enough) / 2;
            match due_from(TimestampMs(middle)).nth(count - 1) {
                Some(_) => enough = middle,
                None => too_few = middle,
            }
        }
        (due_from(TimestampMs(enough)).collect(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::{ScheduleId, ScheduleTemplate};

    const START: i64 = 1_800_000_000_000;

    fn definition(timing: Timing) -> PutScheduleArgs {
        PutScheduleArgs::new(
            ScheduleId::new("default", "test"),
            timing,
            ScheduleTemplate::new("lane", "kind"),
        )
    }

    fn calendar(definition: &PutScheduleArgs) -> Calendar {
        Calendar::of(definition, Uuid::from_u128(7), TimestampMs(START)).unwrap()
    }

    fn every(every_ms: u64) -> PutScheduleArgs {
        definition(Timing::Interval { every_ms, anchor: None })
    }

    #[test]
    fn an_interval_is_counted_from_its_anchor() {
        let plain = calendar(&every(1_000));
        for (after, next) in [(0, 1_000), (1, 1_000), (999, 1_000), (1_000, 2_000), (-1, 0)] {
            assert_eq!(
                plain.next_after(TimestampMs(START + after)),
                Some(TimestampMs(START + next))
            );
        }
        let anchor = Some(TimestampMs(250));
        let anchored = calendar(&definition(Timing::Interval { every_ms: 1_000, anchor }));
        assert_eq!(anchored.next_after(TimestampMs(START)), Some(TimestampMs(START + 250)));
        assert_eq!(plain.next_after(TimestampMs(i64::MAX)), None);
        assert_eq!(plain.next_after(TimestampMs(i64::MIN)), None);
    }

    #[test]
    fn a_window_bounds_what_is_due() {
        let mut windowed = every(1_000);
        windowed.starts_at = Some(TimestampMs(START + 3_000));
        windowed.ends_at = Some(TimestampMs(START + 5_000));
        let dues: Vec<_> = calendar(&windowed).upcoming(TimestampMs(START), 10);
        assert_eq!(dues, [TimestampMs(START + 3_000), TimestampMs(START + 4_000)]);
    }

    #[test]
    fn bad_timings_are_refused() {
        for timing in [Timing::cron("61 * * * *", "UTC"), Timing::cron("* * * * *", "Mars/Olympus")]
        {
            let refused = Calendar::of(&definition(timing), Uuid::nil(), TimestampMs(0));
            assert_eq!(refused.unwrap_err().code(), "invalid_input");
        }
    }

    #[test]
    fn jitter_is_bounded_and_always_the_same() {
        let mut jittered = every(1_000);
        jittered.jitter_ms = 600;
        let first = calendar(&jittered);
        let other = Calendar::of(&jittered, Uuid::from_u128(8), TimestampMs(START)).unwrap();
        let starts: Vec<i64> = (0..200)
            .map(|at| {
                let due = TimestampMs(START + at * 1_000);
                let start = first.start_of(due);
                assert_eq!(start, calendar(&jittered).start_of(due));
                start.0 - due.0
            })
            .collect();
        assert!(starts.iter().all(|late| (0..=600).contains(late)));
        assert!(starts.iter().any(|late| *late > 500) && starts.iter().any(|late| *late < 100));
        let differs = |at: &i64| {
            let due = TimestampMs(START + at * 1_000);
            first.start_of(due) != other.start_of(due)
        };
        assert!((0..200).filter(differs).count() > 150);
    }

    #[test]
    fn jitter_never_reaches_the_next_due_time() {
        let mut jittered = every(1_000);
        jittered.jitter_ms = u64::MAX;
        let calendar = calendar(&jittered);
        for at in 0..500 {
            let due = TimestampMs(START + at * 1_000);
            assert!(calendar.start_of(due).0 < due.0 + 1_000);
        }
    }

    #[test]
    fn the_newest_are_found_however_many_there_were() {
        let specs = ["* * * * * *", "*/7 * * 1 * *", "0 3 * * *", "0 0 29 2 *", "5 4 * * 1"];
        for (expression, days) in specs.iter().flat_map(|spec| [(spec, 1), (spec, 400)]) {
            let calendar = calendar(&definition(Timing::cron(*expression, "Europe/Berlin")));
            let until = TimestampMs(START + days * 24 * 3_600_000 + 123);
            let (newest, older) = calendar.newest(TimestampMs(START), until, 3);
            assert!(newest.len() <= 3);
            assert!(newest.is_sorted());
            let mut next = newest.first().map(|due| TimestampMs(due.0 - 1));
            for due in &newest {
                assert_eq!(next.and_then(|at| calendar.next_after(at)), Some(*due));
                next = Some(*due);
            }
            if let Some(last) = newest.last() {
                assert!(*last <= until && calendar.next_after(*last).unwrap() > until);
            }
            let all = calendar.upcoming(TimestampMs(START), 4);
            let count = all.iter().filter(|due| **due <= until).count();
            assert_eq!((newest.len(), older), (count.min(3), count > 3), "{expression} {days}");
        }
    }
}
