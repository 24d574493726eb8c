//! Durations as people write them: `250ms`, `30s`, `1h30m`, `2d`, or ISO 8601 such as `PT30S`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, utoipa::ToSchema)]
#[schema(value_type = String, example = "30s")]
pub struct Span(pub Duration);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanError(String);

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no duration; write 250ms, 30s, 5m, 1h30m, 2d or PT30S", self.0)
    }
}

impl std::error::Error for SpanError {}

impl Span {
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let ms = match text.strip_prefix('P') {
            Some(iso) => parse_iso(iso),
            None => parse_units(text, &[("ms", 1), ("s", SECOND), ("m", MINUTE), ("h", HOUR)]),
        };
        let shown = || SpanError(text.chars().take(40).collect());
        ms.map(Self::millis).ok_or_else(shown)
    }
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn parse_iso(text: &str) -> Option<u64> {
    let (days, time) = match text.split_once('T') {
        Some((days, time)) => (days, Some(time)),
        None => (text, None),
    };
    let weeks_and_days = match days {
        "" if time.is_some() => 0,
        _ => parse_units(days, &[("W", 7 * DAY), ("D", DAY)])?,
    };
    let of_day = match time {
        Some(time) => parse_units(time, &[("H", HOUR), ("M", MINUTE), ("S", SECOND)])?,
        None => 0,
    };
    weeks_and_days.checked_add(of_day)
}

/// One or more numbers with their units, each unit at most once.
fn parse_units(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let days = [("d", DAY)];
    let mut total = 0u64;
    let mut rest = text;
    let mut seen: Vec<&str> = Vec::new();
    while seen.is_empty() || !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (word, after) = after.split_at(unit_end);
        let known = units.iter().chain(&days).find(|(unit, _)| *unit == word);
        let (unit, ms) = known.filter(|(unit, _)| !seen.contains(unit))?;
        seen.push(unit);
        total = total.checked_add(scaled(number, *ms)?)?;
        rest = after;
    }
    Some(total)
}

/// A decimal number of units in milliseconds, exactly; digits below a millisecond are dropped.
fn scaled(number: &str, unit_ms: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let too_long =
        whole.is_empty() || fraction.len() > 9 || (number.contains('.') && fraction.is_empty());
    if too_long {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit_ms)?;
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let digits = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? };
    let part = u64::try_from(digits * u128::from(unit_ms) / scale).ok()?;
    whole.checked_add(part)
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        if ms.is_multiple_of(1000) { write!(f, "{}s", ms / 1000) } else { write!(f, "{ms}ms") }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (text, ms) in [
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 2 * DAY),
            ("1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4_005),
            ("PT30S", 30_000),
            ("PT1H30M", 5_400_000),
            ("P1DT12H", DAY + 12 * HOUR),
            ("P2W", 14 * DAY),
            ("PT0.25S", 250),
        ] {
            assert_eq!(text.parse(), Ok(Span::millis(ms)), "{text}");
            let again = Span::millis(ms).to_string();
            assert_eq!(again.parse(), Ok(Span::millis(ms)), "{again}");
        }
        for bad in [
            "",
            "30",
            "s",
            "-1s",
            "1 s",
            "1s1s",
            "1x",
            "P",
            "PT",
            "P1Y",
            "P1H",
            "1.s",
            ".5s",
            "1e3s",
            "99999999999999999999s",
            "18446744073709551615d",
            "1.2.3s",
            "1s2",
        ] {
            assert!(bad.parse::<Span>().is_err(), "{bad:?} was accepted");
        }
    }
}
