//! Those who follow single executions: whoever reads a stream and waits for what comes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{Change, Write};
use crate::rows::{AnyRow, Record, StreamRow, Value};
use crate::types::ExecutionKey;

#[derive(Default)]
pub(super) struct Followers(Mutex<HashMap<ExecutionKey, watch::Sender<()>>>);

/// A place in line for hints about one execution.
pub struct Follower<'b> {
    followers: &'b Followers,
    execution: ExecutionKey,
    bell: Option<watch::Receiver<()>>,
}

impl Followers {
    pub fn follow(&self, execution: ExecutionKey) -> Follower<'_> {
        let mut senders = self.senders();
        let sender = senders.entry(execution).or_insert_with(|| watch::Sender::new(()));
        Follower { followers: self, execution, bell: Some(sender.subscribe()) }
    }

    /// Tells those whose execution or stream is written. Nearly always there is nobody.
    pub fn ring(&self, change: &Change) {
        let senders = self.senders();
        if senders.is_empty() {
            return;
        }
        for key in change.executions.iter().map(Write::key).chain(change.streams()) {
            if let Some(sender) = senders.get(&key) {
                sender.send_replace(());
            }
        }
    }

    pub fn ring_one(&self, key: &ExecutionKey) {
        if let Some(sender) = self.senders().get(key) {
            sender.send_replace(());
        }
    }

    pub fn ring_all(&self) {
        for sender in self.senders().values() {
            sender.send_replace(());
        }
    }

    fn senders(&self) -> MutexGuard<'_, HashMap<ExecutionKey, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Change {
    /// The executions whose streams are written.
    pub fn streams(&self) -> impl Iterator<Item = ExecutionKey> {
        self.records.iter().filter_map(streaming)
    }
}

/// The execution whose stream is written.
fn streaming(write: &Write<AnyRow>) -> Option<ExecutionKey> {
    let (Write::Insert(row) | Write::Update(row)) = write else { return None };
    match &row.values[..] {
        [Value::Int(partition), Value::Uuid(id), ..] if row.spec == StreamRow::SPEC => {
            Some(ExecutionKey { partition: u16::try_from(*partition).ok()?, id: *id })
        }
        _ => None,
    }
}

impl Follower<'_> {
    /// What was rung so far is of no interest: the look is yet to come.
    pub fn seen(&mut self) {
        if let Some(bell) = &mut self.bell {
            bell.borrow_and_update();
        }
    }

    pub async fn rung(&mut self) {
        if let Some(bell) = &mut self.bell {
            // The sender stands as long as somebody listens.
            let _ = bell.changed().await;
        }
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        let mut senders = self.followers.senders();
        self.bell = None;
        if senders.get(&self.execution).is_some_and(|sender| sender.receiver_count() == 0) {
            senders.remove(&self.execution);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_place_in_line_is_given_back() {
        let followers = Followers::default();
        let key = ExecutionKey { partition: 0, id: Uuid::nil() };
        let first = followers.follow(key);
        let second = followers.follow(key);
        drop(first);
        assert_eq!(followers.senders().len(), 1);
        drop(second);
        assert!(followers.senders().is_empty());
    }
}
