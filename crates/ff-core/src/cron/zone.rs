//! Which instants an expression names in a time zone.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use thiserror::Error;

use super::Cron;
use crate::types::TimestampMs;

/// A name that is in no time zone database.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a time zone; names look like Europe/Berlin or UTC")]
pub struct ZoneError(String);

/// A time zone of the database that is compiled in.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    pub fn parse(name: &str) -> Result<Self, ZoneError> {
        let shown = || ZoneError(name.chars().take(64).collect());
        TimeZone::get(name).map(Self).map_err(|_| shown())
    }

    /// What the clocks show then.
    pub fn reading(&self, at: TimestampMs) -> Option<DateTime> {
        Some(self.0.to_datetime(instant(at)?))
    }
}

impl Cron {
    /// The first instant after this one that the expression names, if one comes within some years.
    pub fn next_after(&self, zone: &Zone, after: TimestampMs) -> Option<TimestampMs> {
        let after = instant(after)?;
        let found = match self.names_hours_of_any_day() {
            true => self.shown_after(&zone.0, after),
            false => self.moment_after(&zone.0, after),
        };
        found.map(|at| TimestampMs(at.as_millisecond()))
    }

    /// Every time that the clock shows a reading counts. Between two changes of the clocks readings
    /// follow instants, so each stretch is searched by itself.
    fn shown_after(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        let mut offset = zone.to_offset(after);
        let mut from = whole_second_after(offset.to_datetime(after))?;
        let mut changes = zone.following(after);
        loop {
            let at = offset.to_timestamp(self.at_or_after(from)?).ok()?;
            match changes.next() {
                Some(change) if change.timestamp() <= at => {
                    offset = change.offset();
                    from = whole_second(offset.to_datetime(change.timestamp()))?;
                }
                _ => return Some(at),
            }
        }
    }

    /// Each reading is one moment of its day.
    fn moment_after(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        let mut from = whole_second_after(zone.to_datetime(after))?;
        loop {
            let named = self.at_or_after(from)?;
            let at = moment(zone, named)?;
            // In an hour that is shown for the second time, the first time is past.
            if at > after {
                return Some(at);
            }
            from = whole_second_after(named)?;
        }
    }
}

/// The first time that the clock shows this reading, or the first instant after it was jumped over.
fn moment(zone: &TimeZone, named: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(named).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(named).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(named).ok(),
        AmbiguousOffset::Gap { before, .. } => {
            let behind = whole_second_after(named)?;
            let behind = before.to_timestamp(behind).ok()?;
            zone.preceding(behind).next().map(|change| change.timestamp())
        }
    }
}

fn instant(at: TimestampMs) -> Option<Timestamp> {
    Timestamp::from_millisecond(at.0).ok()
}

/// The next whole second after a reading.
fn whole_second_after(reading: DateTime) -> Option<DateTime> {
    let floor = reading.with().subsec_nanosecond(0).build().ok()?;
    floor.checked_add(jiff::SignedDuration::from_secs(1)).ok()
}

/// The whole second that a reading is or comes before.
fn whole_second(reading: DateTime) -> Option<DateTime> {
    match reading.subsec_nanosecond() {
        0 => Some(reading),
        _ => whole_second_after(reading),
    }
}
