//! Tables of expressions and instants, and a comparison with a walk over every minute.

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::{Cron, Zone};
use crate::types::TimestampMs;

fn ms(text: &str) -> TimestampMs {
    TimestampMs(text.parse::<Timestamp>().unwrap().as_millisecond())
}

fn shown(at: TimestampMs) -> String {
    Timestamp::from_millisecond(at.0).unwrap().to_string()
}

/// The instants that follow `after`, as UTC.
fn check(expression: &str, zone: &str, after: &str, expected: &[&str]) {
    let cron: Cron = expression.parse().unwrap();
    let zone = Zone::parse(zone).unwrap();
    let mut at = ms(after);
    for expected in expected {
        at = cron.next_after(&zone, at).unwrap_or_else(|| panic!("{expression} ended"));
        assert_eq!(shown(at), *expected, "{expression}");
    }
}

#[test]
fn plain_times() {
    let after = "2026-11-16T04:05:06.007Z";
    for (expression, expected) in [
        ("* * * * *", "2026-11-16T04:06:00Z"),
        ("*/15 * * * *", "2026-11-16T04:15:00Z"),
        ("7/20 * * * *", "2026-11-16T04:07:00Z"),
        ("5 4 * * *", "2026-11-17T04:05:00Z"),
        ("0 9-17/4 * * *", "2026-11-16T09:00:00Z"),
        ("30 3,5 * * *", "2026-11-16T05:30:00Z"),
        ("0 0 1 * *", "2026-12-01T00:00:00Z"),
        ("0 0 31 * *", "2026-12-31T00:00:00Z"),
        ("0 0 L * *", "2026-11-30T00:00:00Z"),
        ("0 0 15,L * *", "2026-11-30T00:00:00Z"),
        ("0 0 L 2 *", "2027-02-28T00:00:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ("0 12 * * MON", "2026-11-16T12:00:00Z"),
        ("0 0 * * mon", "2026-11-23T00:00:00Z"),
        ("0 0 * * 7", "2026-11-22T00:00:00Z"),
        ("0 0 * * 0", "2026-11-22T00:00:00Z"),
        ("0 0 * * sat-sun", "2026-11-21T00:00:00Z"),
        ("0 0 * JAN,mar fri", "2027-01-01T00:00:00Z"),
        ("0 0 1 1 *", "2027-01-01T00:00:00Z"),
        // Both day fields: either suits.
        ("0 0 13 * FRI", "2026-11-20T00:00:00Z"),
        ("0 0 18 * FRI", "2026-11-18T00:00:00Z"),
        // A star with a step is still a star: both must suit.
        ("0 0 */2 * FRI", "2026-11-27T00:00:00Z"),
        ("@hourly", "2026-11-16T05:00:00Z"),
        ("@daily", "2026-11-17T00:00:00Z"),
        ("@midnight", "2026-11-17T00:00:00Z"),
        ("@weekly", "2026-11-22T00:00:00Z"),
        ("@monthly", "2026-12-01T00:00:00Z"),
        ("@Yearly", "2027-01-01T00:00:00Z"),
        ("*/10 * * * * *", "2026-11-16T04:05:10Z"),
        ("6 5 4 * * *", "2026-11-17T04:05:06Z"),
        ("7 5 4 * * *", "2026-11-16T04:05:07Z"),
        ("59 59 23 31 12 *", "2026-12-31T23:59:59Z"),
    ] {
        check(expression, "UTC", after, &[expected]);
    }
}

#[test]
fn leap_days_wait_for_years() {
    let leap = "0 0 29 2 *";
    let days = ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"];
    check(leap, "UTC", "2026-01-01T00:00:00Z", &days);
    check(leap, "UTC", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]);
    let ends = ["2027-02-28T00:00:00Z", "2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z"];
    check("0 0 L 2 *", "UTC", "2026-11-01T00:00:00Z", &ends);
}

#[test]
fn days_that_must_suit_both_ways_wait_for_decades() {
    let mondays = ["2027-02-01T00:00:00Z", "2038-02-01T00:00:00Z", "2044-02-01T00:00:00Z"];
    check("0 0 */31 2 1", "UTC", "2026-01-01T00:00:00Z", &mondays);
    check("0 */1 */31 2 1", "Europe/Berlin", "2027-02-02T00:00:00Z", &["2038-01-31T23:00:00Z"]);
    let leap_days = ["2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"];
    check("0 0 29 2 */7", "UTC", "2061-01-01T00:00:00Z", &leap_days);
}

#[test]
fn bad_expressions_name_their_field() {
    for (expression, complaint) in [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("60 * * * *", "field minute: \"60\" is not a number from 0 to 59"),
        ("* 24 * * *", "field hour: \"24\" is not a number from 0 to 23"),
        ("* * 0 * *", "field day of month: \"0\" is not a number from 1 to 31"),
        ("* * * 13 *", "field month: \"13\" is not a number from 1 to 12 or a name"),
        ("* * * * 8", "field day of week: \"8\""),
        ("* * * * fry", "field day of week: \"fry\""),
        ("61 * * * * *", "field second"),
        ("5-1 * * * *", "field minute: the range 5-1 runs backwards"),
        ("*/0 * * * *", "field minute: the step \"0\""),
        ("*/60 * * * *", "field minute: the step \"60\""),
        ("1,,2 * * * *", "field minute: \"\""),
        ("+1 * * * *", "field minute: \"+1\""),
        ("-1 * * * *", "field minute: \"\""),
        ("1-2-3 * * * *", "field minute: \"2-3\""),
        ("* * ? * *", "field day of month: \"?\""),
        ("* L * * *", "field hour: \"L\""),
        ("* * 30 2 *", "would never come"),
        ("* * 31 4,6,9,11 *", "would never come"),
        ("@reboot", "\"@reboot\" is not known"),
        (&"1,".repeat(200), "bytes long, the limit is 256"),
    ] {
        let error = expression.parse::<Cron>().expect_err(expression).to_string();
        assert!(error.contains(complaint), "{expression:?} gave {error:?}");
    }
    assert!(Zone::parse("Europe/Atlantis").is_err());
    assert!(Zone::parse("").is_err());
}

#[test]
fn a_time_that_is_jumped_over_comes_right_after() {
    // Berlin: 02:00 becomes 03:00 on 29 March 2026, at 01:00 UTC.
    let before = "2026-03-28T12:00:00Z";
    let at = ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
    check("30 2 * * *", "Europe/Berlin", before, &at);
    let quarters = ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"];
    check("*/15 2 * * *", "Europe/Berlin", before, &quarters);
    let both = ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T01:00:00Z"];
    check("0 2,3 * * *", "Europe/Berlin", before, &both);
    // New York: 02:00 becomes 03:00 on 8 March 2026, at 07:00 UTC.
    let at = ["2026-03-08T07:00:00Z", "2026-03-09T06:15:00Z"];
    check("15 2 * * *", "America/New_York", "2026-03-08T00:00:00Z", &at);
    // Lord Howe: 02:00 becomes 02:30 on 4 October 2026, at 15:30 UTC the day before.
    let at = ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"];
    check("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", &at);
    // Cairo jumps over midnight: a daily run is not lost.
    check("@daily", "Africa/Cairo", "2026-04-23T12:00:00Z", &["2026-04-23T22:00:00Z"]);
}

#[test]
fn a_time_that_is_shown_twice_comes_once() {
    // Berlin: 03:00 becomes 02:00 on 25 October 2026, at 01:00 UTC.
    let before = "2026-10-24T12:00:00Z";
    let at = ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
    check("30 2 * * *", "Europe/Berlin", before, &at);
    // Asked between the two showings, and in the second one.
    check("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", &["2026-10-26T01:30:00Z"]);
    check("30 2 * * *", "Europe/Berlin", "2026-10-25T01:15:00Z", &["2026-10-26T01:30:00Z"]);
    // New York: 02:00 becomes 01:00 on 1 November 2026, at 06:00 UTC.
    let at = ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"];
    check("30 1 * * *", "America/New_York", "2026-11-01T00:00:00Z", &at);
    // Lord Howe: 02:00 becomes 01:30 on 5 April 2026, at 15:00 UTC the day before.
    let at = ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"];
    check("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", &at);
}

#[test]
fn every_hour_goes_by_what_the_clock_shows() {
    let spring = ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"];
    check("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", &spring);
    let autumn = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"];
    check("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", &autumn);
    // 02:00 is jumped over in spring and shown twice in autumn.
    let spring = ["2026-03-28T23:00:00Z", "2026-03-29T02:00:00Z"];
    check("0 */2 * * *", "Europe/Berlin", "2026-03-28T22:00:00Z", &spring);
    let autumn = ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T03:00:00Z"];
    check("0 */2 * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", &autumn);
    let half_hour = ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T16:15:00Z"];
    check("45 * * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", &half_hour);
}

#[test]
fn extremes_have_no_next() {
    let cron: Cron = "* * * * *".parse().unwrap();
    let zone = Zone::parse("UTC").unwrap();
    assert_eq!(cron.next_after(&zone, TimestampMs(i64::MAX)), None);
    assert_eq!(cron.next_after(&zone, ms("9999-12-30T22:00:00Z")), None);
}

/// One field as text and as the numbers that it stands for, found without the parser.
fn random_field(rng: &mut fastrand::Rng, min: i8, max: i8) -> (String, Vec<i8>) {
    let value = |rng: &mut fastrand::Rng| rng.i8(min..=max);
    match rng.u8(0..6) {
        0 | 1 => ("*".into(), (min..=max).collect()),
        2 => {
            let step = rng.i8(1..=max.min(20));
            let steps = (min..=max).filter(|v| (v - min) % step == 0).collect();
            (format!("*/{step}"), steps)
        }
        3 => {
            let (a, b) = (value(rng), value(rng));
            let (a, b) = (a.min(b), a.max(b));
            (format!("{a}-{b}"), (a..=b).collect())
        }
        4 => {
            let values: Vec<i8> = (0..rng.usize(2..5)).map(|_| value(rng)).collect();
            let words: Vec<String> = values.iter().map(ToString::to_string).collect();
            (words.join(","), values)
        }
        _ => {
            let value = value(rng);
            (value.to_string(), vec![value])
        }
    }
}

struct Walked {
    fields: [Vec<i8>; 5],
    any_day: bool,
    any_hour: bool,
}

impl Walked {
    fn names(&self, reading: jiff::civil::DateTime) -> bool {
        let [minutes, hours, days, months, weekdays] = &self.fields;
        let weekday = reading.weekday().to_sunday_zero_offset();
        let day = days.contains(&reading.day());
        let weekday = weekdays.contains(&weekday);
        minutes.contains(&reading.minute())
            && hours.contains(&reading.hour())
            && months.contains(&reading.month())
            && if self.any_day { day && weekday } else { day || weekday }
    }

    /// Looks at every minute and asks what the clock shows then and has shown before.
    fn next(&self, zone: &TimeZone, after: Timestamp, minutes: i64) -> Option<Timestamp> {
        let minute = |at: i64| Timestamp::from_second(at * 60).unwrap();
        let first = after.as_second().div_euclid(60) + 1;
        (first..first + minutes).map(minute).find(|at| {
            let reading = zone.to_datetime(*at);
            if self.any_hour {
                return self.names(reading);
            }
            let again = match zone.to_ambiguous_timestamp(reading).offset() {
                AmbiguousOffset::Fold { after, .. } => after == zone.to_offset(*at),
                _ => false,
            };
            let before = zone.to_datetime(minute(at.as_second().div_euclid(60) - 1));
            let mut jumped = before + jiff::SignedDuration::from_mins(1);
            let mut over = false;
            while jumped < reading {
                over |= self.names(jumped);
                jumped += jiff::SignedDuration::from_mins(1);
            }
            over || (self.names(reading) && !again)
        })
    }
}

#[test]
fn agrees_with_a_walk_over_every_minute() {
    let zones = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata"];
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    for round in 0..1_000 {
        let ranges = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
        let mut fields = ranges.map(|(min, max)| random_field(&mut rng, min, max));
        // Mostly every day, around the hours in which clocks change.
        for at in 2..5 {
            if rng.u8(0..4) > 0 {
                fields[at] = ("*".into(), (ranges[at].0..=ranges[at].1).collect());
            }
        }
        if rng.bool() {
            let hour = rng.i8(1..4);
            fields[1] = (hour.to_string(), vec![hour]);
        }
        let text = fields.each_ref().map(|(text, _)| text.as_str()).join(" ");
        let Ok(cron) = text.parse::<Cron>() else { continue };
        let any = |at: usize| fields[at].0.starts_with('*');
        let (any_day, any_hour) = (any(2) || any(4), any(1));
        let walked = Walked { fields: fields.map(|(_, values)| values), any_day, any_hour };
        let name = zones[round % zones.len()];
        let (zone, tz) = (Zone::parse(name).unwrap(), TimeZone::get(name).unwrap());
        let near =
            ["2026-03-07", "2026-03-28", "2026-04-03", "2026-10-02", "2026-10-24", "2026-10-31"];
        let day = near[rng.usize(..near.len())];
        let start: Timestamp = format!("{day}T12:00:00Z").parse().unwrap();
        let mut at = start + jiff::SignedDuration::from_secs(rng.i64(0..24 * 3600));
        for _ in 0..6 {
            let expected = walked.next(&tz, at, 3 * 24 * 60);
            let given = cron.next_after(&zone, TimestampMs(at.as_millisecond()));
            let Some(expected) = expected else { break };
            let given = given.map(shown);
            let context = format!("seed {seed}: {text:?} in {name} after {at}");
            assert_eq!(given, Some(expected.to_string()), "{context}");
            at = expected;
        }
    }
}
