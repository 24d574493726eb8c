//! Answers kept under an `Idempotency-Key`, so that a request sent twice acts once.
//!
//! They live in memory, bounded in number, size and time. What must survive a restart does so by
//! other means: submissions keep their key with the execution, and what workers and operators say
//! about an execution answers a repeat with the first outcome.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use bytes::Bytes;

use crate::call::{Reply, ReplyBody};
use crate::refusal::{Answered, Refusal};

const KEEP: Duration = Duration::from_secs(60 * 60);
const ENTRIES: usize = 10_000;
const BYTES: usize = 32 * 1024 * 1024;
const LARGEST: usize = 1024 * 1024;
/// What an entry counts beside its answer where shares are compared.
const ENTRY_BYTES: usize = 1024;

#[derive(Default)]
pub struct Replies {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    /// Oldest first.
    order: BTreeMap<u64, Key>,
    next: u64,
    bytes: usize,
    /// What each namespace holds. When there is no more room, the namespace that holds most gives
    /// way, and in it the caller that holds most, so that a tenant pushes out its own answers and
    /// not those of others.
    shares: HashMap<String, HashMap<String, Share>>,
}

/// What one caller holds in one namespace.
#[derive(Default)]
struct Share {
    entries: BTreeSet<u64>,
    bytes: usize,
}

/// Whose key it is, and the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub caller: String,
    pub namespace: String,
    pub key: String,
}

struct Entry {
    fingerprint: [u8; 32],
    since: Instant,
    number: u64,
    /// Absent while the first request is being worked on.
    answer: Option<Stored>,
}

#[derive(Clone)]
pub struct Stored {
    pub status: StatusCode,
    pub content_type: Option<&'static str>,
    pub body: Bytes,
}

/// What to do with a request that has a key.
pub enum Turn {
    /// It is the first: act, and say how it went.
    First(Ticket),
    /// It has been answered before.
    Again(Stored),
}

/// The right to answer for a key. Dropped without an answer, the key is free again.
pub struct Ticket {
    kept: Arc<Mutex<Kept>>,
    key: Key,
    number: u64,
    answered: bool,
}

impl Replies {
    pub fn take(&self, key: Key, fingerprint: [u8; 32], now: Instant) -> Answered<Turn> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.forget_old(now);
        match kept.entries.get(&key) {
            Some(entry) if entry.fingerprint != fingerprint => {
                let detail = "the idempotency key was used for another request";
                Err(Refusal::new("idempotency_key_reused", detail))
            }
            Some(Entry { answer: Some(stored), .. }) => Ok(Turn::Again(stored.clone())),
            Some(_) => {
                let detail = "a request with this idempotency key is being worked on";
                Err(Refusal::new("idempotency_in_progress", detail))
            }
            None => {
                let number = kept.insert(key.clone(), fingerprint, now);
                let kept = self.kept.clone();
                Ok(Turn::First(Ticket { kept, key, number, answered: false }))
            }
        }
    }
}

impl Ticket {
    /// Keeps an answer that a repeat would also be given. Streams, large answers and those that
    /// say "try again" are not kept.
    pub fn answer(mut self, reply: &Reply) {
        let ReplyBody::Bytes(body) = &reply.body else { return };
        let final_word = reply.status.as_u16() < 429 && reply.status != StatusCode::REQUEST_TIMEOUT;
        if !final_word || body.len() > LARGEST {
            return;
        }
        let (status, content_type, body) = (reply.status, reply.content_type, body.clone());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.answered = kept.answer(&self.key, self.number, Stored { status, content_type, body });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.remove(&self.key, self.number);
        }
    }
}

impl Kept {
    fn insert(&mut self, key: Key, fingerprint: [u8; 32], now: Instant) -> u64 {
        self.next += 1;
        let number = self.next;
        self.share(&key).entries.insert(number);
        self.order.insert(number, key.clone());
        self.entries.insert(key, Entry { fingerprint, since: now, number, answer: None });
        number
    }

    /// Keeps an answer, unless its key has been given away meanwhile.
    fn answer(&mut self, key: &Key, number: u64, stored: Stored) -> bool {
        let size = stored.body.len();
        match self.entries.get_mut(key).filter(|entry| entry.number == number) {
            Some(entry) => entry.answer = Some(stored),
            None => return false,
        }
        self.bytes += size;
        self.share(key).bytes += size;
        true
    }

    fn share(&mut self, key: &Key) -> &mut Share {
        let namespace = self.shares.entry(key.namespace.clone()).or_default();
        namespace.entry(key.caller.clone()).or_default()
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some((number, key)) = self.order.first_key_value() {
            let (number, key) = (*number, key.clone());
            let since = self.entries.get(&key).map(|entry| entry.since);
            if since.is_some_and(|since| now.saturating_duration_since(since) <= KEEP) {
                break;
            }
            self.remove(&key, number);
        }
        while self.entries.len() >= ENTRIES || self.bytes > BYTES {
            let Some((key, number)) = self.least_deserving() else { return };
            self.remove(&key, number);
        }
    }

    /// The oldest answer of the caller that holds most in the namespace that holds most. A request
    /// that is being worked on keeps its key; there are only as many as are in hand.
    fn least_deserving(&self) -> Option<(Key, u64)> {
        let cost = |share: &Share| share.bytes + share.entries.len() * ENTRY_BYTES;
        let total = |callers: &HashMap<String, Share>| callers.values().map(cost).sum::<usize>();
        let largest = self.shares.values().max_by_key(|callers| total(callers))?;
        let mut callers: Vec<&Share> = largest.values().collect();
        callers.sort_unstable_by_key(|share| std::cmp::Reverse(cost(share)));
        let answered = |number: &&u64| {
            let entry = self.order.get(number).and_then(|key| self.entries.get(key));
            entry.is_some_and(|entry| entry.answer.is_some())
        };
        let mut oldest =
            callers.into_iter().filter_map(|share| share.entries.iter().find(answered));
        let number = *oldest.next()?;
        self.order.get(&number).map(|key| (key.clone(), number))
    }

    fn remove(&mut self, key: &Key, number: u64) {
        self.order.remove(&number);
        if self.entries.get(key).is_none_or(|entry| entry.number != number) {
            return;
        }
        let answer = self.entries.remove(key).and_then(|entry| entry.answer);
        let size = answer.map_or(0, |stored| stored.body.len());
        self.bytes -= size;
        let share = self.share(key);
        share.bytes -= size;
        share.entries.remove(&number);
        if share.entries.is_empty()
            && let Some(namespace) = self.shares.get_mut(&key.namespace)
        {
            namespace.remove(&key.caller);
            if namespace.is_empty() {
                self.shares.remove(&key.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key { caller: "c".into(), namespace: "n".into(), key: text.into() }
    }

    fn reply(status: StatusCode, body: &'static [u8]) -> Reply {
        let body = ReplyBody::Bytes(Bytes::from_static(body));
        Reply { status, content_type: None, headers: Vec::new(), body }
    }

    fn first(replies: &Replies, text: &str, now: Instant) -> Ticket {
        match replies.take(key(text), [1; 32], now) {
            Ok(Turn::First(ticket)) => ticket,
            Ok(Turn::Again(_)) => panic!("{text} was answered before"),
            Err(refusal) => panic!("{text}: {refusal:?}"),
        }
    }

    #[test]
    fn a_repeat_is_answered_as_before() {
        let (replies, now) = (Replies::default(), Instant::now());
        let ticket = first(&replies, "k", now);
        let refused = |fingerprint| replies.take(key("k"), fingerprint, now).err().unwrap().code;
        assert_eq!(refused([1; 32]), "idempotency_in_progress");
        ticket.answer(&reply(StatusCode::CREATED, b"x"));
        let again = replies.take(key("k"), [1; 32], now).unwrap();
        assert!(matches!(again, Turn::Again(stored) if stored.body == "x"));
        assert_eq!(refused([2; 32]), "idempotency_key_reused");
        first(&replies, "k", now + KEEP + Duration::from_secs(1));
    }

    #[test]
    fn failures_and_abandoned_requests_free_the_key() {
        let (replies, now) = (Replies::default(), Instant::now());
        drop(first(&replies, "k", now));
        first(&replies, "k", now).answer(&reply(StatusCode::SERVICE_UNAVAILABLE, b""));
        first(&replies, "k", now).answer(&reply(StatusCode::OK, b""));
        assert!(matches!(replies.take(key("k"), [1; 32], now), Ok(Turn::Again(_))));
    }

    #[test]
    fn memory_is_bounded() {
        let (replies, now) = (Replies::default(), Instant::now());
        for at in 0..ENTRIES + 100 {
            first(&replies, &at.to_string(), now).answer(&reply(StatusCode::OK, b"0123456789"));
        }
        let kept = replies.kept.lock().unwrap();
        assert!(kept.entries.len() <= ENTRIES && kept.order.len() == kept.entries.len());
        assert_eq!(kept.bytes, kept.entries.len() * 10);
        let share = &kept.shares["n"]["c"];
        assert_eq!((share.entries.len(), share.bytes), (kept.entries.len(), kept.bytes));
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind() {
        let (replies, now) = (Replies::default(), Instant::now());
        for at in 0..100 {
            let ticket = first(&replies, &at.to_string(), now);
            if at % 2 == 0 {
                ticket.answer(&reply(StatusCode::OK, b"x"));
            }
        }
        drop(first(&replies, "late", now + KEEP + Duration::from_secs(1)));
        let kept = replies.kept.lock().unwrap();
        assert!(kept.entries.is_empty() && kept.order.is_empty() && kept.shares.is_empty());
        assert_eq!(kept.bytes, 0);
    }

    fn asked(replies: &Replies, caller: &str, namespace: &str, text: &str, size: usize) -> bool {
        let key = Key { caller: caller.into(), namespace: namespace.into(), key: text.into() };
        match replies.take(key, [1; 32], Instant::now()) {
            Ok(Turn::First(ticket)) => {
                let body = ReplyBody::Bytes(Bytes::from(vec![0; size]));
                let status = StatusCode::OK;
                ticket.answer(&Reply { status, content_type: None, headers: Vec::new(), body });
                false
            }
            Ok(Turn::Again(_)) => true,
            Err(refusal) => panic!("{text}: {refusal:?}"),
        }
    }

    #[test]
    fn a_tenant_pushes_out_its_own_answers_and_not_those_of_others() {
        let replies = Replies::default();
        for at in 0..100 {
            assert!(!asked(&replies, "victim", "b", &at.to_string(), 100));
        }
        // One token with many keys, many tokens with a few each, and a few large answers.
        for at in 0..ENTRIES + 50 {
            asked(&replies, "one", "a", &at.to_string(), 0);
        }
        for at in 0..ENTRIES + 50 {
            asked(&replies, &format!("token {}", at % 500), "a", &at.to_string(), 0);
        }
        for at in 0..100 {
            asked(&replies, "large", "a", &format!("large {at}"), LARGEST);
        }
        for at in 0..100 {
            assert!(asked(&replies, "victim", "b", &at.to_string(), 100), "{at} was forgotten");
        }
        // Another token of the loud namespace is not pushed out by the loudest either.
        assert!(!asked(&replies, "quiet", "a", "one", 10));
        for at in 0..ENTRIES + 50 {
            asked(&replies, "one", "a", &format!("again {at}"), 0);
        }
        assert!(asked(&replies, "quiet", "a", "one", 10));
    }
}
