//! How carefully due timers are looked at, after a sweep has failed because of one of them.

use std::sync::{Arc, Mutex, PoisonError};

use super::journal::Journal;
use crate::engine_error::EngineError;
use crate::operations::timer::{Isolation, Sweep};
use crate::rows::TimerKey;

const SWEEP_TIMERS: usize = 200;
/// So many are looked at one by one, after a sweep has panicked.
const ISOLATED_TIMERS: usize = 50;
const BULK_CHUNK: usize = 100;

/// A timer whose look panics is found inside a transaction. One whose change cannot be written
/// shows only by an unknown outcome, so then each has a transaction of its own.
#[derive(Default)]
pub(super) struct Caution {
    isolated: bool,
    /// How often the outcome of a sweep was unknown.
    unknown: u32,
    /// The timer that the next sweep puts off.
    pub fault: Option<(TimerKey, String)>,
}

impl Caution {
    fn is_single(&self) -> bool {
        self.unknown > 1
    }

    /// The next sweep, and where it notes which timer it has looked at last.
    pub fn sweep(&self, journal: &Journal) -> (Sweep, Arc<Mutex<Option<TimerKey>>>) {
        let mut isolation = Isolation::new(journal.pauses());
        if let Some((timer, why)) = &self.fault {
            isolation = isolation.with_fault(*timer, why.clone());
        }
        let last = isolation.last.clone();
        let limit = match self.isolated {
            _ if self.is_single() => 1,
            true => ISOLATED_TIMERS,
            false => SWEEP_TIMERS,
        };
        let isolation = (self.isolated || self.is_single()).then_some(isolation);
        (Sweep { limit, bulk_chunk: BULK_CHUNK, entropy: fastrand::u64(..), isolation }, last)
    }

    /// Decides whether more caution may help after a failure. A sweep may be repeated whatever its
    /// outcome was: timers that have fired are gone.
    pub fn grow(
        &mut self,
        error: EngineError,
        last: &Mutex<Option<TimerKey>>,
    ) -> Result<(), EngineError> {
        if error.is_panic() && !self.isolated {
            self.isolated = true;
            return Ok(());
        }
        let EngineError::OutcomeUnknown { detail, .. } = &error else { return Err(error) };
        if self.is_single() {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner).take();
            // If it cannot be put off either, the store is what fails.
            let Some(timer) = last.filter(|_| self.fault.is_none()) else { return Err(error) };
            self.fault = Some((timer, detail.clone()));
        }
        self.unknown += 1;
        Ok(())
    }
}
