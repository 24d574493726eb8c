//! What a load is about: ids of executions, and the latest of a kind that operators pick from.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ff_core::types::ExecutionId;

const PARTITIONS: u16 = 256;
/// How many of the latest an operator chooses from.
const REMEMBERED: usize = 128;

/// The latest of one kind.
pub(crate) struct Recent<T>(Mutex<VecDeque<T>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Recent<T> {
    pub fn remember(&self, one: T) {
        let mut recent = self.lock();
        recent.push_back(one);
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
    }

    pub fn pick(&self, rng: &mut Rng) -> Option<T> {
        let recent = self.lock();
        (!recent.is_empty()).then(|| recent[rng.usize(..recent.len())].clone())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) async fn pause(rng: &mut Rng, millis: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rng.u64(millis))).await;
}

/// All over the partitions, so that every part of a log that has parts is written.
pub(crate) fn new_id(rng: &mut Rng) -> String {
    let partition = rng.u16(..PARTITIONS);
    let id = uuid::Builder::from_random_bytes(rng.u128(..).to_be_bytes()).into_uuid();
    ExecutionId::from_parts(partition, id).as_str().to_owned()
}
