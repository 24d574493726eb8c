//! Answers kept under an `Idempotency-Key`, so that a request sent twice acts once.
//!
//! They live in memory, bounded in number, size and time. What must survive a restart does so by
//! other means: submissions keep their key with the execution, and what workers and operators say
//! about an execution answers a repeat with the first outcome.

use std::collections::{HashMap, VecDeque};
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

#[derive(Default)]
pub struct Replies {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    /// Oldest first.
    order: VecDeque<(Instant, Key)>,
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
    since: Instant,
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
                let entry = Entry { fingerprint, since: now, answer: None };
                kept.entries.insert(key.clone(), entry);
                kept.order.push_back((now, key.clone()));
                let kept = self.kept.clone();
                Ok(Turn::First(Ticket { kept, key, since: now, answered: false }))
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
        if let Some(entry) = kept.entries.get_mut(&self.key)
            && entry.since == self.since
        {
            let size = body.len();
            entry.answer = Some(Stored { status, content_type, body });
            kept.bytes += size;
            self.answered = true;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.remove(&self.key, self.since);
        }
    }
}

impl Kept {
    fn forget_old(&mut self, now: Instant) {
        while let Some((since, key)) = self.order.front().cloned() {
            let too_old = now.saturating_duration_since(since) > KEEP;
            let too_many = self.order.len() >= ENTRIES || self.bytes > BYTES;
            if !too_old && !too_many && self.entries.contains_key(&key) {
                return;
            }
            self.order.pop_front();
            self.remove(&key, since);
        }
    }

    fn remove(&mut self, key: &Key, since: Instant) {
        if self.entries.get(key).is_some_and(|entry| entry.since == since)
            && let Some(entry) = self.entries.remove(key)
        {
            self.bytes -= entry.answer.map_or(0, |stored| stored.body.len());
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
        assert!(kept.entries.len() <= ENTRIES && kept.order.len() <= ENTRIES);
        assert_eq!(kept.bytes, kept.entries.len() * 10);
    }
}
