//! Looks at each timer by itself, after a sweep has panicked: the guilty one is put off, and the
//! others fire.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::sweep::Progress;
use crate::engine::message_of;
use crate::operations::flow::drafts::touch_flows;
use crate::operations::limit::settle;
use crate::rows::{TimerKey, TimerKind, TimerRow};
use crate::store::{World, Write};
use crate::types::TimestampMs;

/// How long a timer is put off that panics for the first time.
pub const FIRST_PAUSE_MS: u64 = 1_000;

/// A timer whose look panicked. It is armed again for later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerFault {
    pub kind: TimerKind,
    pub subject: Uuid,
    pub why: String,
    /// When it is looked at again.
    pub again_at: TimestampMs,
    pub pause_ms: u64,
}

#[derive(Debug, Default)]
pub struct Isolation {
    /// For how long timers are put off that have panicked before, by kind and subject.
    pub pauses: HashMap<(TimerKind, Uuid), u64>,
    /// Those that panicked when they were asked what they must see. Without that they cannot
    /// decide.
    panicked: Mutex<BTreeMap<TimerKey, String>>,
    /// The timer that was looked at last, for an engine that looks at one at a time.
    pub last: Arc<Mutex<Option<TimerKey>>>,
}

impl Isolation {
    pub fn new(pauses: HashMap<(TimerKind, Uuid), u64>) -> Self {
        Self { pauses, ..Self::default() }
    }

    /// Puts a timer off without a look at it: what it does cannot be written.
    pub fn with_fault(self, timer: TimerKey, why: String) -> Self {
        self.panicked().insert(timer, why);
        self
    }

    /// Lets a timer name what it must see.
    pub(super) fn ask(&self, timer: &TimerRow, ask: impl FnOnce()) {
        if self.panicked().contains_key(&timer.key) {
            return;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(ask)) {
            self.panicked().insert(timer.key, message_of(&*panic));
        }
    }

    /// Lets a timer fire. If it panics, what it has changed so far is taken back and it is put off.
    pub(super) fn fire(
        &self,
        world: &World,
        progress: &mut Progress,
        timer: &TimerRow,
        fire: impl FnOnce(&mut Progress),
    ) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(timer.key);
        let before = progress.clone();
        let why = match self.panicked().get(&timer.key) {
            Some(why) => Some(why.clone()),
            None => catch_unwind(AssertUnwindSafe(|| {
                fire(progress);
                // What every change goes through must be able to go through this one.
                let mut change = progress.change.clone();
                settle::settle(world, &mut change);
                touch_flows(world, &mut change);
            }))
            .err()
            .map(|panic| message_of(&*panic)),
        };
        if let Some(why) = why {
            *progress = before;
            self.put_off(world.now, progress, timer, why);
        }
    }

    fn put_off(&self, now: TimestampMs, progress: &mut Progress, timer: &TimerRow, why: String) {
        let TimerKey { kind, subject, .. } = timer.key;
        let pause_ms = self.pauses.get(&(kind, subject)).copied().unwrap_or(FIRST_PAUSE_MS);
        let again_at = now.after_ms(pause_ms);
        let key = TimerKey { due_at: again_at, kind, subject };
        let later = TimerRow { key, members: timer.members.clone() };
        progress.change.timers.push(Write::Delete(timer.key));
        progress.change.timers.push(Write::Update(later));
        progress.faults.push(TimerFault { kind, subject, why, again_at, pause_ms });
    }

    fn panicked(&self) -> MutexGuard<'_, BTreeMap<TimerKey, String>> {
        self.panicked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
