//! What a budget has used and what it holds for running work. Every number that a claim, a report
//! or an end moves is moved here.
//!
//! What is used and what is reserved never exceed the hard limit together: a reservation is
//! refused unless it fits, a report is first paid from the reservation of its own execution, and an
//! end only turns reserved into used or gives it back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::contracts::{Amounts, DimensionLimits, UsageOutcome};
use crate::mutants::{self, Mutant};
use crate::types::TimestampMs;

/// The state of one budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    #[serde(default)]
    pub used: Amounts,
    #[serde(default)]
    pub reserved: Amounts,
    /// Leases that were ever let through: whoever counts them anew sees whether some came since.
    #[serde(default)]
    pub grants: u64,
    /// When the present period began.
    pub since: TimestampMs,
    /// Counts periods and resets, so that what was spent in an earlier one is known as such.
    #[serde(default)]
    pub period: u64,
    #[serde(default)]
    pub hard_breaches: u64,
    #[serde(default)]
    pub soft_breaches: u64,
    #[serde(default)]
    pub last_breach_at: Option<TimestampMs>,
    #[serde(default)]
    pub last_breach_dimension: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<Pass>,
}

/// How far the sweeper has come that goes over all who wait, because some may fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    pub rank: i64,
    /// Its partition and its id.
    pub execution: (u16, Uuid),
    pub ticket: u64,
    /// There may be more room than when it began: those before it have to be looked at again.
    #[serde(default)]
    pub again: bool,
}

/// What one execution holds of a budget and has spent of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Left of what the present lease has reserved.
    #[serde(default)]
    pub reserved: Amounts,
    /// The dimensions that the present lease has reported.
    #[serde(default)]
    pub reported: Vec<String>,
    /// Within this period.
    #[serde(default)]
    pub spent: Amounts,
    #[serde(default)]
    pub period: u64,
}

/// How a lease ended, as far as a budget is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The holder said so: what it never reported is taken to be what was estimated.
    Settled,
    /// It was cancelled or lost, or put down: what was not reported is given back.
    Refunded,
}

/// A dimension that has no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    pub dimension: String,
    pub used: u64,
    pub reserved: u64,
    pub hard: u64,
}

pub type Dimensions = BTreeMap<String, DimensionLimits>;

impl Account {
    /// Periods are counted from the time of the first one, so that a budget that was deleted and
    /// declared again does not take what was spent of the one before for its own.
    pub fn new(now: TimestampMs) -> Self {
        let period = u64::try_from(now.0).unwrap_or_default();
        Self { since: now, period, ..Self::default() }
    }

    /// Begins the period that `now` falls into, if another was under way.
    pub fn roll(&mut self, period_ms: Option<u64>, now: TimestampMs) {
        let Some(period) = period_ms.and_then(|period| i64::try_from(period).ok()) else { return };
        let passed = now.0.saturating_sub(self.since.0) / period.max(1);
        if passed > 0 {
            let since = self.since.0.saturating_add(passed.saturating_mul(period));
            self.reset(TimestampMs(since));
        }
    }

    /// Nothing is used any more; what is reserved stays, because it is in use.
    pub fn reset(&mut self, now: TimestampMs) {
        self.since = now;
        self.period += 1;
        self.used.clear();
    }

    /// From now on periods have another length. What the present one has used stays used until
    /// the one that begins now is over.
    pub fn change_period(&mut self, before: Option<u64>, after: Option<u64>, now: TimestampMs) {
        self.roll(before, now);
        if before != after {
            self.since = now;
        }
    }

    pub fn next_reset(&self, period_ms: Option<u64>) -> Option<TimestampMs> {
        period_ms.map(|period| self.since.after_ms(period))
    }

    pub fn used(&self, dimension: &str) -> u64 {
        self.used.get(dimension).copied().unwrap_or(0)
    }

    pub fn reserved(&self, dimension: &str) -> u64 {
        self.reserved.get(dimension).copied().unwrap_or(0)
    }

    /// The first dimension that has no room for so much more. An execution that is expected to
    /// use nothing still needs a budget that is not used up.
    pub fn lacks(&self, dimensions: &Dimensions, wanted: &Amounts) -> Option<Short> {
        dimensions.iter().find_map(|(dimension, limits)| {
            let hard = limits.hard?;
            let more = wanted.get(dimension).copied().unwrap_or(0).max(1);
            let used = self.used(dimension);
            let reserved = match mutants::active(Mutant::BudgetOverspent) {
                true => 0,
                false => self.reserved(dimension),
            };
            let short = || Short { dimension: dimension.clone(), used, reserved, hard };
            let sum = used.saturating_add(reserved).saturating_add(more);
            (sum > hard).then(short)
        })
    }

    /// Holds the estimate for a new lease, or says what is short and holds nothing.
    pub fn reserve(
        &mut self,
        dimensions: &Dimensions,
        estimate: &Amounts,
        share: &mut Share,
    ) -> Result<(), Short> {
        if let Some(short) = self.lacks(dimensions, estimate) {
            return Err(short);
        }
        for (dimension, amount) in estimate {
            add(&mut self.reserved, dimension, *amount);
        }
        self.grants += 1;
        share.reserved = estimate.clone();
        share.reported.clear();
        Ok(())
    }

    /// Takes a report: all of it, or nothing of it.
    pub fn report(
        &mut self,
        dimensions: &Dimensions,
        amounts: &Amounts,
        share: &mut Share,
        now: TimestampMs,
    ) -> UsageOutcome {
        for (dimension, amount) in amounts {
            let own = share.reserved.get(dimension).copied().unwrap_or(0);
            let extra = amount.saturating_sub(own);
            let used = self.used(dimension);
            let all = used.saturating_add(self.reserved(dimension)).saturating_add(extra);
            let hard = dimensions.get(dimension).and_then(|limits| limits.hard);
            if let Some(hard) = hard.filter(|hard| extra > 0 && all > *hard) {
                self.breached(dimension, now);
                return UsageOutcome::HardBreach { dimension: dimension.clone(), used, hard };
            }
        }
        let mut outcome = UsageOutcome::Applied;
        for (dimension, amount) in amounts {
            let own = share.reserved.get(dimension).copied().unwrap_or(0).min(*amount);
            subtract(&mut share.reserved, dimension, own);
            subtract(&mut self.reserved, dimension, own);
            if !share.reported.contains(dimension) {
                share.reported.push(dimension.clone());
            }
            self.spend(dimension, *amount, share);
            let soft = dimensions.get(dimension).and_then(|limits| limits.soft);
            let used = self.used(dimension);
            if let Some(soft) = soft.filter(|soft| used > *soft) {
                self.soft_breaches += 1;
                outcome = UsageOutcome::SoftBreach { dimension: dimension.clone(), used, soft };
            }
        }
        outcome
    }

    /// A lease has ended: what it still holds becomes used or free.
    pub fn end(&mut self, share: &mut Share, end: End) {
        for (dimension, left) in std::mem::take(&mut share.reserved) {
            subtract(&mut self.reserved, &dimension, left);
            let reported = share.reported.contains(&dimension);
            if end == End::Settled && !reported {
                self.spend(&dimension, left, share);
            }
        }
        share.reported.clear();
    }

    /// Takes back what an execution has spent in the present period.
    pub fn release(&mut self, share: &mut Share) -> Amounts {
        let spent = std::mem::take(&mut share.spent);
        if share.period != self.period {
            return Amounts::new();
        }
        for (dimension, amount) in &spent {
            subtract(&mut self.used, dimension, *amount);
        }
        spent
    }

    pub fn breached(&mut self, dimension: &str, now: TimestampMs) {
        self.hard_breaches += 1;
        self.last_breach_at = Some(now);
        self.last_breach_dimension = Some(dimension.to_owned());
    }

    fn spend(&mut self, dimension: &str, amount: u64, share: &mut Share) {
        if share.period != self.period {
            share.spent.clear();
            share.period = self.period;
        }
        add(&mut self.used, dimension, amount);
        add(&mut share.spent, dimension, amount);
    }
}

fn add(amounts: &mut Amounts, dimension: &str, amount: u64) {
    if amount > 0 {
        let known = amounts.entry(dimension.to_owned()).or_default();
        *known = known.saturating_add(amount);
    }
}

/// Nothing is kept where nothing is left.
fn subtract(amounts: &mut Amounts, dimension: &str, amount: u64) {
    if let Some(known) = amounts.get_mut(dimension) {
        *known = known.saturating_sub(amount);
        if *known == 0 {
            amounts.remove(dimension);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Dice;
    use super::*;

    fn amounts(pairs: &[(&str, u64)]) -> Amounts {
        pairs.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
    }

    fn tokens(hard: u64, soft: Option<u64>) -> Dimensions {
        BTreeMap::from([("tokens".to_owned(), DimensionLimits { hard: Some(hard), soft })])
    }

    const NOW: TimestampMs = TimestampMs(1_000);

    #[test]
    fn settled_below_and_above_the_estimate() {
        for (reported, end, used) in [
            (None, End::Settled, 40),
            (None, End::Refunded, 0),
            (Some(25), End::Settled, 25),
            (Some(25), End::Refunded, 25),
            (Some(70), End::Settled, 70),
            (Some(0), End::Settled, 0),
        ] {
            let dimensions = tokens(100, None);
            let (mut account, mut share) = (Account::new(NOW), Share::default());
            account.reserve(&dimensions, &amounts(&[("tokens", 40)]), &mut share).unwrap();
            if let Some(reported) = reported {
                let report = amounts(&[("tokens", reported)]);
                let outcome = account.report(&dimensions, &report, &mut share, NOW);
                assert_eq!(outcome, UsageOutcome::Applied);
            }
            account.end(&mut share, end);
            assert_eq!((account.used("tokens"), account.reserved("tokens")), (used, 0));
            // Ended twice, nothing moves.
            account.end(&mut share, end);
            assert_eq!(account.used("tokens"), used);
        }
    }

    #[test]
    fn a_hard_breach_applies_nothing() {
        let mut dimensions = tokens(100, None);
        dimensions.insert("cents".into(), DimensionLimits { hard: Some(5), soft: None });
        let (mut account, mut share) = (Account::new(NOW), Share::default());
        let report = amounts(&[("cents", 6), ("tokens", 10)]);
        let outcome = account.report(&dimensions, &report, &mut share, NOW);
        let breach = UsageOutcome::HardBreach { dimension: "cents".into(), used: 0, hard: 5 };
        assert_eq!(outcome, breach);
        assert!(account.used.is_empty() && share.spent.is_empty());
        assert_eq!((account.hard_breaches, account.last_breach_at), (1, Some(NOW)));
    }

    #[test]
    fn a_soft_breach_is_applied() {
        let dimensions = tokens(100, Some(10));
        let (mut account, mut share) = (Account::new(NOW), Share::default());
        let report = |account: &mut Account, share: &mut Share, many| {
            account.report(&dimensions, &amounts(&[("tokens", many)]), share, NOW)
        };
        assert_eq!(report(&mut account, &mut share, 10), UsageOutcome::Applied);
        let soft = UsageOutcome::SoftBreach { dimension: "tokens".into(), used: 11, soft: 10 };
        assert_eq!(report(&mut account, &mut share, 1), soft);
        assert_eq!((account.used("tokens"), account.soft_breaches), (11, 1));
    }

    #[test]
    fn others_do_not_spend_what_is_reserved() {
        let dimensions = tokens(100, None);
        let (mut account, mut one, mut other) =
            (Account::new(NOW), Share::default(), Share::default());
        account.reserve(&dimensions, &amounts(&[("tokens", 90)]), &mut one).unwrap();
        let report = amounts(&[("tokens", 11)]);
        let outcome = account.report(&dimensions, &report, &mut other, NOW);
        assert!(matches!(outcome, UsageOutcome::HardBreach { .. }), "{outcome:?}");
        assert_eq!(
            account.reserve(&dimensions, &amounts(&[("tokens", 11)]), &mut other),
            Err(Short { dimension: "tokens".into(), used: 0, reserved: 90, hard: 100 })
        );
        // Without an estimate a budget that is not used up is enough.
        account.reserve(&dimensions, &Amounts::new(), &mut other).unwrap();
    }

    #[test]
    fn periods() {
        let mut account = Account { used: amounts(&[("tokens", 9)]), ..Account::new(NOW) };
        let table = [(1_999, 1_000, 9), (2_000, 2_000, 0), (7_500, 7_000, 0)];
        for (now, since, used) in table {
            account.roll(Some(1_000), TimestampMs(now));
            assert_eq!((account.since.0, account.used("tokens")), (since, used), "at {now}");
        }
        account.roll(None, TimestampMs(i64::MAX));
        assert_eq!(account.next_reset(Some(1_000)), Some(TimestampMs(8_000)));
    }

    #[test]
    fn a_release_of_an_older_period_returns_nothing() {
        let dimensions = tokens(100, None);
        let (mut account, mut share) = (Account::new(NOW), Share::default());
        account.report(&dimensions, &amounts(&[("tokens", 30)]), &mut share, NOW);
        let mut released = account.clone();
        assert_eq!(released.release(&mut share.clone()), amounts(&[("tokens", 30)]));
        assert_eq!(released.used("tokens"), 0);
        account.roll(Some(10), TimestampMs(2_000));
        assert_eq!(account.release(&mut share), Amounts::new());
        assert_eq!(account.release(&mut share), Amounts::new());
    }

    /// Claims, reports, ends, releases and resets at random: nothing is made or lost, and the hard
    /// limit stands after every step.
    #[test]
    fn conservation() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let hard = 1 + dice.below(200);
            let dimensions = tokens(hard, Some(hard / 2));
            let period = Some(50 + dice.below(450)).filter(|_| seed % 2 == 0);
            let mut account = Account::new(NOW);
            let mut shares = vec![Share::default(); 6];
            let (mut now, mut used) = (NOW, 0);
            for step in 0..400 {
                now = now.after_ms(dice.below(20));
                let before = account.since;
                account.roll(period, now);
                if account.since != before {
                    used = 0;
                }
                let share = &mut shares[dice.below(6) as usize];
                let amount = amounts(&[("tokens", dice.below(60))]);
                match dice.below(6) {
                    0 | 1 if share.reserved.is_empty() => {
                        let _ = account.reserve(&dimensions, &amount, share);
                    }
                    2 | 3 => match account.report(&dimensions, &amount, share, now) {
                        UsageOutcome::HardBreach { .. } => {}
                        _ => used += amount["tokens"],
                    },
                    4 => {
                        let end = if dice.below(2) == 0 { End::Settled } else { End::Refunded };
                        if end == End::Settled && !share.reported.contains(&"tokens".to_owned()) {
                            used += share.reserved.get("tokens").copied().unwrap_or(0);
                        }
                        account.end(share, end);
                    }
                    _ => used -= account.release(share).get("tokens").copied().unwrap_or(0),
                }
                let held: u64 = shares.iter().flat_map(|share| share.reserved.values()).sum();
                let at = format!("seed {seed}, step {step}");
                assert_eq!(account.used("tokens"), used, "{at}");
                assert_eq!(account.reserved("tokens"), held, "{at}");
                assert!(used + held <= hard, "{at}: {used} + {held} of {hard}");
            }
        }
    }
}
