//! From text to `Cron`. An error names the field and what is wrong with it.

use std::str::FromStr;

use thiserror::Error;

use super::Cron;

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cron expression: {0}")]
pub struct CronError(String);

/// No expression is longer than this, so that none is slow to read.
const MAX_BYTES: usize = 256;

/// What one field may hold.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    /// Words for the numbers from `min` on.
    words: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", min: 0, max: 59, words: &[] };
const MINUTE: Field = Field { name: "minute", min: 0, max: 59, words: &[] };
const HOUR: Field = Field { name: "hour", min: 0, max: 23, words: &[] };
const DAY: Field = Field { name: "day of month", min: 1, max: 31, words: &[] };
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
/// Sunday is 0 and 7.
const WEEKDAY: Field = Field {
    name: "day of week",
    min: 0,
    max: 7,
    words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

const ALIASES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        if text.len() > MAX_BYTES {
            let len = text.len();
            return Err(CronError(format!("it is {len} bytes long, the limit is {MAX_BYTES}")));
        }
        let text = text.trim();
        if text.starts_with('@') {
            let known = |alias: &&(&str, &str)| alias.0.eq_ignore_ascii_case(text);
            return match ALIASES.iter().find(known) {
                Some((_, expression)) => expression.parse(),
                None => Err(CronError(format!(
                    "{text:?} is not known; there are @yearly, @annually, @monthly, @weekly, \
                     @daily, @midnight and @hourly"
                ))),
            };
        }
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let (second, [minute, hour, day, month, weekday]) = match fields[..] {
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => {
                (second, [minute, hour, day, month, weekday])
            }
            _ => {
                return Err(CronError(format!(
                    "{text:?} has {} fields; it takes 5 (minute, hour, day of month, month, day \
                     of week) or 6 with seconds in front",
                    fields.len()
                )));
            }
        };
        let last_day = day.split(',').any(|part| part.eq_ignore_ascii_case("l"));
        let weekdays = WEEKDAY.parse(weekday)?;
        let cron = Self {
            seconds: SECOND.parse(second)?,
            minutes: MINUTE.parse(minute)?,
            hours: HOUR.parse(hour)?,
            days: DAY.parse(day)?,
            last_day,
            months: MONTH.parse(month)?,
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            any_hour: hour.contains('*'),
            any_day: day.starts_with('*'),
            any_weekday: weekday.starts_with('*'),
        };
        cron.check_possible()?;
        Ok(cron)
    }
}

impl Cron {
    /// A day that no month has would wait for ever.
    fn check_possible(&self) -> Result<(), CronError> {
        let by_day_alone = !self.any_day && self.any_weekday;
        let longest = |month: u32| match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let months = (1..=12).filter(|month| self.months & 1 << month != 0);
        let possible = |month: u32| (1..=longest(month)).any(|day| self.days & 1 << day != 0);
        if by_day_alone && !self.last_day && !months.into_iter().any(possible) {
            let detail = "the day of month exists in none of the months, so it would never come";
            return Err(CronError(detail.to_owned()));
        }
        Ok(())
    }
}

impl Field {
    /// The bits of a comma-separated list.
    fn parse(&self, text: &str) -> Result<u64, CronError> {
        text.split(',').try_fold(0, |bits, part| Ok(bits | self.part(part)?))
    }

    /// `*`, a value or a range, each with or without a step, or `L`.
    fn part(&self, part: &str) -> Result<u64, CronError> {
        if self.name == DAY.name && part.eq_ignore_ascii_case("l") {
            return Ok(0);
        }
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.min, self.max),
            Some((from, to)) => self.range(from, to)?,
            None => {
                let from = self.value(range)?;
                (from, if step.is_some() { self.max } else { from })
            }
        };
        let step = step.unwrap_or(1) as usize;
        Ok((from..=to).step_by(step).fold(0, |bits, value| bits | 1 << value))
    }

    fn range(&self, from: &str, to: &str) -> Result<(u32, u32), CronError> {
        let (first, mut last) = (self.value(from)?, self.value(to)?);
        // A week may be said to end with its Sunday.
        if self.name == WEEKDAY.name && last == 0 && first > 0 {
            last = 7;
        }
        if first > last {
            return Err(self.error(&format!("the range {from}-{to} runs backwards")));
        }
        Ok((first, last))
    }

    fn step(&self, text: &str) -> Result<u32, CronError> {
        match number(text) {
            Some(step) if (1..=self.max).contains(&step) => Ok(step),
            _ => {
                Err(self
                    .error(&format!("the step {text:?} is not a number from 1 to {}", self.max)))
            }
        }
    }

    fn value(&self, text: &str) -> Result<u32, CronError> {
        let word = self.words.iter().position(|word| word.eq_ignore_ascii_case(text));
        let value = word.map(|at| self.min + at as u32).or_else(|| number(text));
        match value {
            Some(value) if (self.min..=self.max).contains(&value) => Ok(value),
            _ => {
                let words = match self.words {
                    [first, .., last] => format!(" or a name from {first} to {last}"),
                    _ => String::new(),
                };
                let (min, max) = (self.min, self.max);
                Err(self.error(&format!("{text:?} is not a number from {min} to {max}{words}")))
            }
        }
    }

    fn error(&self, detail: &str) -> CronError {
        CronError(format!("field {}: {detail}", self.name))
    }
}

/// Digits and nothing else: no sign, no blank.
fn number(text: &str) -> Option<u32> {
    let plain = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}
