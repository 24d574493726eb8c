//! Callers that were looked up a moment ago, so that not every request asks the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Principal;

/// A token that another server revokes is good for so long at most.
const KEEP: Duration = Duration::from_secs(5);
const ENTRIES: usize = 10_000;

#[derive(Default)]
pub struct Known(Mutex<HashMap<[u8; 32], Seen>>);

type Seen = (Arc<Principal>, Instant);

impl Known {
    pub fn get(&self, hash: &[u8; 32], now: Instant) -> Option<Arc<Principal>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (principal, since) = known.get(hash)?;
        (now.saturating_duration_since(*since) < KEEP).then(|| principal.clone())
    }

    pub fn put(&self, principal: Arc<Principal>, hash: [u8; 32], now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ENTRIES {
            known.retain(|_, (_, since)| now.saturating_duration_since(*since) < KEEP);
        }
        if known.len() < ENTRIES {
            known.insert(hash, (principal, now));
        }
    }

    pub fn forget(&self, token_id: Uuid) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (principal, _)| principal.token_id != Some(token_id));
    }
}
