//! Logs what operations have to tell, each thing once.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::operations::Note;
use crate::operations::timer::TimerFault;
use crate::rows::TimerKind;

/// So many notes are remembered. After more of them, all may be told again.
const NOTES: usize = 1_024;
/// So many timers that have panicked are remembered.
const FAULTS: usize = 1_024;
/// A timer that panics each time is looked at again after so long at most.
const LONGEST_PAUSE_MS: u64 = 10 * 60 * 1_000;

#[derive(Default)]
pub(super) struct Journal {
    told: Mutex<HashSet<Note>>,
    /// For how long each timer that has panicked is put off the next time.
    pauses: Mutex<HashMap<(TimerKind, Uuid), u64>>,
}

impl Journal {
    /// Logs what has not been told before.
    pub fn tell(&self, notes: &[Note]) {
        if notes.is_empty() {
            return;
        }
        let mut told = lock(&self.told);
        for note in notes {
            if told.len() >= NOTES {
                told.clear();
            }
            if told.insert(note.clone()) {
                let Note { subject, what, why } = note;
                tracing::error!(subject, why, "{what}");
            }
        }
    }

    /// Logs every look that panicked, and doubles the pause before the next one.
    pub fn tell_faults(&self, faults: &[TimerFault]) {
        if faults.is_empty() {
            return;
        }
        let mut pauses = lock(&self.pauses);
        if pauses.len() >= FAULTS {
            pauses.clear();
        }
        for fault in faults {
            let TimerFault { kind, subject, why, pause_ms, .. } = fault;
            let next = pause_ms.saturating_mul(2).min(LONGEST_PAUSE_MS);
            pauses.insert((*kind, *subject), next);
            tracing::error!(?kind, %subject, why, pause_ms, "a timer panicked and is put off");
        }
    }

    pub fn pauses(&self) -> HashMap<(TimerKind, Uuid), u64> {
        lock(&self.pauses).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
