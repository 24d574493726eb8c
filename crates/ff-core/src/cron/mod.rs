//! Cron expressions and the instants that they name in a time zone.
//!
//! The rules are those of Vixie cron, written down in `docs/concepts.md`:
//!
//! - Five fields, or six with seconds in front: minute, hour, day of month, month, day of week.
//! - If both day fields are restricted, a day that suits either of them counts.
//! - Hours without a `*` name moments of the day: one that the clocks jump over comes at the first
//!   instant after the jump, and one that they show twice comes the first time only.
//! - Hours with a `*` go by what the clock shows: nothing comes for an hour that is jumped over,
//!   and an hour that is shown twice counts twice.
//!
//! The time zone database is compiled in, so that every process names the same instants.

mod civil;
mod parse;
#[cfg(test)]
mod tests;
mod zone;

pub use parse::CronError;
pub use zone::{Zone, ZoneError};

/// A parsed expression: which numbers each field allows, one bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    /// The last day of the month, whatever its number.
    last_day: bool,
    months: u64,
    weekdays: u64,
    /// The hours go by what the clock shows.
    any_hour: bool,
    any_day: bool,
    any_weekday: bool,
}
