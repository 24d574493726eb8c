//! Which readings of a clock an expression names, without regard to time zones.

use jiff::civil::{Date, DateTime, Time};

use super::Cron;

/// The longest wait between two days of a possible expression: from one 29 February on a weekday to
/// the next around a century year.
const YEARS: i16 = 40;

impl Cron {
    /// The first reading that is named, not before this one.
    pub(super) fn at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let last_year = from.year().checked_add(YEARS + 1)?;
        let mut date = from.date();
        let mut floor = (from.hour(), from.minute(), from.second());
        loop {
            if date.year() > last_year {
                return None;
            }
            if !self.names_month(date) {
                date = date.last_of_month().tomorrow().ok()?;
                floor = (0, 0, 0);
                continue;
            }
            if self.names_day(date)
                && let Some((hour, minute, second)) = self.time_from(floor)
            {
                return Some(date.to_datetime(Time::constant(hour, minute, second, 0)));
            }
            date = date.tomorrow().ok()?;
            floor = (0, 0, 0);
        }
    }

    pub(super) fn names_hours_of_any_day(&self) -> bool {
        self.any_hour
    }

    fn names_month(&self, date: Date) -> bool {
        has(self.months, date.month())
    }

    fn names_day(&self, date: Date) -> bool {
        let last = self.last_day && date.day() == date.days_in_month();
        let by_day = has(self.days, date.day()) || last;
        let by_weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        match self.any_day || self.any_weekday {
            true => by_day && by_weekday,
            false => by_day || by_weekday,
        }
    }

    /// The first time of day that is named, not before this one.
    fn time_from(&self, (hour, minute, second): (i8, i8, i8)) -> Option<(i8, i8, i8)> {
        let first_minute = next(self.minutes, 0)?;
        let first_second = next(self.seconds, 0)?;
        let named_hour = next(self.hours, hour)?;
        if named_hour > hour {
            return Some((named_hour, first_minute, first_second));
        }
        if let Some(named_minute) = next(self.minutes, minute) {
            if named_minute > minute {
                return Some((hour, named_minute, first_second));
            }
            if let Some(named_second) = next(self.seconds, second) {
                return Some((hour, minute, named_second));
            }
            if let Some(later) = next(self.minutes, minute + 1) {
                return Some((hour, later, first_second));
            }
        }
        next(self.hours, hour + 1).map(|later| (later, first_minute, first_second))
    }
}

fn has(bits: u64, value: i8) -> bool {
    bits >> value & 1 == 1
}

/// The first set bit from `from` on.
fn next(bits: u64, from: i8) -> Option<i8> {
    let rest = bits.checked_shr(u32::from(from.unsigned_abs()))?;
    (rest != 0).then(|| from + rest.trailing_zeros() as i8)
}
