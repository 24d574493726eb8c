//! Instants in milliseconds since the Unix epoch; as text they are RFC 3339 in UTC.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
pub struct TimestampMs(pub i64);

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// The first and the last instant that RFC 3339 can write.
const WRITABLE: (i64, i64) = (-62_167_219_200_000, 253_402_300_799_999);

impl TimestampMs {
    /// This host's wall clock. The engine never decides by it: stores bring their own `now`.
    pub fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    pub fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// This instant moved by a duration, stopping at the largest instant instead of wrapping.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        self.after_ms(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
    }

    #[must_use]
    pub fn after_ms(self, delay_ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX)))
    }

    /// How long from `earlier` to this instant; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// `2026-11-16T04:05:06.007Z`. What lies outside the years 0 to 9999 is written as their end.
    pub fn to_rfc3339(self) -> String {
        let ms = self.0.clamp(WRITABLE.0, WRITABLE.1);
        let (year, month, day) = civil(ms.div_euclid(DAY_MS));
        let of_day = ms.rem_euclid(DAY_MS);
        let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }

    /// The instant, and how far it is from `now`: `2026-11-16T04:05:06.007Z (in 5 min 3 s)`.
    pub fn in_words(self, now: Self) -> String {
        if self >= now {
            format!("{self} (in {})", duration_in_words(self.since(now)))
        } else {
            format!("{self} ({} ago)", duration_in_words(now.since(self)))
        }
    }

    /// Reads an instant with its offset; digits beyond milliseconds are dropped.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let date = text.get(..19)?;
        let shape = date.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            10 => matches!(byte, b'T' | b't' | b' '),
            13 | 16 => byte == b':',
            _ => byte.is_ascii_digit(),
        });
        let number = |from: usize, to: usize| date.get(from..to)?.parse::<i64>().ok();
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let days = days_from_civil(year, month, day);
        // A leap second is written as 60 and counts as the second before it.
        let possible = shape && hour < 24 && minute < 60 && second <= 60;
        if !possible || civil(days) != (year, month, day) {
            return None;
        }
        let (fraction, offset) = match text.get(19..)?.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?),
            None => ("0", text.get(19..)?),
        };
        let milli = format!("{:0<3}", fraction.get(..3).unwrap_or(fraction)).parse::<i64>().ok()?;
        let of_day = (hour * 60 + minute) * 60_000 + second.min(59) * 1000 + milli;
        Some(Self(days * DAY_MS + of_day - parse_offset(offset)?))
    }
}

/// An offset from UTC in milliseconds.
fn parse_offset(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let part = |text: &str, below: i64| {
        let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| plain && *number < below)
    };
    Some(sign * (part(hours, 24)? * 60 + part(minutes, 60)?) * 60_000)
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar. Years are taken to begin
/// in March, so that the leap day is the last one.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

impl Serialize for TimestampMs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_rfc3339())
    }
}

/// Milliseconds are understood as well, because they are what other programs have at hand.
impl<'de> Deserialize<'de> for TimestampMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Instant;

        impl de::Visitor<'_> for Instant {
            type Value = TimestampMs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an instant such as 2026-11-16T04:05:06Z, or milliseconds")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TimestampMs, E> {
                let unreadable = || E::invalid_value(de::Unexpected::Str(text), &self);
                TimestampMs::parse_rfc3339(text).ok_or_else(unreadable)
            }

            fn visit_i64<E: de::Error>(self, ms: i64) -> Result<TimestampMs, E> {
                Ok(TimestampMs(ms))
            }

            fn visit_u64<E: de::Error>(self, ms: u64) -> Result<TimestampMs, E> {
                Ok(TimestampMs(i64::try_from(ms).unwrap_or(i64::MAX)))
            }
        }

        deserializer.deserialize_any(Instant)
    }
}

/// A duration as people say it, in its two largest units: `1.5 s`, `5 min 3 s`, `2 d 4 h`.
pub fn duration_in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if minutes == 0 => format!("{:.1} s", duration.as_secs_f64()),
        () if hours == 0 => format!("{minutes} min {} s", seconds % 60),
        () if days == 0 => format!("{hours} h {} min", minutes % 60),
        () => format!("{days} d {} h", hours % 24),
    }
}

impl fmt::Display for TimestampMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_instants_and_durations() {
        let now = TimestampMs(1_794_986_412_535);
        assert_eq!(now.to_string(), "2026-11-18T07:20:12.535Z");
        let later = now.after_ms(303_000).in_words(now);
        assert_eq!(later, "2026-11-18T07:25:15.535Z (in 5 min 3 s)");
        assert!(now.in_words(now.after_ms(1_500)).ends_with(" (1.5 s ago)"));
        let said = |seconds| duration_in_words(Duration::from_secs(seconds));
        let expected = ["59.0 s", "1 min 0 s", "1 h 0 min", "23 h 59 min", "2 d 4 h"];
        assert_eq!([59, 60, 3600, 86_399, 187_200].map(said), expected);
    }

    #[test]
    fn text_forms() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_801_906_007, "2026-11-16T04:05:06.007Z"),
            (WRITABLE.0, "0000-01-01T00:00:00.000Z"),
            (WRITABLE.1, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(TimestampMs(ms).to_rfc3339(), text);
            assert_eq!(TimestampMs::parse_rfc3339(text), Some(TimestampMs(ms)), "{text}");
        }
        assert_eq!(TimestampMs(i64::MAX).to_rfc3339(), "9999-12-31T23:59:59.999Z");
        for day in -800_000..800_000 {
            let (year, month, date) = civil(day);
            assert_eq!(days_from_civil(year, month, date), day);
        }
    }

    #[test]
    fn other_writings() {
        for (text, same) in [
            ("2026-11-16T05:05:06+01:00", "2026-11-16T04:05:06Z"),
            ("2026-11-15 23:05:06.1-05:00", "2026-11-16t04:05:06.100z"),
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
            ("2026-11-16T04:05:06.0079999Z", "2026-11-16T04:05:06.007Z"),
        ] {
            let parsed = TimestampMs::parse_rfc3339(text);
            assert!(parsed.is_some() && parsed == TimestampMs::parse_rfc3339(same), "{text}");
        }
        for bad in [
            "",
            "2026-11-16",
            "2026-11-16T04:05:06",
            "2026-02-29T04:05:06Z",
            "2026-13-01T04:05:06Z",
            "2026-11-16T24:00:00Z",
            "2026-11-16T04:05:06.Zx",
            "2026-11-16T04:05:06+1:00",
            "2026-11-16T04:05:06é",
            "+026-11-16T04:05:06Z",
        ] {
            assert_eq!(TimestampMs::parse_rfc3339(bad), None, "{bad:?}");
        }
        let read = |json: &str| serde_json::from_str::<TimestampMs>(json).ok();
        assert_eq!(read("7"), Some(TimestampMs(7)));
        assert_eq!(read("\"1970-01-01T00:00:00.007Z\""), Some(TimestampMs(7)));
        assert_eq!(read("\"7\""), None);
    }
}
